"""The split of a forward's time, end to end on a tiny shape; figures are printed, never asserted."""

import json
from pathlib import Path

import pytest
import torch

import where_time_goes as profiling
from unmask.cost.shape import ModelShape

SHAPE = ModelShape(layers=12, hidden=128, ffn=320, heads=4, kv_heads=2, head_dim=32, vocabulary=512)


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_the_script_splits_every_kind_of_forward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"# Before\n\n{profiling.BEGIN}\nold\n{profiling.END}\n\nAfter\n")
    where = ("--shapes", "tiny", "--cache", str(tmp_path), "--write", str(page))
    profiling.main([*where, "--context", "64", "--repeats", "2"])
    steps = json.loads(capsys.readouterr().out.splitlines()[-1])["shapes"]["tiny"]

    assert [step["step"] for step in steps] == ["prefill of 64", "block of 32", "sub of 8", "commit"]
    for step in steps:
        assert sum(step["parts"].values()) == pytest.approx(step["seconds"])
        assert {"qkv", "attention_out", "gate_up", "down", "attention", "norms", "rotation"} <= set(
            step["parts"]
        )
        assert {"cache writes", "activation", "head", "sampling"} <= set(step["parts"])
        assert "other products" not in step["parts"]
    text = page.read_text()
    assert text.startswith(f"# Before\n\n{profiling.BEGIN}\n")
    assert text.endswith(f"\n{profiling.END}\n\nAfter\n")
    assert "| tiny | prefill of 64 |" in text
    assert "old" not in text


@pytest.mark.parametrize("text", ["no markers", f"{profiling.END} {profiling.BEGIN}", profiling.BEGIN])
def test_a_file_without_markers_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "performance.md"
    page.write_text(text)
    with pytest.raises(SystemExit, match="put them where the tables belong"):
        profiling.write_between_markers(page, "new")
    assert page.read_text() == text


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="put them where the tables belong"):
        profiling.write_between_markers(tmp_path / "none.md", "new")
    assert not (tmp_path / "none.md").exists()


@pytest.mark.parametrize(
    ("name", "shapes", "part"),
    [
        ("aten::mm", [[32, 128], [128, 256]], "qkv"),
        ("aten::addmm", [[256], [32, 128], [128, 256]], "qkv"),
        ("aten::linear", [[32, 128], [128, 128], []], "attention_out"),
        ("mkldnn::_linear_pointwise", [[32, 128], [640, 128], [], []], "gate_up"),
        ("mkldnn::_linear_pointwise", [[32, 320], [32, 128], [128, 320], []], "down"),
        ("aten::mm", [[32, 77], [77, 5]], "other products"),
        ("aten::baddbmm", [[1], [32, 1, 128], [32, 128, 1]], "norms"),
        ("aten::baddbmm", [[2, 64, 96], [2, 64, 32], [2, 32, 96]], "attention"),
        ("aten::scaled_dot_product_attention", [[1, 2, 64, 32], [1, 2, 96, 32]], "attention"),
        ("aten::linalg_vector_norm", [[32, 128]], "norms"),
        ("aten::addcmul", [[1, 1], [32, 1], [32, 1]], "norms"),
        ("aten::mul", [[32, 128], [32, 1]], "norms"),
        ("aten::mul_", [[32, 128], [128]], "norms"),
        ("aten::mul", [[32, 6, 32], [32, 1, 32]], "rotation"),
        ("aten::addcmul_", [[32, 6, 16], [32, 6, 16], [32, 1, 16]], "rotation"),
        ("aten::copy_", [[32, 2, 32], [32, 2, 32]], "cache writes"),
        ("aten::index_copy_", [[4096, 32], [], [64], [64, 32]], "cache writes"),
        ("aten::copy_", [[1, 2, 2, 32, 32], [1, 2, 2, 32, 32]], "attention"),
        ("aten::silu_", [[32, 320]], "activation"),
        ("aten::add_", [[32, 128], [32, 128]], "residual"),
        ("aten::copy_", [[32, 256], [32, 256]], "qkv"),
        ("aten::mul_", [[32, 320], [32, 320]], "activation"),
        ("aten::embedding", [[512, 128], [32]], None),
    ],
)
def test_names_and_shapes_say_what_an_operation_is_for(
    name: str, shapes: list[list[int]], part: str | None
) -> None:
    assert profiling.part_of(name, shapes, 32, SHAPE) == part


def test_the_profilers_own_time_is_taken_off_where_operations_call_others() -> None:
    calls = [
        profiling.Operation("down", "aten::linear", 50.0, 2),
        profiling.Operation(None, "aten::view", 5.0, 0),
    ]
    found = profiling.split([calls], total=100e-6, profiled_total=140e-6)
    assert found["parts"] == pytest.approx(
        {"down": 30e-6, "other operations": 5e-6, "Python and dispatch": 65e-6}
    )
    assert found["unknown"] == {"aten::view": 1}


def test_operations_never_exceed_the_total() -> None:
    calls = [profiling.Operation("down", "aten::linear", 50.0, 0)]
    found = profiling.split([calls], total=40e-6, profiled_total=40e-6)
    assert found["parts"] == pytest.approx({"down": 40e-6, "Python and dispatch": 0.0})


def test_a_table_says_when_the_machine_was_too_busy() -> None:
    step = {"step": "commit", "seconds": 0.002, "parts": {"down": 0.002}}
    assert "too busy" not in profiling.table("tiny", [step | {"scale": 1.0}])
    assert "too busy: commit by 0.50" in profiling.table("tiny", [step | {"scale": 0.5}])


def test_no_figure_where_rounds_differ() -> None:
    one, other = profiling.Operation(None, "aten::mm", 1.0, 0), profiling.Operation(None, "aten::bmm", 1.0, 0)
    with pytest.raises(SystemExit, match="no figure is given"):
        profiling.split([[one], [other]], 1.0, 1.0)
