"""Muon for the matrices inside the layers, Adam for everything else, as one optimizer with one state."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from training.network import Network


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """Learning rates at the top of the schedule, and momenta."""

    muon_rate: float = 0.02
    adam_rate: float = 6e-3
    momentum: float = 0.95
    adam_betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.3
    clip: float = 1.0


class MuonAdam:
    """Momentum orthogonalised by Newton-Schulz, all matrices of one shape in one product."""

    def __init__(self, network: Network, config: OptimizerConfig) -> None:
        self.config = config
        groups: dict[tuple[int, int], list[tuple[str, Tensor]]] = defaultdict(list)
        others: list[Tensor] = []
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2 and "layers" in name:
                groups[(parameter.shape[0], parameter.shape[1])].append((name, parameter))
            else:
                others.append(parameter)
        self.groups = list(groups.values())
        self.momenta = [torch.stack([torch.zeros_like(p) for _, p in group]) for group in self.groups]
        self.parameters = [p for group in self.groups for _, p in group] + others
        self.adam = torch.optim.Adam(others, lr=config.adam_rate, betas=config.adam_betas, eps=1e-10)

    @torch.no_grad()
    def step(self, scale: float) -> float:
        """Apply the gradients with both rates scaled; returns the norm of the gradient."""
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip))
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            self._muon(group, momentum, self.config.muon_rate * scale)
        for settings in self.adam.param_groups:
            settings["lr"] = self.config.adam_rate * scale
        self.adam.step()
        for parameter in self.parameters:
            parameter.grad = None
        return norm

    def _muon(self, group: list[tuple[str, Tensor]], momentum: Tensor, rate: float) -> None:
        gradient = torch.stack([p.grad if p.grad is not None else torch.zeros_like(p) for _, p in group])
        momentum.lerp_(gradient, 1 - self.config.momentum)
        update = orthogonalise(gradient.lerp(momentum, self.config.momentum))
        rows, columns = update.shape[1:]
        update *= max(1.0, rows / columns) ** 0.5
        for (_, parameter), change in zip(group, update, strict=True):
            parameter.mul_(1 - rate * self.config.weight_decay).sub_(change, alpha=rate)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on."""
        return {"momenta": self.momenta, "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        for momentum, saved in zip(self.momenta, state["momenta"], strict=True):
            momentum.copy_(saved)
        self.adam.load_state_dict(state["adam"])


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Push all singular values of a stack of matrices towards one, by the quintic Newton-Schulz iteration."""
    tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    return x.transpose(1, 2) if tall else x
