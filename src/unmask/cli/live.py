"""Unmasking as it happens: a block's positions turn from glyphs into text, newly known ones stand out.

Knows columns, tokens and a terminal. It does not know how the positions were chosen.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from unmask.engine.events import Finished, StepEvent

MASK_GLYPH = "░"
FRAME_SECONDS = 1 / 20
FOOTER_LINES = 2


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
        """Columns that became known since the last frame."""
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
        frontier = self.first
        while frontier in self.known:
            frontier += 1
        shown = Text()
        settled = min((column for column in self.fresh if column < frontier), default=frontier)
        before = self._decoded(range(self.first, settled))
        shown.append(before)
        shown.append(self._decoded(range(self.first, frontier)).removeprefix(before), style="bold green")
        stop = min((frontier // self.block + 1) * self.block, self.end)
        for style, columns in groupby(range(frontier, stop), key=self._style):
            shown.append(self._part(list(columns)), style=style)
        return shown

    def _style(self, column: int) -> str:
        if column not in self.known:
            return "dim"
        return "bold green" if column in self.fresh else "cyan"

    def _part(self, columns: list[int]) -> str:
        if columns[0] not in self.known:
            return MASK_GLYPH * len(columns)
        return self._decoded(columns)

    def _decoded(self, columns: range | list[int]) -> str:
        return printable(self.decode([self.known[column] for column in columns]))

    def _draw(self) -> None:
        """Show the end of the text where all of it does not fit."""
        lines = self.text().wrap(self.console, self.console.width)
        room = max(self.console.height - FOOTER_LINES, 1)
        body = Text("\n").join(lines[-room:])
        self._live.update(Group(body, Text(self.footer, style="dim")), refresh=True)
        self.fresh.clear()
        self._drawn = time.perf_counter()


def printable(text: str) -> str:
    """The text without characters that would steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
