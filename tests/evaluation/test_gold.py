"""Right answers score 1 and wrong ones 0 through the real task definitions, whatever the rows' origin."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from unmask.evaluation.catalogue import headline

pytestmark = pytest.mark.usefixtures("lm_eval")

FAST = [
    "gsm8k,gsm8k_cot,gsm8k_boxed",
    "minerva_math_algebra,minerva_math_boxed_geometry",
    "ifeval",
    "humaneval,humaneval_instruct,mbpp,mbpp_instruct",
    "gpqa_main_zeroshot,gpqa_main_n_shot,gpqa_main_generative_n_shot",
    "gpqa_diamond_zeroshot,gpqa_diamond_n_shot,gpqa_diamond_generative_n_shot",
    "mmlu_social_sciences",
    "mmlu_anatomy_generative,mmlu_anatomy_continuation",
]
WHOLE = ["minerva_math,minerva_math_boxed", "mmlu", "mmlu_generative", "mmlu_continuation"]
EMBEDDED = [
    "unmask_arith,unmask_arith_20,unmask_arith_40,unmask_arith_60",
    "unmask_choice,unmask_choice_text",
]


def scores(names: str, data: Path | None, limit: int | None = None) -> tuple[set[float], set[float]]:
    """The headlines of all tasks for right answers, and for wrong ones."""
    from gold import results_of

    from unmask.evaluation.task_data import load_tasks

    loaded = load_tasks(names.split(","), data, limit, allow_code=True)
    right, wrong = (results_of(knows, loaded, limit=limit) for knows in (True, False))
    return {_row(name, right) for name in loaded.names}, {_row(name, wrong) for name in loaded.names}


def _row(name: str, found: dict[str, Any]) -> float:
    row = (found.get("groups") or {}).get(name) or found["results"][name]
    return float(headline(name, row)["value"])


@pytest.mark.parametrize("names", FAST)
def test_invented_rows(names: str, invented: Path) -> None:
    assert scores(names, invented) == ({1.0}, {0.0})


@pytest.mark.parametrize("names", EMBEDDED)
def test_embedded_tasks(names: str) -> None:
    assert scores(names, None, limit=10) == ({1.0}, {0.0})


@pytest.mark.parametrize("names", ["gsm8k", "mmlu_anatomy", "humaneval_instruct,mbpp"])
def test_the_first_published_rows(names: str, real_data: Path) -> None:
    assert scores(names, real_data, limit=4) == ({1.0}, {0.0})


@pytest.mark.slow
@pytest.mark.parametrize("names", WHOLE)
def test_whole_groups_of_invented_rows(names: str, invented: Path) -> None:
    assert scores(names, invented) == ({1.0}, {0.0})


PUBLISHED = {
    "gsm8k": 1319,
    "gsm8k_cot": 1319,
    "gsm8k_boxed": 1319,
    "mmlu": 14042,
    "mmlu_generative": 14042,
    "mmlu_continuation": 14042,
    "humaneval": 164,
    "humaneval_instruct": 164,
    "mbpp": 500,
    "mbpp_instruct": 500,
    "ifeval": 541,
}
"""Tasks and their rows."""
OUT_OF_REACH = {
    "mbpp": {"367"},  # its reference solution needs test_setup_code, which lm-eval leaves out
    "mbpp_instruct": {"367"},
    "ifeval": {"374", "1627", "3369", "3371", "3718"},  # repeat a prompt that holds what they forbid
}
"""Rows that no answer, or not the reference one, can solve."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_all_published_rows(name: str, real_data: Path) -> None:
    from gold import results_of, values

    from unmask.evaluation.task_data import load_tasks

    if name == "ifeval":
        _need_sentence_model()
    loaded = load_tasks([name], real_data, allow_code=True)
    assert sum(loaded.sizes.values()) == PUBLISHED[name]
    right, wrong = (results_of(knows, loaded) for knows in (True, False))
    for task in loaded.sizes:
        solved = values(task, right)
        assert {row for row, value in solved.items() if value != 1} == OUT_OF_REACH.get(name, set())
        assert set(values(task, wrong).values()) == {0}
        assert len(solved) == loaded.sizes[task]


def _need_sentence_model() -> None:
    import nltk

    try:
        nltk.data.find("tokenizers/punkt_tab/english")
    except LookupError:
        pytest.skip("ifeval counts sentences with NLTK's punkt_tab; set NLTK_DATA to a folder that has it")


@pytest.mark.parametrize("style", ["zeroshot", "n_shot", "generative_n_shot"])
def test_synthetic_expert_questions(style: str, real_data: Path, tmp_path: Path) -> None:
    rows = real_data / "gpqa_synthetic/train.jsonl"
    if not rows.is_file():
        pytest.skip("no synthetic GPQA rows here")
    (tmp_path / "gpqa").mkdir()
    for which in ("main", "diamond", "extended"):
        shutil.copy(rows, tmp_path / f"gpqa/gpqa_{which}.jsonl")
        assert scores(f"gpqa_{which}_{style}", tmp_path) == ({1.0}, {0.0})
