"""The simulated sweeps that stop when they know: the command ends well, and its tables hold what they should."""

import json

import pytest

import decided


def test_the_command_of_the_figures_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert decided.main(["--sweeps", "300"]) == 0
    printed = capsys.readouterr().out
    assert "| 12.9, 2 comparisons | 100 % |" in printed
    report = json.loads(printed.splitlines()[-1])
    assert report["together"]["ordinary"] < 0.9 < report["together"]["anytime"]
    assert report["grid"]["6.7, 8 comparisons"]["decided"] < 0.2
