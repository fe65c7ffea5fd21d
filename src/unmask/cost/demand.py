"""What counted work asks of a machine, as quantities that add up: the work of a sweep is that of its forwards.

Knows shapes and counted work, neither how long anything takes nor recipes.
"""

from dataclasses import dataclass, fields

from unmask.cost.effect import Effect
from unmask.cost.shape import ModelShape
from unmask.cost.work import Ledger, Work

LOGIT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Demand:
    """What some forwards ask of a machine; requests that share a forward share what it needs once."""

    forwards: float = 0.0
    layer_calls: float = 0.0
    requests: float = 0.0
    """Requests of each forward, summed: every one has its own bookkeeping."""
    weight_bytes: float = 0.0
    key_bytes: float = 0.0
    """Keys and values that attention reads."""
    activation_bytes: float = 0.0
    """What norms, rotations, activations and the reading of logits pass through."""
    layer_flops: float = 0.0
    attention_flops: float = 0.0
    head_flops: float = 0.0

    def __add__(self, other: "Demand") -> "Demand":
        return Demand(*(getattr(self, name) + getattr(other, name) for name in QUANTITIES))

    def times(self, factor: float) -> "Demand":
        """The demand of `factor` times the work."""
        return Demand(*(getattr(self, name) * factor for name in QUANTITIES))


QUANTITIES = tuple(field.name for field in fields(Demand))


def demand_of(work: Work, shape: ModelShape, together: float = 1, element_bytes: int = 4) -> Demand:
    """One request's share in a forward that `together` requests take part in."""
    attention = [work.attention_rows(layer) for layer in range(shape.layers)]
    mlp = [work.mlp_rows(layer) for layer in range(shape.layers)]
    visible = work.pairs / work.rows
    return _demand(
        shape,
        element_bytes,
        forwards=1 / together,
        requests=1,
        layer_calls=sum(1 for rows in zip(attention, mlp, strict=True) if any(rows)) / together,
        attention_calls=sum(map(bool, attention)) / together,
        mlp_calls=sum(map(bool, mlp)) / together,
        attention_rows=sum(attention),
        mlp_rows=sum(mlp),
        keys=visible * sum(map(bool, attention)),
        pairs=visible * sum(attention),
        reads=work.reads,
    )


def demand_of_ledger(ledger: Ledger, shape: ModelShape, together: float, element_bytes: int = 4) -> Demand:
    """The work of one request that runs with others like it."""
    total = Demand()
    for work, count in ledger.entries.items():
        total += demand_of(work, shape, together, element_bytes).times(count)
    return total


def demand_of_effect(effect: Effect, shape: ModelShape, together: float, element_bytes: int = 4) -> Demand:
    """Work of which only sums are known: contexts are taken from the rows of prompts and of committed blocks."""
    requests, commits = max(1, effect.requests), effect.kinds["commit"]
    prompt, answer = effect.kinds["prefill"].rows / requests, commits.rows / requests
    block = commits.rows / max(1, commits.forwards)
    # The last block of an answer is denoised but never committed.
    denoising = prompt + answer / 2 + block
    contexts = {"prefill": (prompt + block) / 2, "commit": denoising - block / 2}
    keys = pairs = 0.0
    for kind, part in effect.kinds.items():
        visible = contexts.get(kind, denoising)
        full = part.branch_rows + part.branch_rows_skipped
        calls = part.forwards * effect.layers * part.branch_rows / full if full else 0.0
        keys, pairs = keys + calls * visible, pairs + part.branch_rows / 2 * visible
    layer_flops = effect.branch_rows * (shape.attention_weights + shape.mlp_weights)
    attention_flops = min(4 * pairs * shape.heads * shape.head_dim, max(0.0, effect.flops - layer_flops))
    calls = sum(effect.layer_calls) / together
    return _demand(
        shape,
        element_bytes,
        forwards=effect.forwards / together,
        requests=effect.forwards,
        layer_calls=calls,
        attention_calls=calls,
        mlp_calls=calls,
        attention_rows=effect.branch_rows / 2,
        mlp_rows=effect.branch_rows / 2,
        keys=keys,
        pairs=attention_flops / (4 * shape.heads * shape.head_dim),
        reads=max(0.0, effect.flops - layer_flops - attention_flops) / (2 * shape.head_weights),
    )


def _demand(
    shape: ModelShape,
    element_bytes: int,
    *,
    forwards: float,
    requests: float,
    layer_calls: float,
    attention_calls: float,
    mlp_calls: float,
    attention_rows: float,
    mlp_rows: float,
    keys: float,
    pairs: float,
    reads: float,
) -> Demand:
    """Quantities of counts that are summed over layers."""
    layer_weights = attention_calls * shape.attention_weights + mlp_calls * shape.mlp_weights
    mixed = (shape.heads + shape.kv_heads) * shape.head_dim
    passed = attention_rows * (4 * shape.hidden + 4 * mixed) + mlp_rows * (4 * shape.hidden + 4 * shape.ffn)
    return Demand(
        forwards=forwards,
        layer_calls=layer_calls,
        requests=requests,
        weight_bytes=element_bytes * (layer_weights + (forwards * shape.head_weights if reads else 0)),
        key_bytes=element_bytes * keys * shape.kv_width,
        activation_bytes=element_bytes * passed + LOGIT_BYTES * reads * shape.vocabulary,
        layer_flops=2 * (attention_rows * shape.attention_weights + mlp_rows * shape.mlp_weights),
        attention_flops=4 * pairs * shape.heads * shape.head_dim,
        head_flops=2 * reads * shape.head_weights,
    )
