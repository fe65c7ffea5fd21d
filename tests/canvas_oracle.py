"""An independent oracle of LLaDA and Dream: the network without causality and the decoding of a canvas, in float64.

A canvas is prompt and answer in one piece; every position sees all others. A forward that does not feed all rows
looks at the keys of the last full forward, with its own put over them. Shares no code with the package.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from rule_oracle import choose

Writes = dict[int, int]
Memory = dict[int, tuple[Tensor, Tensor]]
"""Keys and values of all columns, by layer."""
PARTS = {
    "llada": {
        "embedding": "model.transformer.wte",
        "norm": "model.transformer.ln_f",
        "head": "model.transformer.ff_out",
        "layer": "model.transformer.blocks.",
        "before_attention": "attn_norm",
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        "mixed": "attn_out",
        "before_mlp": "ff_norm",
        "gate": "ff_proj",
        "up": "up_proj",
        "down": "ff_out",
    },
    "Dream": {
        "embedding": "model.embed_tokens",
        "norm": "model.norm",
        "head": "lm_head",
        "layer": "model.layers.",
        "before_attention": "input_layernorm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "mixed": "self_attn.o_proj",
        "before_mlp": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
}
"""What the parts of a network are called, by `model_type`."""


class CanvasNetwork:
    """A network as matrices."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        llada = config["model_type"] == "llada"
        self.parts = PARTS[config["model_type"]]
        self.weights = {
            name: value.double() for name, value in load_file(folder / "model.safetensors").items()
        }
        self.mask_token: int = config["mask_token_id"]
        self.layers: int = config["n_layers" if llada else "num_hidden_layers"]
        self.heads: int = config["n_heads" if llada else "num_attention_heads"]
        kv_heads = config["n_kv_heads" if llada else "num_key_value_heads"]
        self.kv_heads: int = kv_heads or self.heads
        self.theta: float = config["rope_theta"]
        self.eps: float = config["rms_norm_eps"]
        self.shift = 0 if llada else 1

    def forward(self, tokens: Sequence[int], rows: range, memory: Memory) -> Tensor:
        """Logits of `rows`. All rows replace the memory; fewer rows only look at it."""
        x = self._weight("embedding")[torch.tensor(tokens)[rows.start : rows.stop]]
        for layer in range(self.layers):
            place = f"{self.parts['layer']}{layer}."
            normed = self._normed(x, place + self.parts["before_attention"])
            x = x + self._attention(layer, place, normed, rows, len(tokens), memory)
            normed = self._normed(x, place + self.parts["before_mlp"])
            gate = self._linear(normed, place, "gate")
            x = x + self._linear(
                gate * torch.sigmoid(gate) * self._linear(normed, place, "up"), place, "down"
            )
        return self._normed(x, self.parts["norm"]) @ self._weight("head").T

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Logits of the whole canvas."""
        return self.forward(tokens, range(len(tokens)), {})

    def _weight(self, part: str) -> Tensor:
        name = self.parts[part] + ".weight"
        return self.weights[name if name in self.weights else self.parts["embedding"] + ".weight"]

    def _linear(self, x: Tensor, place: str, part: str) -> Tensor:
        name = place + self.parts[part]
        return x @ self.weights[name + ".weight"].T + self.weights.get(name + ".bias", 0)

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(dim=-1, keepdim=True) + self.eps).sqrt() * self.weights[name + ".weight"]

    def _attention(
        self, layer: int, place: str, x: Tensor, rows: range, length: int, memory: Memory
    ) -> Tensor:
        query = self._rotated(self._linear(x, place, "query").unflatten(-1, (self.heads, -1)), rows)
        keys = self._rotated(self._linear(x, place, "key").unflatten(-1, (self.kv_heads, -1)), rows)
        values = self._linear(x, place, "value").unflatten(-1, (self.kv_heads, -1))
        if len(rows) == length:
            memory[layer] = keys, values
        else:
            kept_keys, kept_values = memory[layer]
            before, behind = slice(0, rows.start), slice(rows.stop, length)
            keys = torch.cat([kept_keys[before], keys, kept_keys[behind]])
            values = torch.cat([kept_values[before], values, kept_values[behind]])
        mixed = []
        for head in range(self.heads):
            shared = head * self.kv_heads // self.heads
            scores = query[:, head] @ keys[:, shared].T / math.sqrt(query.shape[-1])
            mixed.append(scores.softmax(dim=-1) @ values[:, shared])
        return self._linear(torch.cat(mixed, dim=-1), place, "mixed")

    def _rotated(self, x: Tensor, rows: range) -> Tensor:
        half = x.shape[-1] // 2
        speeds = self.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.tensor(list(rows), dtype=torch.float64)[:, None, None] * speeds
        first, second = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@dataclass(frozen=True, kw_only=True)
class CanvasSettings:
    """What a decoding is told."""

    max_new_tokens: int
    rule: Mapping[str, Any]
    """An unmasking rule, as rule_oracle.py takes it."""
    sub_block_size: int | None = None
    """Positions that compete, counted from the prompt's end (published as blocks); None: the answer."""
    cache: str = "none"
    """`none` feeds the canvas in every step; later steps of a sub-block feed, with `prefix`, the sub-block and what
    follows it, with `dual` the sub-block."""
    refresh_every: int | None = None
    """With a cache: steps after which a sub-block takes a full step again; idle ones do not count."""
    guidance: float = 0.0
    """Published as cfg_scale."""
    never: frozenset[int] = frozenset()
    """Tokens that are not predicted."""
    last: frozenset[int] = frozenset()
    """Tokens that are predicted, but have no confidence."""
    top_p: float = 1.0
    top_k: int | None = None
    """What is left of the predictions before a score is taken of them."""
    stop_tokens: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CanvasStep:
    """One step of a decoding; one that writes nothing is idle, and an engine need not do it."""

    kind: str
    """`full`, `prefix` or `dual`."""
    rows: int
    writes: Writes
    logit_gap: float = field(default=math.inf, compare=False)
    """Between the best two logits of a position that was written."""
    choice_gap: float = field(default=math.inf, compare=False)
    """Between the scores, or what is cut before they are taken, and another choice."""


