"""An independent oracle for reuse: one row in float64, every remembered thing an explicit array.

Each layer's keys, values and changes are kept for every column in plain tensors; what a step reads or
renews is written out below. Shares no code with the package; which layers and rows a step leaves out is
told by the test.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from brute_force import BruteForce, DenseNetwork, Settings, Step
from traces import CONFIDENCE_ROUNDING, LOGIT_ROUNDING, first_difference


@dataclass(frozen=True)
class State:
    """What a schedule may look at before a denoising step; columns are absolute."""

    kind: str
    step: int
    block_steps: int
    block: range
    sub_block: range
    masked: list[int]
    stale: frozenset[int]


@dataclass(frozen=True)
class Decision:
    """What a step leaves out."""

    replayed: frozenset[int] = frozenset()
    rows: Sequence[int] | None = None


Decide = Callable[[State], Decision]


@dataclass
class Kept:
    """Everything remembered in one block, for all columns up to its end; not a number where it never was."""

    keys: Tensor
    values: Tensor
    attention: Tensor
    mlp: Tensor
    inputs: Tensor
    outputs: Tensor
    final: Tensor

    @classmethod
    def blank(cls, network: DenseNetwork, columns: int) -> "Kept":
        config = network.config
        layers, hidden = config["num_hidden_layers"], config["hidden_size"]
        kv = (layers, columns, config["num_key_value_heads"], hidden // config["num_attention_heads"])

        def empty(*shape: int) -> Tensor:
            return torch.full(shape, math.nan, dtype=torch.float64)

        streams = [empty(layers, columns, hidden) for _ in range(4)]
        return cls(empty(*kv), empty(*kv), *streams, empty(columns, hidden))


class ReuseQwen2:
    """The network, layer by layer on any rows, with what each layer left behind."""

    def __init__(self, network: DenseNetwork) -> None:
        self.network = network
        self.layers: int = network.config["num_hidden_layers"]

    def run(
        self,
        tokens: Sequence[int],
        rows: Sequence[int],
        visible: int,
        kept: Kept,
        unit: str,
        replayed: frozenset[int],
    ) -> tuple[Tensor, list[float]]:
        """Final hidden states of `rows`, and the mean movement of every layer's input."""
        rows = list(rows)
        if unit == "output" and replayed:
            return kept.final[rows], []
        x = self.network.weights["model.embed_tokens.weight"][[tokens[row] for row in rows]]
        moved = []
        for layer in range(self.layers):
            moved.append(_movement(x, kept.inputs[layer, rows]))
            again = layer in replayed
            if not again:
                kept.inputs[layer, rows] = x
            if again and unit == "wrapped":
                x = kept.outputs[layer, rows]
                continue
            if not (again and unit in ("residual", "attention")):
                kept.attention[layer, rows] = self._attention(layer, x, rows, visible, kept)
            after_attention = x + kept.attention[layer, rows]
            if not (again and unit in ("residual", "mlp")):
                kept.mlp[layer, rows] = self._mlp(layer, after_attention)
            x = after_attention + kept.mlp[layer, rows]
            kept.outputs[layer, rows] = x
        kept.final[rows] = x
        return x, moved

    def logits(self, hidden: Tensor) -> Tensor:
        net = self.network
        head = "model.embed_tokens" if net.config["tie_word_embeddings"] else "lm_head"
        return net._norm(hidden, "model.norm") @ net.weights[head + ".weight"].T

    def _mlp(self, layer: int, x: Tensor) -> Tensor:
        name = f"model.layers.{layer}."
        return self.network._mlp(name + "mlp.", self.network._norm(x, name + "post_attention_layernorm"))

    def _attention(self, layer: int, x: Tensor, rows: list[int], visible: int, kept: Kept) -> Tensor:
        net, name = self.network, f"model.layers.{layer}."
        heads, kv_heads = net.config["num_attention_heads"], net.config["num_key_value_heads"]
        x = net._norm(x, name + "input_layernorm")
        query = net._rotated(net._heads(name, "q", x, heads), rows)
        kept.keys[layer, rows] = net._rotated(net._heads(name, "k", x, kv_heads), rows)
        kept.values[layer, rows] = net._heads(name, "v", x, kv_heads)
        outputs = []
        for head in range(heads):
            shared = head * kv_heads // heads
            scores = query[:, head] @ kept.keys[layer, :visible, shared].T / math.sqrt(query.shape[-1])
            outputs.append(scores.softmax(dim=-1) @ kept.values[layer, :visible, shared])
        return torch.cat(outputs, dim=-1) @ net.weights[name + "self_attn.o_proj.weight"].T


def _movement(now: Tensor, then: Tensor) -> float:
    change = torch.linalg.vector_norm(now - then, dim=-1) / torch.linalg.vector_norm(then, dim=-1)
    return float(change.mean())


class ReuseBruteForce(BruteForce):
    """Decodes one prompt and leaves out what `decide` says."""

    def __init__(
        self, network: DenseNetwork, prompt: Sequence[int], settings: Settings, unit: str, decide: Decide
    ) -> None:
        super().__init__(network, prompt, settings)
        self.reuse = ReuseQwen2(network)
        self.unit = unit
        self.decide = decide
        self.states: list[State] = []
        self.moved: list[list[float]] = []
        """For each denoising step, the mean movement of every layer's input."""

    def _denoise(self, block: range) -> None:
        kept = Kept.blank(self.network, block.stop)
        nothing: frozenset[int] = frozenset()
        size = self.settings.block_size
        for start in range(0, block.start, size):
            self.reuse.run(self.tokens, range(start, start + size), start + size, kept, "", nothing)
        step = block_steps = 0
        stale: set[int] = set()
        width = self.settings.sub_block_size
        for first in range(block.start, block.stop, width):
            sub_block = range(first, first + width)
            self.rule_step = 0
            while (masked := self._masked(sub_block)) and not self.finished:
                read = [column - self.settings.shift for column in masked]
                small = self.settings.block_cache and self.rule_step > 0 and read[0] >= first
                kind = "sub" if small else "block"
                state = State(kind, step, block_steps, block, sub_block, masked, frozenset(stale))
                decision = self.decide(state)
                rows = list(decision.rows or (sub_block if small else block))
                hidden, moved = self.reuse.run(
                    self.tokens, rows, block.stop, kept, self.unit, decision.replayed
                )
                logits = self.reuse.logits(hidden[[rows.index(source) for source in read]])
                self._take(kind, masked, logits)
                self.states.append(state)
                self.moved.append(moved)
                if not decision.replayed or self.unit == "mlp":
                    stale -= set(rows)
                stale |= self.steps[-1].writes.keys()
                step, block_steps = step + 1, block_steps + (kind == "block")


@dataclass
class Tally:
    """How much two decodings were compared."""

    steps: int = 0
    whole: int = 0
    parted: list[str] = field(default_factory=list)


def compare(expected: list[Step], found: list[Step], tally: Tally) -> bool:
    """Whether two traces are equal; fails unless they part where the oracle's own margin is within rounding."""
    if expected == found:
        tally.steps += len(expected)
        tally.whole += 1
        return True
    place = first_difference(expected, found)
    assert place < len(expected), f"found goes on after step {place}: {found[place]}"
    margin = expected[place].margin
    told = f"step {place}: expected {expected[place]}, found {found[place] if place < len(found) else None}"
    assert margin.logits < LOGIT_ROUNDING or margin.confidence < CONFIDENCE_ROUNDING, told
    tally.steps += place
    tally.parted.append(told)
    return False
