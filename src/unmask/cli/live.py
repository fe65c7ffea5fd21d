"""Runs a decoding for a verb and shows it as it happens: a bar for many answers, the unmasking of a single one.

Knows events and a terminal: a block's positions turn from glyphs into text, newly known ones stand out. What is
drawn is outside the clock. It does not know how the positions were chosen.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from unmask.cli.prompts import NumberedRequest
from unmask.cli.screen import Screen
from unmask.reading import printable
from unmask.spec import AnyPolicySpec, DecodeSpec

if TYPE_CHECKING:
    from unmask.engine.engine import Engine
    from unmask.engine.events import Finished, Generation, StepEvent

    Event: TypeAlias = StepEvent | Finished

MASK_GLYPH = "░"
FRAME_SECONDS = 1 / 20
FOOTER_LINES = 2


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

    requests: Sequence[NumberedRequest]
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
        return steps_of(self.generations)


def decode(
    engine: "Engine",
    requests: Sequence[NumberedRequest],
    spec: DecodeSpec,
    policy: AnyPolicySpec | None,
    batch_size: int,
    view: View,
) -> Decoded:
    """Answer all requests; the clock stops while the view draws."""
    from unmask.engine.events import collect

    stream = engine.stream([numbered.request for numbered in requests], spec, policy, batch_size)
    shown = Timed(stream, view)
    return Decoded(requests, collect(shown), shown.seconds)


@dataclass(slots=True)
class Timed:
    """The events of a stream, each shown before it is passed on, and the time that the stream took."""

    events: "Iterator[Event]"
    view: View
    seconds: float = 0.0

    def __iter__(self) -> "Iterator[Event]":
        from unmask.engine.events import Finished

        while True:
            start = time.perf_counter()
            event = next(self.events, None)
            self.seconds += time.perf_counter() - start
            if event is None:
                return
            if isinstance(event, Finished):
                self.view.finished(event)
            else:
                self.view.step(event)
            yield event


class Silent:
    """Shows nothing."""

    def step(self, event: "StepEvent") -> None:
        """Nothing to show."""

    def finished(self, event: "Finished") -> None:
        """Nothing to show."""


class AnswerBar(AbstractContextManager["AnswerBar"]):
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
            console=Screen(stderr=True),
            transient=True,
        )
        self.task = self.progress.add_task("", total=sum(budgets), answers="", tokens=0, speed=0.0)

    def __enter__(self) -> "AnswerBar":
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


class LiveView(AbstractContextManager["LiveView"]):
    """The answer to one prompt while it is decoded."""

    def __init__(
        self, console: Console, decode: Callable[[list[int]], str], prompt: int, block: int, budget: int
    ) -> None:
        self.console = console
        self.decode = decode
        self.first, self.end = prompt, prompt + budget
        self.block = block
        self.known: dict[int, int] = {}
        self.fresh: set[int] = set()
        """Positions that became known since the last frame."""
        self.footer = "reading the prompt"
        self._drawn = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> "LiveView":
        self._live.start()
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def step(self, event: "StepEvent") -> None:
        """Take in a step, and draw if the last frame is old enough."""
        self.known.update(zip(event.positions, event.tokens, strict=True))
        self.fresh.update(event.positions)
        forwards = event.step + 1
        self.footer = (
            f"step {forwards} ({event.kind.value}) | {len(self.known)} tokens | "
            f"{len(self.known) / forwards:.2f} tokens per forward"
        )
        if time.perf_counter() - self._drawn >= FRAME_SECONDS:
            self._draw()

    def finished(self, event: "Finished") -> None:  # noqa: ARG002 (the protocol's signature)
        """Draw what the last steps brought."""
        self._draw()

    def text(self) -> Text:
        """Everything up to the end of the current block."""
        known_until = self.first
        while known_until in self.known:
            known_until += 1
        shown = Text()
        settled = min((position for position in self.fresh if position < known_until), default=known_until)
        before = self._decoded(range(self.first, settled))
        shown.append(before)
        shown.append(self._decoded(range(self.first, known_until)).removeprefix(before), style="bold green")
        stop = min((known_until // self.block + 1) * self.block, self.end)
        for style, positions in groupby(range(known_until, stop), key=self._style):
            shown.append(self._part(list(positions)), style=style)
        return shown

    def settled(self) -> str:
        """The text up to the first position that is not known."""
        known_until = self.first
        while known_until in self.known:
            known_until += 1
        return self._decoded(range(self.first, known_until))

    def _style(self, position: int) -> str:
        if position not in self.known:
            return "dim"
        return "bold green" if position in self.fresh else "cyan"

    def _part(self, positions: list[int]) -> str:
        if positions[0] not in self.known:
            return MASK_GLYPH * len(positions)
        return self._decoded(positions)

    def _decoded(self, positions: range | list[int]) -> str:
        return printable(self.decode([self.known[position] for position in positions]))

    def _draw(self) -> None:
        """Show the end of the text where all of it does not fit."""
        lines = self.text().wrap(self.console, self.console.width)
        room = max(self.console.height - FOOTER_LINES, 1)
        body = Text("\n").join(lines[-room:])
        self._live.update(Group(body, Text(self.footer, style="dim")), refresh=True)
        self.fresh.clear()
        self._drawn = time.perf_counter()


def as_text(engine: "Engine") -> Callable[[list[int]], str]:
    """How tokens are shown: as text, or as numbers where there is no tokenizer."""
    if engine.has_tokenizer:
        return engine.decode_text
    return lambda ids: "".join(f"{token} " for token in ids)


def summary(generations: Sequence["Generation"], seconds: float) -> str:
    """One line: tokens, speed, forwards by kind, how the answers ended."""
    steps = steps_of(generations)
    kinds = ", ".join(f"{count} {kind}" for kind, count in steps.items() if count)
    reasons = [generation.finish_reason for generation in generations]
    ends = ", ".join(
        reason if len(reasons) == 1 else f"{reasons.count(reason)} {reason}"
        for reason in dict.fromkeys(reasons)
    )
    tokens = sum(len(generation.ids) for generation in generations)
    return (
        f"{tokens} tokens in {seconds:.2f} s ({tokens / seconds if seconds else 0.0:.1f} tokens/s), "
        f"{sum(steps.values())} forwards ({kinds}), finished by {ends}"
    )


def steps_of(generations: Sequence["Generation"]) -> dict[str, int]:
    """Steps by kind, summed over answers."""
    total: dict[str, int] = {}
    for generation in generations:
        for kind, count in generation.ledger.steps().items():
            total[kind] = total.get(kind, 0) + count
    return total
