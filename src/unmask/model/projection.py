"""Products with a weight matrix, stored as the table of layouts says (model/layouts.py).

A weight is loaded in the order of checkpoints or its transpose, both of which can be written to in parts, and
settled once it is whole: only then can it be packed.

Shape legend: T rows, I inputs, O outputs.
"""

import torch
from torch import Tensor

from unmask.model.layouts import Layout

PACKED_FOR_ROWS = 32
"""Rows that the packed form is made for; it serves other numbers too, 8 to 512 measured."""


class Projection:
    """A linear map `x W^T + b`."""

    def __init__(self, weight_IO: Tensor, bias_O: Tensor | None, layout: Layout) -> None:
        self.bias_O = bias_O
        self.layout: Layout = layout
        self._weight_IO = weight_IO
        """The matrix to multiply with, in any memory order; once it is packed, its packed form."""
        self._is_packed = False

    @classmethod
    def empty(
        cls, outputs: int, inputs: int, bias: bool, device: torch.device, dtype: torch.dtype, layout: Layout
    ) -> "Projection":
        """Allocate uninitialised storage for a map from `inputs` to `outputs` features."""
        if layout == "in_out":
            weight_IO = torch.empty(inputs, outputs, device=device, dtype=dtype)
        else:
            weight_IO = torch.empty(outputs, inputs, device=device, dtype=dtype).t()
        return cls(weight_IO, torch.empty(outputs, device=device, dtype=dtype) if bias else None, layout)

    @property
    def weight_OI(self) -> Tensor:
        """The weight as [out, in]: a view to write into while it is not packed, and a copy afterwards."""
        return self._weight_IO.to_dense() if self._is_packed else self._weight_IO.t()

    def settle(self) -> None:
        """Pack the weight where its layout asks for it; nothing can be written to it from then on."""
        if self.layout == "packed" and not self._is_packed:
            packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._weight_IO.t(), PACKED_FOR_ROWS)
            self._weight_IO, self._is_packed = packed, True

    def __call__(self, x_TI: Tensor, out_TO: Tensor | None = None) -> Tensor:
        """Apply the map to every row, into a buffer if there is one."""
        if self._is_packed:
            product = self._packed_product(x_TI)
            return product if out_TO is None else out_TO.copy_(product)
        if self.bias_O is None:
            return torch.mm(x_TI, self._weight_IO, out=out_TO)
        return torch.addmm(self.bias_O, x_TI, self._weight_IO, out=out_TO)

    def _packed_product(self, x_TI: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x_TI, self._weight_IO, self.bias_O, "none", [], ""
        )
        return product
