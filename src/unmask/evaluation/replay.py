"""One decoding told step by step, as plain data: what was fed, computed, replayed and unmasked.

Knows the engine's events and the rules of blocks. It does not know runs, files or how a replay is shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from unmask.engine.engine import Engine
from unmask.engine.events import Finished, StepEvent
from unmask.engine.prompt import Request
from unmask.engine.step_plan import Kind, Op
from unmask.spec import DecodeSpec, build

LETTERS = {Op.COMPUTE: "c", Op.REFRESH: "f", Op.REPLAY: "p"}
"""One letter for each operation of a layer."""
DIGITS = 4
"""Decimals of a confidence."""


def replay(
    engine: Engine, prompt: Sequence[int], decode: DecodeSpec | Mapping[str, Any], policy: Any = None
) -> dict[str, Any]:
    """Decode one prompt and tell every step; columns count from the prompt's start."""
    spec = decode if isinstance(decode, DecodeSpec) else build(DecodeSpec, decode, "Decode settings")
    block = spec.resolved_block_size(engine.config.block_size)
    told = _Told(len(prompt), block, spec.sub_block_size)
    events: list[StepEvent] = []
    text, ids, reason = None, list[int](), ""
    for event in engine.stream([Request(list(prompt))], spec, policy, batch_size=1):
        if isinstance(event, Finished):
            text, ids = event.generation.text, event.generation.ids
            reason = event.generation.finish_reason
        else:
            events.append(event)
    letters = _texts(engine, ids)
    return {
        "prompt_tokens": len(prompt),
        "block_size": block,
        "sub_block_size": spec.sub_block_size,
        "layers": engine.config.num_layers,
        "threshold": spec.threshold,
        "tokens": len(ids),
        "finish": reason,
        "text": text,
        "steps": [told.step(event, letters, engine) for event in events],
    }


class _Told:
    """Follows which columns are known, because an event does not say which were fed."""

    def __init__(self, prompt: int, block: int, sub_block: int) -> None:
        self.prompt = prompt
        self.block = block
        self.sub_block = sub_block
        self.known: set[int] = set()

    def step(self, event: StepEvent, letters: Mapping[int, str], engine: Engine) -> dict[str, Any]:
        """One event as data, small where nothing special happened."""
        found: dict[str, Any] = {"kind": event.kind.value, "fed": self._fed(event.kind)}
        plan = event.plan
        if plan.ops:
            # Putting back the output of some layers spares all of them.
            spared = [Op.REPLAY] * len(plan.ops) if plan.replays_everything else plan.ops
            found["ops"] = run_lengths("".join(LETTERS[op] for op in spared))
            found["unit"] = plan.unit.value
        if plan.rows is not None:
            start = found["fed"][0] // self.block * self.block
            found["rows"] = [start + position for position in plan.rows.always]
            if plan.rows.count:
                found["among"] = [start + position for position in plan.rows.among]
                found["count"] = plan.rows.count
                found["probe"] = plan.rows.probe_layer
        found["written"] = [
            [
                column,
                letters[place] if (place := column - self.prompt) in letters else _single(engine, token),
                round(confidence, DIGITS),
            ]
            for column, token, confidence in zip(
                event.positions, event.tokens, event.confidences, strict=True
            )
        ]
        self.known.update(event.positions)
        return found

    def _fed(self, kind: Kind) -> list[int]:
        frontier = self.prompt
        while frontier in self.known:
            frontier += 1
        start = frontier // self.block * self.block
        if kind is Kind.PREFILL:
            return [0, self.prompt // self.block * self.block]
        if kind is Kind.COMMIT:
            # The block is full, so the first unknown column lies behind it.
            return [start - self.block, start]
        if kind is Kind.SUB:
            first = start + (frontier - start) // self.sub_block * self.sub_block
            return [first, first + self.sub_block]
        return [start, start + self.block]


def run_lengths(letters: str) -> str:
    """Equal letters counted: cccpp is c3p2."""
    return "".join(f"{letter}{len(list(same))}" for letter, same in groupby(letters))


def _texts(engine: Engine, ids: Sequence[int]) -> dict[int, str]:
    """The part of the answer that each token adds; a letter of several tokens stands at its last one."""
    if not engine.has_tokenizer:
        return {}
    pieces = enumerate(_pieces(engine, ids))
    # A token that has no text even by itself, such as the one that ends the answer, is shown by its name.
    return {place: piece for place, piece in pieces if piece or engine.decode_text([ids[place]])}


def _pieces(engine: Engine, ids: Sequence[int]) -> Iterator[str]:
    before = ""
    for end in range(1, len(ids) + 1):
        now = engine.decode_text(list(ids[:end]))
        whole = not now.endswith("\N{REPLACEMENT CHARACTER}") or end == len(ids)
        yield now[len(before) :] if whole else ""
        before = now if whole else before


def _single(engine: Engine, token: int) -> str:
    """A token by itself: beyond the answer's end, or one without text."""
    if token in engine.config.stop_tokens:
        return "⟨end⟩"
    text = engine.decode_text([token]) if engine.has_tokenizer else ""
    return text or f"⟨{token}⟩"
