"""An independent oracle: Qwen2, Qwen3 and Llama written plainly, and every family's decoder for one row, in float64.

Every forward feeds the whole sequence under an explicit block-causal mask and keeps nothing between
steps; only a sub-block step, which by definition looks at older keys, is given the memory of the step
before. Shares no code with the package.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from rule_oracle import choose

Writes = dict[int, int]
"""Column and token of every position that a step made known."""


@dataclass(frozen=True)
class Margin:
    """How near a step was to writing something else; infinite where nothing was to be decided."""

    logits: float = math.inf
    """Between the best two logits of a written position."""
    confidence: float = math.inf
    """Between the scores and another choice of the unmasking rule."""


@dataclass(frozen=True)
class Step:
    """One forward of a decoding: its kind and what it wrote."""

    kind: str
    writes: Writes
    margin: Margin = field(default=Margin(), compare=False)


@dataclass(frozen=True)
class Settings:
    """What the decoder is told."""

    block_size: int
    sub_block_size: int
    threshold: float
    block_cache: bool
    max_new_tokens: int
    stop_tokens: frozenset[int] = frozenset()
    shift: int = 1
    """How far left of a token the row lies that predicts it."""
    rule: Mapping[str, Any] | None = None
    """An unmasking rule; None is the threshold."""


class DenseNetwork:
    """The network as matrices and a mask."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {
            name: value.double() for name, value in load_file(folder / "model.safetensors").items()
        }
        self.mask_token: int | None = self.config.get("mask_token_id")

    def forward(self, tokens: Sequence[int], block_size: int, rows: range, memory: "Memory") -> Tensor:
        """Feed `rows` of the sequence; the other rows' keys come from memory. Returns logits of `rows`."""
        x = self.weights["model.embed_tokens.weight"][torch.tensor(tokens)[rows.start : rows.stop]]
        blocks = torch.arange(len(tokens)) // block_size
        hidden = blocks[None, :] > blocks[rows.start : rows.stop, None]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            x = x + self._attention(name, self._norm(x, name + "input_layernorm"), rows, hidden, memory)
            x = x + self._mlp(name + "mlp.", self._norm(x, name + "post_attention_layernorm"))
        head = "model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head"
        return self._norm(x, "model.norm") @ self.weights[head + ".weight"].T

    def logits(self, tokens: Sequence[int], block_size: int) -> Tensor:
        """Logits of the whole sequence under the block-causal mask."""
        return self.forward(tokens, block_size, range(len(tokens)), {})

    def _norm(self, x: Tensor, name: str) -> Tensor:
        size = (x.square().mean(dim=-1, keepdim=True) + self.config["rms_norm_eps"]).sqrt()
        return x / size * self.weights[name + ".weight"]

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        gate = x @ self.weights[name + "gate_proj.weight"].T
        up = x @ self.weights[name + "up_proj.weight"].T
        return (gate * torch.sigmoid(gate) * up) @ self.weights[name + "down_proj.weight"].T

    def _attention(self, name: str, x: Tensor, rows: range, hidden: Tensor, memory: "Memory") -> Tensor:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        width = self.config.get("head_dim", self.config["hidden_size"] // heads)
        query = self._rotated(self._heads(name, "q", x, heads), rows)
        keys, values = memory.setdefault(
            name, (_blank(hidden, kv_heads, width), _blank(hidden, kv_heads, width))
        )
        keys[rows.start : rows.stop] = self._rotated(self._heads(name, "k", x, kv_heads), rows)
        values[rows.start : rows.stop] = self._heads(name, "v", x, kv_heads)
        outputs = []
        for head in range(heads):
            shared = head * kv_heads // heads
            scores = query[:, head] @ keys[:, shared].T / math.sqrt(width)
            weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
            outputs.append(weights @ values[:, shared])
        return torch.cat(outputs, dim=-1) @ self.weights[name + "self_attn.o_proj.weight"].T

    def _heads(self, name: str, which: str, x: Tensor, heads: int) -> Tensor:
        name = f"{name}self_attn.{which}_proj."
        flat = x @ self.weights[name + "weight"].T + self.weights.get(name + "bias", 0)
        found = flat.reshape(len(x), heads, -1)
        norm = name.replace("_proj.", "_norm")
        return self._norm(found, norm) if norm + ".weight" in self.weights else found

    def _rotated(self, x: Tensor, rows: range) -> Tensor:
        half = x.shape[-1] // 2
        speeds = self.config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.tensor(list(rows), dtype=torch.float64)[:, None, None] * speeds
        first, second = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


Memory = dict[str, tuple[Tensor, Tensor]]
"""Keys and values of every layer, for the whole sequence."""


def _blank(hidden: Tensor, kv_heads: int, width: int) -> Tensor:
    return torch.full((hidden.shape[1], kv_heads, width), math.nan, dtype=torch.float64)


class BruteForce:
    """Decodes one prompt. The first steps may be dictated, so that any state can be judged."""

    def __init__(
        self, network: DenseNetwork, prompt: Sequence[int], settings: Settings, script: Sequence[Writes] = ()
    ) -> None:
        self.network = network
        self.settings = settings
        self.script = list(script)
        self.prompt_length = len(prompt)
        self.unknown = -1 if network.mask_token is None else network.mask_token
        self.tokens = list(prompt)
        self.steps: list[Step] = []
        self.rule = settings.rule or {"kind": "threshold", "threshold": settings.threshold}
        self.rule_step = 0

    def run(self, limit: int | None = None) -> list[Step]:
        """Decode to the end, or to the step number `limit`."""
        self.limit = limit
        size = self.settings.block_size
        start = len(self.tokens) // size * size
        if start:
            self._after_block("prefill", known=len(self.tokens) > start)
        while not self.finished:
            self.tokens += [self.unknown] * (start + size - len(self.tokens))
            self._denoise(range(start, start + size))
            if not self.finished:
                self._after_block("commit", known=False)
            start += size
        return self.steps

    @property
    def finished(self) -> bool:
        """Whether the answer is settled or enough steps were taken."""
        if self.limit is not None and len(self.steps) >= self.limit:
            return True
        answer = self.answer
        return len(answer) == self.settings.max_new_tokens or bool(
            self.settings.stop_tokens.intersection(answer)
        )

    @property
    def answer(self) -> list[int]:
        """The new tokens without a gap, cut at the limit and after a stop token."""
        answer: list[int] = []
        for token in self.tokens[self.prompt_length : self.prompt_length + self.settings.max_new_tokens]:
            if token == self.unknown:
                break
            answer.append(token)
            if token in self.settings.stop_tokens:
                break
        return answer

    def _denoise(self, block: range) -> None:
        memory: Memory = {}
        size = self.settings.sub_block_size
        for first in range(block.start, block.stop, size):
            sub_block = range(first, first + size)
            self.rule_step = 0
            while (masked := self._masked(sub_block)) and not self.finished:
                sources = [column - self.settings.shift for column in masked]
                if self.settings.block_cache and memory and self.rule_step and sources[0] >= first:
                    kind, rows = "sub", sub_block
                else:
                    kind, rows, memory = "block", range(block.stop), {}
                logits = self.network.forward(self.tokens, self.settings.block_size, rows, memory)
                self._take(kind, masked, logits[[source - rows.start for source in sources]])

    def _after_block(self, kind: str, known: bool) -> None:
        """Read the token that follows the last whole block, unless the prompt has it."""
        start = len(self.tokens) // self.settings.block_size * self.settings.block_size
        if known or not self.settings.shift:
            self.steps.append(Step(kind, {}))
            return
        logits = self.network.logits(self.tokens[:start], self.settings.block_size)
        self.tokens.append(self.unknown)
        self._take(kind, [start], logits[-1:])

    def _masked(self, columns: range) -> list[int]:
        return [column for column in columns if self.tokens[column] == self.unknown]

    def _take(self, kind: str, columns: list[int], logits: Tensor) -> None:
        if self.network.mask_token is not None:
            logits[:, self.network.mask_token] = -math.inf
        best = logits.topk(2, dim=-1)
        chosen, gap = [0], math.inf
        if kind in ("block", "sub"):
            chosen, gap = self._chosen(logits.softmax(dim=-1))
        gaps = (best.values[:, 0] - best.values[:, 1]).tolist()
        margin = Margin(min(gaps[place] for place in chosen), gap)
        writes = {columns[place]: int(best.indices[place, 0]) for place in sorted(chosen)}
        if len(self.steps) < len(self.script):
            writes = self.script[len(self.steps)]
        for column, token in writes.items():
            self.tokens[column] = token
        self.steps.append(Step(kind, writes, margin))

    def _chosen(self, shares: Tensor) -> tuple[list[int], float]:
        """What the rule chooses, and its margin; idle steps are passed over, since the logits would be the same."""
        gap = math.inf
        while True:
            chosen, of_step = choose(self.rule, self.rule_step, self.settings.sub_block_size, shares)
            self.rule_step += 1
            gap = min(gap, of_step)
            if chosen:
                return chosen, gap
