"""Every task has a named metric, and none is taken by its place."""

import pytest

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import groups, headline, members_of, metric_of, sources

pytest.importorskip("lm_eval")


def test_every_task_and_group_has_a_metric() -> None:
    for name in (*sources(), *groups()):
        assert "," in metric_of(name)


def test_mmlu_has_its_57_subjects() -> None:
    assert len(members_of("mmlu")) == len(members_of("mmlu_generative")) == 57
    parts = ["mmlu_stem", "mmlu_humanities", "mmlu_social_sciences", "mmlu_other"]
    assert sum(len(members_of(part)) for part in parts) == 57


def test_sizes_and_errors_are_never_taken_for_the_metric() -> None:
    row = {"sample_len": 60, "acc_stderr,none": 0.1, "acc_norm,none": 0.4, "acc,none": 0.5}
    assert headline("mmlu", row) == {"metric": "acc,none", "value": 0.5, "stderr": 0.1}


def test_a_row_without_the_metric_is_refused() -> None:
    with pytest.raises(UnmaskError, match="hold no acc,none"):
        headline("mmlu", {"sample_len": 60})
    with pytest.raises(UnmaskError, match="No metric is named"):
        metric_of("made_up")
