"""What a decoding tells while it runs, and what it leaves behind."""

from dataclasses import dataclass

from unmask.cost import Ledger
from unmask.engine.step_plan import Kind, StepPlan


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One forward of one request and the positions it made known (columns count from the prompt's start)."""

    request: int
    kind: Kind
    plan: StepPlan
    step: int
    """Forwards that this request has seen before."""
    columns: tuple[int, ...]
    tokens: tuple[int, ...]
    confidences: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one request."""

    ids: list[int]
    """New tokens, a stop token included."""
    text: str | None
    """The decoded answer without stop token and stop string; None for a checkpoint without tokenizer."""
    finish_reason: str
    """`stop` (a stop token), `stop_string`, `length` (max_new_tokens) or `context` (the model's positions end)."""
    ledger: Ledger
    """The work it took."""
    batch_size: int
    """Rows that were allowed to decode together; smaller than asked for when memory ran out."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A request has its whole answer."""

    request: int
    generation: Generation
