"""Prompts, shuffles and data: what reaches the model is what the definitions say, the same every time."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("lm_eval")


def prompts(names: list[str], data: Path | None, limit: int = 8) -> list[str]:
    """The first argument of every request."""
    from gold import GoldLM

    from unmask.evaluation.harness import Options, evaluate_tasks
    from unmask.evaluation.task_data import load_tasks

    lm = GoldLM(True)
    evaluate_tasks(lm, load_tasks(names, data), Options(limit=limit))
    return [request.args[0] for request in lm.seen]


@pytest.mark.parametrize("style", ["zeroshot", "n_shot", "generative_n_shot"])
def test_gpqa_shuffles_alike_alone_and_behind_other_tasks(style: str, invented: Path) -> None:
    name = f"gpqa_main_{style}"
    alone = prompts([name], invented)
    assert alone == prompts([name], invented)
    behind = prompts(["gpqa_diamond_zeroshot", name], invented)
    assert set(alone) <= set(behind)


def test_boxed_variants_hold_the_published_instruction_and_stock_tasks_do_not(invented: Path) -> None:
    boxed = prompts(["gsm8k_boxed", "minerva_math_boxed_algebra"], invented)
    assert all(
        text.endswith("Please reason step by step, and put your final answer within \\boxed{{}}.")
        for text in boxed
    )
    assert not any("step by step" in text for text in prompts(["gsm8k", "minerva_math_algebra"], invented))


def test_gsm8k_has_its_five_examples(invented: Path) -> None:
    assert all(text.count("Question:") == 6 for text in prompts(["gsm8k"], invented))


def test_gpqa_may_be_a_table(tmp_path: Path) -> None:
    columns = ["Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"]
    (tmp_path / "gpqa").mkdir()
    table = ",".join(columns) + "\n" + "".join(f"What is {n}?,a{n},b{n},c{n},d{n}\n" for n in range(3))
    (tmp_path / "gpqa/gpqa_diamond.csv").write_text(table)
    assert len(prompts(["gpqa_diamond_zeroshot"], tmp_path)) == 12


def test_result_keys_do_not_depend_on_the_origin_of_rows(invented: Path) -> None:
    from unmask.evaluation.catalogue import sources
    from unmask.evaluation.task_files import task_file

    for source in sources().values():
        if source.stock:
            hub, local = task_file(source, None), task_file(source, invented)
            origin = {"dataset_path", "dataset_name", "dataset_kwargs"}
            assert {key: value for key, value in local.items() if key not in origin} == hub


def test_the_language_of_a_doubtful_answer_is_the_same_each_time(invented: Path) -> None:
    """Unseeded, the recogniser takes this for Portuguese in two looks of three, else for Swahili."""
    from unmask.evaluation.stable import ifeval_results
    from unmask.evaluation.task_data import load_tasks

    load_tasks(["ifeval"], invented)  # finds the sentence model that its files want when they are imported
    doc = {
        "key": 7,
        "prompt": "What do you see?",
        "instruction_id_list": ["language:response_language"],
        "kwargs": [{"language": "pt"}],
    }
    looks = {ifeval_results(doc, ["mama ma emu"])["prompt_level_strict_acc"] for _ in range(30)}
    assert len(looks) == 1


def test_a_template_is_compiled_once_whatever_the_number_of_rows(
    invented: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.utils import env

    compiled: list[str] = []
    original = env.compile
    monkeypatch.setattr(
        env, "compile", lambda source, *rest: compiled.append(source) or original(source, *rest)
    )
    texts = prompts(["gsm8k"], invented)
    assert len(compiled) <= 4, "two templates, when the task is loaded and when it is run"
    assert len(set(texts)) == 3
    env.from_string("{{ 1 }}")
    env.from_string("{{ 1 }}")
    assert compiled[-2:] == ["{{ 1 }}"] * 2, "lm-eval is left as it was"
