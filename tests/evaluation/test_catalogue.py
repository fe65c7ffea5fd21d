"""Every task has a named metric, and none is taken by its place."""

import re
from pathlib import Path

import pytest

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import (
    EMBEDDED_TASKS,
    groups,
    headline,
    members_of,
    metric_of,
    sources,
    stock_folder,
)
from unmask.model.hub import find_checkpoint
from unmask.model.tokenizer import Tokenizer

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


def kind_of_task(file: Path) -> str:
    """The output type of a definition, or of the definitions that it includes."""
    text = file.read_text(encoding="utf-8")
    if named := re.search(r"^\"?output_type\"?: *\"?(\w+)", text, re.MULTILINE):
        return named[1]
    included = re.search(r"^\"?include\"?: *\"?([^\s\"]+)", text, re.MULTILINE)
    assert included, file
    return kind_of_task(file.parent / included[1])


def test_choices_are_named_of_the_tasks_that_are_scored() -> None:
    for source in sources().values():
        file = stock_folder() / source.stock if source.stock else EMBEDDED_TASKS / f"{source.name}.yaml"
        assert (kind_of_task(file) == "multiple_choice") == (source.choices is not None), source.name


def test_single_letters_are_named_where_the_definition_lists_them() -> None:
    for source in sources().values():
        file = stock_folder() / source.stock if source.stock else EMBEDDED_TASKS / f"{source.name}.yaml"
        texts = [file.read_text(), *(each.read_text() for each in file.parent.glob("_default_template_yaml"))]
        lists_letters = any('doc_to_choice: ["A", "B", "C", "D"]' in text for text in texts)
        assert lists_letters == (source.choices == "letters"), source.name


def test_a_letter_is_one_token_of_the_embedded_model() -> None:
    tokenizer = Tokenizer.from_folder(find_checkpoint("embedded"))
    assert [len(tokenizer.encode(f"{letter}")) for letter in (" A", " B", " C", " D")] == [1, 1, 1, 1]
