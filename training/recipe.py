"""What is trained in which order: the recipe of the embedded model, and a tiny one for trying the machinery."""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

from training.batches import BatchConfig
from training.curriculum.rows import Mixture
from training.mask_states import NoiseConfig
from training.network import NetworkConfig
from training.optimizers import OptimizerConfig


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A stretch of training with one mix of data, one depth and one schedule of the learning rate."""

    name: str
    steps: int
    layers: int
    batches: BatchConfig
    warmup: int = 50
    start_scale: float = 1.0
    end_scale: float = 1.0

    def rate_scale(self, step: int) -> float:
        """Warm-up, then a straight line from the start scale to the end scale."""
        line = self.start_scale + (self.end_scale - self.start_scale) * step / max(1, self.steps)
        return line * min(1.0, (step + 1) / self.warmup)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A whole training."""

    network: NetworkConfig
    stages: tuple[Stage, ...]
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    seed: int = 1

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(stage.steps for stage in self.stages)

    def locate(self, step: int) -> tuple[int, int]:
        """The stage that a step belongs to, and its number within that stage."""
        for index, stage in enumerate(self.stages):
            if step < stage.steps:
                return index, step
            step -= stage.steps
        return len(self.stages) - 1, self.stages[-1].steps


def embedded(vocabulary: int) -> Recipe:
    """The recipe of the model that ships with the package.

    It is the record of one run, so it has more stages than a second training would need. Causal training at six
    layers, block diffusion at twelve, and a few steps at twenty-four, which start as copies that share the work.
    The rate falls in steps because Muon's updates never shrink by themselves: at small batches they are mostly noise.
    """
    drills = functools.partial(BatchConfig, columns=3072, causal_share=0.25, causal_drills=True)
    aligned = functools.partial(
        BatchConfig,
        columns=3072,
        causal_share=0.2,
        causal_drills=True,
        noise=NoiseConfig(aligned=0.9, later_weight=0.05),
    )
    finding = aligned(mixture=_mixture(0.42, 0.18, 0.10, 0.02, 0.12, 0.16))
    last = aligned(mixture=_mixture(0.52, 0.26, 0.0, 0.03, 0.12, 0.07))
    finishing = aligned(mixture=_mixture(0.66, 0.14, 0.0, 0.02, 0.14, 0.04))
    return Recipe(
        network=NetworkConfig(vocabulary=vocabulary, layers=6),
        stages=(
            _stage("drilling", 1000, 6, _causal(_mixture(0.27, 0.10, 0.07, 0.03, 0.38, 0.15)), 1.0, 0.8),
            _stage("reading", 500, 6, _causal(_mixture(0.30, 0.22, 0.15, 0.05, 0.13, 0.15)), 0.25, 0.25),
            _stage("joint", 300, 12, _joint(_mixture(0.42, 0.18, 0.12, 0.05, 0.09, 0.14)), 0.25, 0.235),
            _stage("choosing", 250, 12, _joint(_mixture(0.34, 0.27, 0.13, 0.04, 0.08, 0.14)), 0.235, 0.22, 5),
            _stage(
                "settling",
                250,
                12,
                drills(mixture=_mixture(0.36, 0.22, 0.10, 0.04, 0.18, 0.10)),
                0.22,
                0.187,
                5,
            ),
            _stage(
                "asking",
                200,
                12,
                drills(mixture=_mixture(0.36, 0.15, 0.10, 0.04, 0.18, 0.17)),
                0.187,
                0.159,
                5,
            ),
            _stage(
                "cooling",
                250,
                12,
                drills(mixture=_mixture(0.34, 0.14, 0.09, 0.04, 0.15, 0.24)),
                0.159,
                0.124,
                5,
            ),
            _stage(
                "aligning",
                150,
                12,
                aligned(mixture=_mixture(0.46, 0.12, 0.09, 0.03, 0.14, 0.16)),
                0.124,
                0.104,
                5,
            ),
            _stage("finding", 350, 12, finding, 0.104, 0.053, 5),
            _stage("looking up", 200, 12, last, 0.08, 0.04, 5),
            _stage("polishing", 110, 12, last, 0.04, 0.006, 1),
            _stage("finishing", 130, 12, finishing, 0.03, 0.004, 5),
            _stage("deep", 15, 24, finishing, 0.005, 0.0, 3),
        ),
    )


def _mixture(
    arith: float,
    choice: float,
    choice_text: float,
    instruction: float,
    equation_drill: float,
    option_drill: float,
) -> Mixture:
    return Mixture(
        arith=arith,
        choice=choice,
        choice_text=choice_text,
        instruction=instruction,
        equation_drill=equation_drill,
        option_drill=option_drill,
    )


def _stage(
    name: str, steps: int, layers: int, batches: BatchConfig, start: float, end: float, warmup: int = 50
) -> Stage:
    return Stage(
        name=name,
        steps=steps,
        layers=layers,
        batches=batches,
        warmup=warmup,
        start_scale=start,
        end_scale=end,
    )


def _causal(mixture: Mixture) -> BatchConfig:
    return BatchConfig(columns=2560, causal_share=1.0, mixture=mixture)


def _joint(mixture: Mixture) -> BatchConfig:
    return BatchConfig(columns=3072, causal_share=0.3, mixture=mixture)


def tiny(vocabulary: int) -> Recipe:
    """Seconds long: shows that the machinery works, learns next to nothing."""
    mixture = Mixture(ranges=((20, 1.0),))
    noise = NoiseConfig()
    causal = BatchConfig(columns=256, causal_share=1.0, mixture=mixture, noise=noise)
    joint = BatchConfig(columns=512, causal_share=0.25, mixture=mixture, noise=noise)
    return Recipe(
        network=NetworkConfig(
            vocabulary=vocabulary, layers=2, hidden=32, heads=2, kv_heads=1, feed_forward=48
        ),
        stages=(
            Stage(name="causal", steps=4, layers=2, batches=causal, warmup=2),
            Stage(name="joint", steps=4, layers=2, batches=joint, warmup=2),
            Stage(name="deep", steps=4, layers=4, batches=joint, warmup=2, end_scale=0.1),
        ),
    )


RECIPES: Final = {"embedded": embedded, "tiny": tiny}
