"""Runs a decoding for a verb: measures it without what is drawn meanwhile, and lets a view watch it."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from unmask.cli.prompts import Item
from unmask.spec import AnyPolicySpec, DecodeSpec

if TYPE_CHECKING:
    from unmask.engine.engine import Engine
    from unmask.engine.events import Finished, Generation, StepEvent

    Event: TypeAlias = StepEvent | Finished


class View(Protocol):
    """Something that shows a decoding while it runs."""

    def step(self, event: "StepEvent") -> None:
        """Show a step."""
        ...

    def finished(self, event: "Finished") -> None:
        """Show that an answer is whole."""
        ...


@dataclass(frozen=True, slots=True)
class Decoded:
    """Answers in the order of their prompts."""

    items: Sequence[Item]
    generations: Sequence["Generation"]
    seconds: float
    """Time of the decoding alone: no loading, no encoding, no drawing."""

    @property
    def tokens(self) -> int:
        """New tokens of all answers."""
        return sum(len(generation.ids) for generation in self.generations)

    @property
    def tokens_per_second(self) -> float:
        """Speed of the decoding alone."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def steps(self) -> dict[str, int]:
        """Steps by kind, summed over the answers."""
        total: dict[str, int] = {}
        for generation in self.generations:
            for kind, count in generation.ledger.steps().items():
                total[kind] = total.get(kind, 0) + count
        return total


def decode(
    engine: "Engine",
    items: Sequence[Item],
    spec: DecodeSpec,
    policy: AnyPolicySpec | None,
    batch_size: int,
    view: View,
) -> Decoded:
    """Answer all items; the clock stops while the view draws."""
    from unmask.engine.events import Finished

    answers: dict[int, Generation] = {}
    events = engine.stream([item.request for item in items], spec, policy, batch_size)
    seconds = 0.0
    while True:
        start = time.perf_counter()
        event = next(events, None)
        seconds += time.perf_counter() - start
        if event is None:
            break
        if isinstance(event, Finished):
            answers[event.request] = event.generation
            view.finished(event)
        else:
            view.step(event)
    return Decoded(items, [answers[index] for index in range(len(items))], seconds)


class Silent:
    """Shows nothing."""

    def step(self, event: "StepEvent") -> None:
        """Nothing to show."""

    def finished(self, event: "Finished") -> None:
        """Nothing to show."""


class Bar(AbstractContextManager["Bar"]):
    """Answers done, tokens, tokens per second and time left, on standard error."""

    def __init__(self, budgets: Sequence[int]) -> None:
        self.budgets = budgets
        """Most tokens of each answer: what progress is measured in, as an answer may end early."""
        self.tokens = [0] * len(budgets)
        self.whole: set[int] = set()
        self.start = time.perf_counter()
        self.progress = Progress(
            TextColumn("{task.fields[answers]} answers"),
            BarColumn(),
            TextColumn("{task.fields[tokens]} tokens, {task.fields[speed]:.1f} tokens/s,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.progress.add_task("", total=sum(budgets), answers="", tokens=0, speed=0.0)

    def __enter__(self) -> "Bar":
        self.progress.start()
        self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def step(self, event: "StepEvent") -> None:
        """Count the positions made known, within the answer's budget."""
        index = event.request
        self.tokens[index] = min(self.tokens[index] + len(event.positions), self.budgets[index])
        self._show()

    def finished(self, event: "Finished") -> None:
        """Count an answer, with the tokens that it has in the end."""
        self.whole.add(event.request)
        self.tokens[event.request] = len(event.generation.ids)
        self._show()

    def _show(self) -> None:
        seconds = time.perf_counter() - self.start
        tokens = sum(self.tokens)
        saved = sum(self.budgets[index] - self.tokens[index] for index in self.whole)
        self.progress.update(
            self.task,
            completed=tokens + saved,
            answers=f"{len(self.whole)}/{len(self.budgets)}",
            tokens=tokens,
            speed=tokens / seconds if seconds else 0.0,
        )
