"""What a decoding tells while it runs, what it leaves behind, and how the one is made of the other."""

from collections.abc import Iterable
from dataclasses import dataclass

from unmask.cost import Ledger, Sharing, Work
from unmask.engine.step_plan import Kind, StepPlan


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One forward of one request and the positions it made known (they count from the prompt's start)."""

    request: int
    """Number of the request among those given."""
    kind: Kind
    """The kind of forward."""
    plan: StepPlan
    """What the forward did in each layer."""
    step: int
    """Forwards that this request has seen before."""
    positions: tuple[int, ...]
    """Positions that became known."""
    tokens: tuple[int, ...]
    """Their tokens."""
    confidences: tuple[float, ...]
    """The confidences of these tokens."""
    fed: range = range(0)
    """The positions that such a forward feeds where the plan leaves none out."""
    block: int = 0
    """Where the block begins: the offsets of a plan count from there."""
    work: Work | None = None
    """What the forward cost, as the ledger has it; with guidance the ledger has it twice."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The former name of `positions`, kept for one version."""
        return self.positions


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
    """The work it takes alone; it does not depend on other requests."""
    batch_size: int
    """Requests that were allowed to decode together; smaller than asked for when memory ran out."""
    sharing: Sharing
    """What other requests of the batch spared it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A request has its whole answer."""

    request: int
    """Number of the request among those given."""
    generation: Generation
    """Its answer."""


def collect(events: Iterable[StepEvent | Finished]) -> list[Generation]:
    """The answers of a stream, in the order of the requests."""
    answers = {event.request: event.generation for event in events if isinstance(event, Finished)}
    return [answers[request] for request in sorted(answers)]
