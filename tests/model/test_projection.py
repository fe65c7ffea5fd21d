"""A product is the same whatever the storage of its weight, and which storage it is comes from the table alone."""

import json

import pytest
import torch

from checkpoints import CPU
from unmask.model.layouts import LAYOUTS, TABLE, Layout, choose_layout, table
from unmask.model.projection import Projection


def filled(layout: Layout, bias: bool) -> tuple[Projection, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    weight_OI = torch.randn(48, 24, generator=draw)
    projection = Projection.empty(48, 24, bias, CPU, torch.float32, layout)
    projection.weight_OI[:20] = weight_OI[:20]
    projection.weight_OI[20:] = weight_OI[20:]
    if projection.bias_O is not None:
        projection.bias_O.copy_(torch.randn(48, generator=draw))
    projection.settle()
    return projection, weight_OI


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 8, 70])
def test_every_layout_gives_the_product(layout: Layout, bias: bool, rows: int) -> None:
    projection, weight_OI = filled(layout, bias)
    assert torch.equal(projection.weight_OI, weight_OI)
    x = torch.randn(rows, 24, generator=torch.Generator().manual_seed(1))
    expected = x.double() @ weight_OI.double().T
    if projection.bias_O is not None:
        expected = expected + projection.bias_O.double()
    out = torch.full((rows, 48), torch.nan)
    assert torch.allclose(projection(x).double(), expected, atol=1e-5)
    assert projection(x, out_TO=out) is out
    assert torch.allclose(out.double(), expected, atol=1e-5)


def test_settling_twice_changes_nothing() -> None:
    projection, weight_OI = filled("packed", bias=False)
    projection.settle()
    assert torch.equal(projection.weight_OI, weight_OI)


def test_the_table_decides_by_size_and_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        {"inputs": 100, "outputs": 100, "layout": "in_out"},
        {"inputs": 1000, "outputs": 1000, "layout": "packed"},
    ]
    monkeypatch.setattr("unmask.model.layouts.table", lambda: {"some": entries})
    assert choose_layout(100, 100, "some") == "in_out"
    assert choose_layout(250, 250, "some") == "in_out"
    assert choose_layout(400, 400, "some") == "packed"
    assert choose_layout(5000, 5000, "some") == "packed"
    assert choose_layout(5000, 5000, "unheard of") == "in_out"
    assert choose_layout(5000, 5000, None) == "out_in", "accelerators keep the order of checkpoints"


def test_the_shipped_table_holds_known_layouts_only() -> None:
    assert table() == json.loads(TABLE.read_text())["entries"]
    for entries in table().values():
        assert entries
        assert {entry["layout"] for entry in entries} <= set(LAYOUTS)
