"""What is trained in which order: the recipes of the embedded models, and tiny ones for trying the machinery."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from training.batches import BatchConfig
from training.canvas import CanvasConfig
from training.curriculum.rows import Mixture
from training.manner import BLOCKS, CANVAS, Manner
from training.mask_states import NoiseConfig
from training.network import NetworkConfig
from training.optimizers import OptimizerConfig


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A stretch of training with one mix of data and one schedule of the learning rate."""

    name: str
    steps: int
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
    manner: Manner = BLOCKS
    start: Path | None = None
    """A file of weights to begin with; without one they are drawn."""
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


START: Final = Path(__file__).parent / "start.safetensors"
"""The model that shipped before, its 24 layers merged in pairs to 12. It answered in one fixed wording."""
EMBEDDED: Final = Path(__file__).parents[1] / "src" / "unmask" / "assets" / "embedded" / "model.safetensors"
"""The first embedded model."""


def embedded(vocabulary: int) -> Recipe:
    """The recipe of the model that ships with the package: twelve layers learn to answer in open wording.

    The rate falls in a straight line because Muon's updates never shrink by themselves: at small batches they are
    mostly noise.
    """
    mixture = Mixture(
        arith=0.58, choice=0.09, choice_text=0.04, instruction=0.12, equation_drill=0.11, option_drill=0.06
    )
    batches = BatchConfig(
        columns=3072,
        causal_share=0.1,
        causal_drills=True,
        mixture=mixture,
        noise=NoiseConfig(aligned=0.9, later_weight=0.05),
    )
    stage = Stage(name="rewording", steps=750, batches=batches, warmup=20, start_scale=0.15, end_scale=0.002)
    return Recipe(
        network=NetworkConfig(vocabulary=vocabulary, layers=12),
        stages=(stage,),
        seed=5,
        start=START,
    )


def canvas(vocabulary: int) -> Recipe:
    """The recipe of the second model: the first one's weights learn to decode in LLaDA's manner.

    After a third of the steps nearly all that is wrong is arithmetic, so bare equations count double from then on, and
    half of the states are those of sub-blocks of 8. There is no causal share: nothing is shifted. No canvas is longer
    than 320 positions, so the model has no more: longer ones are refused instead of answered badly.
    """
    first = Mixture(
        arith=0.62, choice=0.10, choice_text=0.07, instruction=0.05, equation_drill=0.10, option_drill=0.06
    )
    then = Mixture(
        arith=0.55, choice=0.09, choice_text=0.06, instruction=0.02, equation_drill=0.22, option_drill=0.06
    )
    eights = CanvasConfig(sub_blocks=(8, 8, 16, 32))
    begin = BatchConfig(columns=3072, mixture=first, canvas=CanvasConfig())
    end = BatchConfig(columns=3072, mixture=then, canvas=eights)
    return Recipe(
        network=NetworkConfig(vocabulary=vocabulary, layers=12, max_positions=320),
        manner=CANVAS,
        stages=(
            Stage(name="canvas", steps=850, batches=begin, warmup=20, start_scale=0.15, end_scale=0.15),
            Stage(name="cooling", steps=1450, batches=end, warmup=1, start_scale=0.15, end_scale=0.002),
        ),
        seed=7,
        start=EMBEDDED,
    )


def tiny_canvas(vocabulary: int) -> Recipe:
    """As `tiny`, on canvases."""
    recipe = tiny(vocabulary)
    batches = BatchConfig(columns=512, mixture=Mixture(ranges=((20, 1.0),)), canvas=CanvasConfig())
    stages = tuple(dataclasses.replace(stage, batches=batches) for stage in recipe.stages)
    return dataclasses.replace(recipe, stages=stages, manner=CANVAS)


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
            Stage(name="causal", steps=4, batches=causal, warmup=2),
            Stage(name="joint", steps=4, batches=joint, warmup=2),
            Stage(name="cooling", steps=4, batches=joint, warmup=2, end_scale=0.1),
        ),
    )


RECIPES: Final = {"embedded": embedded, "canvas": canvas, "tiny": tiny, "tiny-canvas": tiny_canvas}
