"""Engines, prompts and example specs for tests of reuse policies, and runs kept step by step."""

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from checkpoints import MASK, Model, small_model
from unmask.engine.engine import Engine
from unmask.engine.events import Generation, StepEvent
from unmask.engine.policy import StepView
from unmask.engine.prompt import Prompt
from unmask.engine.step_plan import FULL, Kind, Op, StepPlan, Unit
from unmask.policies.registry import make_policy
from unmask.spec import (
    AdaptiveSpec,
    CombineSpec,
    CustomSpec,
    FullSpec,
    LayerReuseSpec,
    PolicySpec,
    TrimSpec,
)

LAYERS = 6
BLOCK = 16
SUB_BLOCK = 4
DECODE = {
    "max_new_tokens": 28,
    "block_size": BLOCK,
    "sub_block_size": SUB_BLOCK,
    "threshold": 0.6,
    "stop_tokens": (),
}
UNITS = ("output", "residual", "attention", "mlp")
SUBSETS = ("first", "middle", "last")
Policy = Any


class EveryOtherStep:
    """A policy of a test's own: replays the MLP of all layers but the first at odd steps."""

    def __init__(self, acts: bool = True) -> None:
        self.acts = acts

    def plan(self, view: StepView) -> StepPlan:
        if not self.acts:
            return FULL
        op = Op.REPLAY if view.step % 2 else Op.REFRESH
        return StepPlan((Op.COMPUTE, *[op] * (view.layers - 1)), Unit.MLP)


@dataclass(frozen=True)
class Examples:
    """Specs of one kind: some that act on a random model, some that cannot."""

    acting: tuple[dict[str, Any], ...] = ()
    dead: tuple[dict[str, Any], ...] = ()


def reuse(**fields: Any) -> dict[str, Any]:
    return {"kind": "layer_reuse"} | fields


def trim(**fields: Any) -> dict[str, Any]:
    return {"kind": "trim"} | fields


def adaptive(**fields: Any) -> dict[str, Any]:
    return {"kind": "adaptive"} | fields


def combine(rows: dict[str, Any], layers: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "combine", "rows": rows, "layers": layers}


BOTH = ["sub", "block"]
EXAMPLES: dict[type[PolicySpec], Examples] = {
    FullSpec: Examples(dead=({"kind": "full"},)),
    LayerReuseSpec: Examples(
        acting=(
            *(reuse(unit=unit, k=2) for unit in UNITS),
            *(reuse(unit=unit, k=3, layers="last", on=BOTH) for unit in UNITS),
            reuse(unit="residual", k=3, layers=[0, "2-3", 5], on=["block"]),
            reuse(unit="residual", k=4, layers="first", size=5, on=BOTH, warmup=3),
        ),
        dead=(reuse(k=1), reuse(k=2, warmup=1000)),
    ),
    TrimSpec: Examples(
        acting=(trim(), trim(keep=0.4, probe_layer=1), trim(keep=0.2, every=3), trim(inside=True)),
        dead=(trim(keep=1), trim(every=1)),
    ),
    AdaptiveSpec: Examples(
        acting=(
            adaptive(max_drift=10),
            adaptive(unit="attention", max_drift=0.4, budget=1, cap=1),
            adaptive(unit="mlp", max_drift=10, on=["sub"]),
        ),
        dead=(adaptive(budget=0), adaptive(cap=0, max_drift=10)),
    ),
    CombineSpec: Examples(
        acting=(
            combine(trim(), reuse(on=BOTH)),
            combine(trim(), reuse(unit="output", on=BOTH)),
            combine(trim(keep=0.4), reuse(k=3, layers="last", unit="attention", on=BOTH)),
            combine(trim(), adaptive(max_drift=10)),
        )
    ),
    CustomSpec: Examples(
        acting=({"kind": "custom", "target": "policy_cases:EveryOtherStep"},),
        dead=({"kind": "custom", "target": "policy_cases:EveryOtherStep", "options": {"acts": False}},),
    ),
}


def model(seed: int = 0, layers: int = LAYERS) -> Model:
    return small_model(seed=seed, num_hidden_layers=layers)


@lru_cache
def engine(seed: int = 0, layers: int = LAYERS) -> Engine:
    """A small random model behind an engine that knows every policy."""
    return Engine(model(seed, layers).engine.transformer, MASK, make_policy=make_policy)


def prompt(length: int, seed: int = 0) -> list[int]:
    draw = random.Random(f"{length} {seed}")
    return [draw.randrange(MASK) for _ in range(length)]


PROMPTS = [prompt(length) for length in (3, 40, 32, 17, 21)]


class Recorder:
    """Passes a policy's plans on and keeps what it was asked and answered."""

    def __init__(self, policy: Policy, layers: int = LAYERS) -> None:
        self.policy = make_policy(policy, layers)
        self.views: list[StepView] = []
        self.plans: list[StepPlan] = []

    def plan(self, view: StepView) -> StepPlan:
        self.views.append(view)
        self.plans.append(self.policy.plan(view))
        return self.plans[-1]


@dataclass
class Run:
    """All steps of one request and its answer."""

    events: list[StepEvent] = field(default_factory=list)
    answer: Generation | None = None

    @property
    def generation(self) -> Generation:
        assert self.answer is not None
        return self.answer

    def denoising(self) -> list[tuple[int, StepEvent]]:
        """Denoising steps, each with its number within its block."""
        numbered, step = [], 0
        for event in self.events:
            if event.kind in (Kind.BLOCK, Kind.SUB):
                numbered.append((step, event))
                step += 1
            else:
                step = 0
        return numbered


def run(
    prompts: list[Prompt],
    policy: Policy = None,
    batch_size: int = 1,
    on: Engine | None = None,
    rule: Any = None,
    **decode: Any,
) -> list[Run]:
    """Decode and keep every step of every request."""
    runs = [Run() for _ in prompts]
    for event in (on or engine()).stream(prompts, DECODE | decode, policy, batch_size, rule):
        if isinstance(event, StepEvent):
            runs[event.request].events.append(event)
        else:
            runs[event.request].answer = event.generation
    return runs


def one(prompt: Prompt, policy: Policy = None, **rest: Any) -> Run:
    """Decode one prompt."""
    return run([prompt], policy, **rest)[0]
