"""The training loop: one step is batch, loss, gradients, update. Resumes exactly from its checkpoint."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from training.attention import attend_causally, attend_causally_within
from training.batches import Batch, batches
from training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from training.encoding import Encoder
from training.network import Attend, Network
from training.optimizers import MuonAdam
from training.recipe import Recipe
from training.start import load_start


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """What one step did."""

    step: int
    stage: str
    causal: bool
    loss: float
    accuracy: float
    gradient_norm: float
    rate_scale: float
    seconds: float


class Trainer:
    """Holds the network, the optimizer and the place in the recipe."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, device: str = "cpu") -> None:
        self.recipe, self.device, self.step = recipe, torch.device(device), 0
        self.encoder = Encoder(tokenizer)
        self.network = Network(recipe.network)
        self.network.initialise(recipe.seed)
        if recipe.start is not None:
            load_start(self.network, tokenizer, recipe.start, recipe.seed)
        self.network.to(self.device)
        self.optimizer = MuonAdam(self.network, recipe.optimizer)
        self._stage = -1
        self._batches: Iterator[Batch] = iter(())

    @property
    def finished(self) -> bool:
        """Whether every stage is done."""
        return self.step >= self.recipe.steps

    def advance(self) -> StepReport:
        """Train one step."""
        began = time.monotonic()
        index, within = self.recipe.locate(self.step)
        stage = self.recipe.stages[index]
        if index != self._stage:
            self._enter(index, within)
        batch = next(self._batches)
        loss, hits = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        scale = stage.rate_scale(within)
        norm = self.optimizer.step(scale)
        self.step += 1
        return StepReport(
            step=self.step,
            stage=stage.name,
            causal=batch.layout is None,
            loss=float(loss.detach()),
            accuracy=hits,
            gradient_norm=norm,
            rate_scale=scale,
            seconds=time.monotonic() - began,
        )

    def save(self, folder: Path) -> None:
        """Write a checkpoint that `restore` can take up."""
        state = Checkpoint(
            step=self.step, network=self.network.state_dict(), optimizer=self.optimizer.state_dict()
        )
        save_checkpoint(folder, state)

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        state = load_checkpoint(folder)
        self.step = state.step
        self.network.load_state_dict(state.network)
        self.optimizer.load_state_dict(state.optimizer)

    def _enter(self, index: int, within: int) -> None:
        stage = self.recipe.stages[index]
        seed = self.recipe.seed * 1000 + index
        self._batches = batches(self.encoder, stage.batches, seed, within)
        self._stage = index

    def _loss(self, batch: Batch) -> tuple[Tensor, float]:
        attend: Attend = attend_causally
        if batch.layout is not None:
            attend = batch.layout.attend
        elif batch.documents is not None:
            attend = attend_causally_within(batch.documents.to(self.device))
        hidden = self.network(batch.tokens.to(self.device), batch.positions.to(self.device), attend)
        scores = self.network.logits(hidden[batch.rows, batch.columns])
        targets, weights = batch.targets.to(self.device), batch.weights.to(self.device)
        losses = F.cross_entropy(scores, targets, reduction="none")
        with torch.no_grad():
            counted = weights >= 1.0
            hits = (scores.argmax(-1) == targets)[counted].float().mean()
        return (losses * weights).sum() / weights.sum(), float(hits)


def run(
    trainer: Trainer,
    folder: Path,
    *,
    save_every: int,
    watch: Callable[[StepReport], None],
    until: int | None = None,
) -> None:
    """Train to the end of the recipe, or to a step, saving now and then."""
    last = trainer.recipe.steps if until is None else min(until, trainer.recipe.steps)
    while trainer.step < last:
        report = trainer.advance()
        if trainer.step % save_every == 0 or trainer.step == last:
            trainer.save(folder)
        watch(report)