class CanvasBruteForce:
    """Decodes one prompt. The first steps may be dictated, so that any state can be judged."""

    def __init__(
        self,
        network: CanvasNetwork,
        prompt: Sequence[int],
        settings: CanvasSettings,
        script: Sequence[Writes] = (),
    ) -> None:
        self.network, self.settings, self.script = network, settings, list(script)
        self.begin, self.end = len(prompt), len(prompt) + settings.max_new_tokens
        self.tokens = [*prompt, *[network.mask_token] * settings.max_new_tokens]
        self.steps: list[CanvasStep] = []
        self.since_full = 0
        """Steps of this sub-block that wrote something, from its last full step on."""
        self.memory: Memory = {}
        self.memory_without_prompt: Memory = {}

    def run(self) -> list[int]:
        """The answer, up to and with the first stop token."""
        size = self.settings.sub_block_size or self.settings.max_new_tokens
        for first in range(self.begin, self.end, size):
            sub_block = range(first, min(first + size, self.end))
            step = 0
            while self._unknown(sub_block) and not self.stopped:
                self._step(step, sub_block)
                step += 1
        return self.answer

    @property
    def answer(self) -> list[int]:
        """The new tokens before the first gap, cut behind a stop token."""
        answer: list[int] = []
        for token in self.tokens[self.begin :]:
            if token == self.network.mask_token:
                break
            answer.append(token)
            if token in self.settings.stop_tokens:
                break
        return answer

    @property
    def stopped(self) -> bool:
        """Whether a stop token is known and nothing before it is open."""
        return bool(self.settings.stop_tokens.intersection(self.answer))

    def forwards(self, idle: bool = True) -> Counter[tuple[str, int]]:
        """How many forwards of each kind fed how many rows; guidance takes two a step."""
        taken: Counter[tuple[str, int]] = Counter()
        for step in self.steps if idle else self.needed_steps:
            taken[step.kind, step.rows] += 2 if self.settings.guidance else 1
        return taken

    @property
    def needed_steps(self) -> list[CanvasStep]:
        """The steps without idle ones: what follows an idle step knows no more, so its forward serves for both."""
        needed: list[CanvasStep] = []
        first: CanvasStep | None = None
        for step in self.steps:
            first = first or step
            if step.writes:
                needed.append(replace(step, kind=first.kind, rows=first.rows))
                first = None
        return needed

    def _unknown(self, columns: range) -> list[int]:
        return [column for column in columns if self.tokens[column] == self.network.mask_token]

    def _step(self, step: int, sub_block: range) -> None:
        cache = self.settings.cache
        if cache == "none" or step == 0 or self.since_full == self.settings.refresh_every:
            kind, rows = "full", range(self.end)
            self.since_full = 0
        else:
            kind, rows = cache, range(sub_block.start, sub_block.stop if cache == "dual" else self.end)
        opens = bool(self.network.shift) and cache != "none" and step == 0
        candidates = [sub_block.start] if opens else self._unknown(sub_block)
        logits = self._logits(rows, candidates)
        tokens = logits.argmax(dim=-1).tolist()
        best = logits.topk(2, dim=-1).values
        gaps = (best[:, 0] - best[:, 1]).tolist()
        chosen, choice_gap = [0], math.inf
        if not opens:
            shares, cut_gap = self._shares(logits)
            chosen, choice_gap = choose(self.settings.rule, step, len(sub_block), shares)
            choice_gap = min(choice_gap, cut_gap)
        writes = {candidates[place]: tokens[place] for place in sorted(chosen)}
        logit_gap = min((gaps[place] for place in chosen), default=math.inf)
        if len(self.steps) < len(self.script):
            writes = self.script[len(self.steps)]
        for column, token in writes.items():
            self.tokens[column] = token
        self.steps.append(CanvasStep(kind, len(rows), writes, logit_gap, choice_gap))
        self.since_full += bool(writes)

    def _logits(self, rows: range, candidates: Sequence[int]) -> Tensor:
        """What the network says about candidates, without the tokens that are never predicted."""
        sources = [max(column - self.network.shift, 0) - rows.start for column in candidates]
        logits = self.network.forward(self.tokens, rows, self.memory)[sources]
        if self.settings.guidance:
            hidden = [self.network.mask_token] * self.begin + self.tokens[self.begin :]
            without = self.network.forward(hidden, rows, self.memory_without_prompt)[sources]
            logits = without + (self.settings.guidance + 1) * (logits - without)
        logits[:, [self.network.mask_token, *self.settings.never]] = -math.inf
        return logits

    def _shares(self, logits: Tensor) -> tuple[Tensor, float]:
        """Probabilities that scores are taken of, and how near a cut came; tokens that come last have no score."""
        late = torch.tensor(sorted(self.settings.last), dtype=torch.long)
        kept, gap = cut(logits.index_fill(1, late, -math.inf), self.settings.top_p, self.settings.top_k)
        shares = kept.softmax(dim=-1)
        shares[torch.isin(logits.argmax(dim=-1), late)] = 0.0
        return shares, gap


