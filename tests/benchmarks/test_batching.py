"""Batching end to end on the smallest sizes: forwards are counted here, times are for the script to tell."""

import json

import pytest
import torch

import batching
from counting import refuse_difference


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    batching.main(["--repeats", "1", *arguments])
    return json.loads(capsys.readouterr().out.splitlines()[-1])["found"]


def test_requests_together_take_fewer_forwards_of_as_many_rows(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--parts", "many", "--requests", "4", "--batch", "4")["many"]
    alone, together = found["contenders"]["batch 1"], found["contenders"]["batch 4"]
    assert together["forwards"] < alone["forwards"]
    assert together["rows"] == alone["rows"]


def test_continuous_batches_take_fewer_forwards_than_static_ones(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--requests", "8", "--batch", "2", "--short", "2", "--long", "24")
    found = run(capsys, "--parts", "mixed", *sizes)["mixed"]
    assert found["tokens"] == 4 * (2 + 24)
    assert found["contenders"]["continuous"]["forwards"] < found["contenders"]["static"]["forwards"]
    assert found["contenders"]["continuous"]["rows"] == found["contenders"]["static"]["rows"]


def test_a_sweep_takes_fewer_forwards_in_batches(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--parts", "sweep", "--configurations", "k3_last", "--rows", "2")["sweep"]
    assert [cell["task"] for cell in found["cells"]] == ["unmask_arith", "unmask_choice_text"]
    for cell in found["cells"]:
        assert cell["counted"]["batch"]["forwards"] < cell["counted"]["one"]["forwards"]


def test_an_unknown_configuration_is_refused() -> None:
    with pytest.raises(SystemExit, match="no configuration k9"):
        batching.main(["--parts", "sweep", "--configurations", "k9"])


def test_no_figure_where_tokens_differ() -> None:
    with pytest.raises(SystemExit, match="Request 1 of 2: the tokens of static differ"):
        refuse_difference({"continuous": [[1], [2, 3]], "static": [[1], [2, 4]]})


def test_no_figure_where_scores_differ() -> None:
    batching.refuse_other_scores({"one": [-1.0, -2.0], "batch": [-1.0, -2.00001]})
    with pytest.raises(SystemExit, match=r"differ by 0\.010000"):
        batching.refuse_other_scores({"one": [-1.0], "batch": [-1.01]})
