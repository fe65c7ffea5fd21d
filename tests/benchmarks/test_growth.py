"""A token's cost against context and batch, end to end on a tiny shape; figures are printed, never asserted."""

import json
from pathlib import Path

import pytest
import torch

import growth


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_rows_of_a_token_depend_on_neither_context_nor_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--contexts", "32", "128", "--batches", "1", "2", "--batch-context", "64", "--new-tokens", "40")
    plot = tmp_path / "growth.png"
    where = ("--shapes", "tiny", "--cache", str(tmp_path), "--plot", str(plot))
    growth.main([*where, *sizes, "--repeats", "1"])
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])["shapes"]

    assert [(one["context"], one["batch"]) for one in found["cases"]] == [(32, 1), (128, 1), (64, 1), (64, 2)]
    assert len({one["rows_per_token"] for one in found["cases"]}) == 1
    assert found["cases"][1]["flops_per_token"] > found["cases"][0]["flops_per_token"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_context_that_does_not_fit_is_named() -> None:
    engine = growth.load("embedded", Path())
    options = growth.argparse.Namespace(
        contexts=[32, 2048], batches=[1], batch_context=32, new_tokens=2, repeats=1, threads=1
    )
    assert growth.measure(engine, "embedded", options)["contexts_too_long"] == [2048]


def test_no_figure_where_rows_grow_with_the_context() -> None:
    cases = [{"context": 64, "batch": 1, "rows_per_token": 8.0}]
    growth.refuse_growth(cases)
    with pytest.raises(SystemExit, match="Context 128, batch 1: 12"):
        growth.refuse_growth([*cases, {"context": 128, "batch": 1, "rows_per_token": 12.0}])


def test_a_script_writes_the_first_token_of_a_block_alone_and_then_pairs() -> None:
    steps = growth.script_of(32, range(100, 105), block=4)
    assert steps == [[(32, 100)], [(33, 101)], [(34, 102), (35, 103)], [(36, 104)]]
