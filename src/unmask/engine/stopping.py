"""Stop strings: an answer ends with the shortest run of tokens whose text holds one of them."""

from collections.abc import Callable, Sequence

from unmask.engine.sequence import SequenceState


class StopStrings:
    """Finishes sequences whose text has reached a stop string."""

    def __init__(self, strings: Sequence[str], decode: Callable[[list[int]], str]) -> None:
        self.strings = strings
        self.decode = decode

    def __call__(self, sequence: SequenceState) -> None:
        """Cut the sequence where its text first holds a stop string, whenever that is noticed."""
        answer = sequence.answer
        if not self._held(answer):
            return
        length = next(length for length in range(1, len(answer) + 1) if self._held(answer[:length]))
        sequence.cut(length, "stop_string")

    def text_before(self, text: str) -> str:
        """The text in front of the first stop string."""
        places = [place for place in map(text.find, self.strings) if place >= 0]
        return text[: min(places)] if places else text

    def _held(self, ids: list[int]) -> bool:
        text = self.decode(ids)
        return any(string in text for string in self.strings)
