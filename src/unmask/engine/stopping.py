"""Stop strings: an answer ends with the shortest run of tokens whose text holds one of them.

Only the end of a growing answer is decoded: a few tokens whose text is known to be the end of the whole text, and
long enough to hold the beginning of any stop string.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unmask.engine.sequence import SequenceState

MARGIN = 8
"""Characters decoded beyond the longest stop string: a tokenizer may clean up spaces at the edges."""
BROKEN = "\N{REPLACEMENT CHARACTER}"
"""Stands in a text for bytes that are no whole character; the next token may bring back what stood there."""


@dataclass(slots=True)
class Looked:
    """How far an answer has been looked at."""

    begin: int = 0
    """The first token that is decoded from now on."""
    end: int = 0
    """No stop string ends before this token."""


class StopStrings:
    """Finishes sequences whose text has reached a stop string."""

    def __init__(self, strings: Sequence[str], decode: Callable[[list[int]], str]) -> None:
        self.strings = strings
        self.decode = decode
        self._enough = max(map(len, strings)) + MARGIN
        self._looked: dict[SequenceState, Looked] = {}

    def __call__(self, sequence: SequenceState) -> None:
        """Cut the sequence where its text first holds a stop string, whenever that is noticed."""
        answer, looked = sequence.answer, self._looked.setdefault(sequence, Looked())
        text = self.decode(answer[looked.begin :])
        if self._in(text) and self._in(self.decode(answer)):
            lengths = range(looked.end + 1, len(answer) + 1)
            length = next(length for length in lengths if self._in(self.decode(answer[:length])))
            sequence.cut(length, "stop_string")
            return
        if BROKEN in text:
            return
        looked.end = len(answer)
        if looked.end - looked.begin > 2 * self._enough:
            looked.begin = self._later(answer, looked.begin, text)

    def text_before(self, text: str) -> str:
        """The text in front of the first stop string."""
        places = [place for place in map(text.find, self.strings) if place >= 0]
        return text[: min(places)] if places else text

    def _later(self, answer: list[int], begin: int, text: str) -> int:
        """A later token to decode from, if the text behind it is surely the end of the whole text."""
        count = self._enough
        while 2 * count < len(answer) - begin:
            end = self.decode(answer[-count:])
            if len(end) >= self._enough and text.endswith(end):
                return len(answer) - count
            count *= 2
        return begin

    def _in(self, text: str) -> bool:
        return any(string in text for string in self.strings)
