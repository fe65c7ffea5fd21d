"""Products with a weight matrix, in the storage order that suits the device.

On CPU a weight kept as [in, out] makes a product of few rows cost what few rows should cost; the
[out, in] order of checkpoints costs the same for 8 rows as for 32. On accelerators the order of the
checkpoint is kept.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear map `x W^T + b`."""

    weight: Tensor
    bias_O: Tensor | None
    input_major: bool
    """True when `weight` is stored as [in, out], False for [out, in]."""

    @classmethod
    def empty(
        cls, width: int, inputs: int, bias: bool, device: torch.device, dtype: torch.dtype
    ) -> "Projection":
        """Allocate uninitialised storage for a map from `inputs` to `width` features."""
        input_major = device.type == "cpu"
        shape = (inputs, width) if input_major else (width, inputs)
        weight = torch.empty(shape, device=device, dtype=dtype)
        return cls(weight, torch.empty(width, device=device, dtype=dtype) if bias else None, input_major)

    @property
    def weight_OI(self) -> Tensor:
        """The weight as [out, in], whatever the storage: a view to write into."""
        return self.weight.t() if self.input_major else self.weight

    def __call__(self, x_TI: Tensor) -> Tensor:
        """Apply the map to every row."""
        if not self.input_major:
            return F.linear(x_TI, self.weight, self.bias_O)
        if self.bias_O is None:
            return torch.mm(x_TI, self.weight)
        return torch.addmm(self.bias_O, x_TI, self.weight)