def cut(logits: Tensor, top_p: float, top_k: int | None) -> tuple[Tensor, float]:
    """Drop tokens only reached past a share of the mass, and those behind the best k; also the nearest miss."""
    kept, gap = logits.clone(), math.inf
    for row in kept:
        order = row.argsort(descending=True, stable=True)
        shares = row.softmax(dim=-1)[order]
        reached = shares.cumsum(dim=0) - shares
        if top_k is not None and top_k < len(row):
            gap = min(gap, float(row[order[top_k - 1]] - row[order[top_k]]))
            row[order[top_k:]] = -math.inf
        if top_p < 1:
            gap = min(gap, float((reached - top_p).abs().min()))
            row[order[reached > top_p]] = -math.inf
    return kept, gap


def likelihood(
    network: CanvasNetwork,
    prefix: Sequence[int],
    target: Sequence[int],
    patterns: Sequence[Sequence[int]],
    shares: Sequence[float],
    guidance: float = 0.0,
) -> float:
    """The mean, over patterns of masked places of the target, of their log probability over the share masked."""
    total = 0.0
    for masked, share in zip(patterns, shares, strict=True):
        shown = [network.mask_token if place in masked else token for place, token in enumerate(target)]
        logits = network.logits([*prefix, *shown])
        if guidance:
            without = network.logits([*[network.mask_token] * len(prefix), *shown])
            logits = without + (guidance + 1) * (logits - without)
        logprobs = logits.log_softmax(dim=-1)
        for place in masked:
            total += float(logprobs[len(prefix) + place - network.shift, target[place]]) / share
    return total / len(patterns)
