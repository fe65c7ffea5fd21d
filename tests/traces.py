"""Decodings as traces (steps and what each wrote), and the comparison that tells an error from rounding.

Products of another shape may round differently. Two traces of the same request may therefore part at a
step where the two best logits, or a confidence and the threshold (or the runner-up), lie within rounding:
the oracle computes these margins in float64 from the state before that step. Any other difference fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from brute_force import BruteForce, DenseNetwork, Margin, Settings, Step
from unmask.engine.engine import Engine
from unmask.engine.events import Generation, StepEvent
from unmask.engine.prompt import Prompt
from unmask.spec import DecodeSpec
from unmask.spec.family import FAST_DLLM_V2, Family

LOGIT_ROUNDING = 1e-4
"""Each of two logits may be off by 2e-5, the most seen against float64; and as much again for room."""
CONFIDENCE_ROUNDING = 2e-5


@dataclass
class Trace:
    """All steps of one request and its answer."""

    steps: list[Step] = field(default_factory=list)
    generation: Generation | None = None

    @property
    def answer(self) -> Generation:
        """The answer of a finished request."""
        assert self.generation is not None
        return self.generation


def trace(engine: Engine, prompts: Sequence[Prompt], spec: DecodeSpec, batch_size: int = 16) -> list[Trace]:
    """Decode prompts and keep every step."""
    traces = [Trace() for _ in prompts]
    for event in engine.stream(prompts, spec, batch_size=batch_size):
        if isinstance(event, StepEvent):
            writes = dict(zip(event.positions, event.tokens, strict=True))
            traces[event.request].steps.append(Step(event.kind.value, writes))
        else:
            traces[event.request].generation = event.generation
    return traces


def settings_of(
    spec: DecodeSpec, block_size: int | None, family: Family = FAST_DLLM_V2, **changes: Any
) -> Settings:
    """The oracle's settings for a decode spec."""
    spec = spec.resolved(family, block_size)
    values = {
        "block_size": spec.block_size,
        "sub_block_size": spec.sub_block_size,
        "threshold": spec.threshold or 1.0,
        "rule": msgspec.to_builtins(spec.rule),
        "shift": family.shift,
        "block_cache": spec.cache == "dual",
        "max_new_tokens": spec.max_new_tokens,
        "stop_tokens": frozenset(spec.stop_tokens or ()),
    }
    return Settings(**(values | changes))


def same_but_for_rounding(
    oracle: DenseNetwork, prompt: Sequence[int], settings: Settings, expected: list[Step], found: list[Step]
) -> bool:
    """Whether two traces are equal; False where they part within rounding; fails where they really differ."""
    if expected == found:
        return True
    place = first_difference(expected, found)
    margin = margin_at(oracle, prompt, settings, expected, place)
    what = (
        f"step {place} differs: expected {_told(expected, place)}, found {_told(found, place)}; margins there: "
        f"logits {margin.logits:.2e}, confidence {margin.confidence:.2e}"
    )
    assert margin.logits < LOGIT_ROUNDING or margin.confidence < CONFIDENCE_ROUNDING, what
    print(f"within rounding, accepted: {what}")
    return False


def margin_at(
    oracle: DenseNetwork, prompt: Sequence[int], settings: Settings, steps: Sequence[Step], place: int
) -> Margin:
    """The oracle's margin of the step that follows the first `place` steps."""
    script = [step.writes for step in steps[:place]]
    judged = BruteForce(oracle, prompt, settings, script).run(limit=place + 1)
    return judged[place].margin if len(judged) > place else Margin()


def first_difference(expected: Sequence[object], found: Sequence[object]) -> int:
    """The first place where two sequences differ, the end of the shorter one included."""
    pairs = enumerate(zip(expected, found, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(expected), len(found)))


def _told(steps: list[Step], place: int) -> str:
    return f"{steps[place].kind} {steps[place].writes}" if place < len(steps) else "the end"
