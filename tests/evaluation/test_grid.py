"""The nine configurations of the published grid on the embedded model: where a policy acts it shows, and
where it cannot the result says so."""

from typing import Any

import pytest

from unmask.model.hub import find_checkpoint

pytestmark = pytest.mark.usefixtures("lm_eval")

SUBSETS = ("first", "middle", "last")
ROWS = 2


@pytest.fixture(scope="module")
def grid() -> dict[tuple[int, str], Any]:
    """Answers, scores and effects by k and subset; k = 0 is the run without a policy."""
    if not (find_checkpoint("embedded") / "model.safetensors").is_file():
        pytest.skip("this version ships no embedded model")
    from unmask.evaluation.harness import Options
    from unmask.evaluation.lm import UnmaskLM
    from unmask.evaluation.results import evaluate
    from unmask.evaluation.task_data import load_tasks
    from unmask.loading import load

    engine = load("embedded", "cpu", "float32")
    loaded = load_tasks(["unmask_arith_20", "unmask_choice_text", "unmask_choice"])
    found = {}
    for k, subset in [(0, "none"), *((k, subset) for k in (1, 2, 3) for subset in SUBSETS)]:
        policy = {"kind": "layer_reuse", "k": k, "layers": subset, "on": ["sub", "block"]} if k else None
        lm = UnmaskLM(engine=engine, policy=policy)
        found[k, subset] = evaluate(lm, loaded, Options(limit=ROWS, generation={"max_gen_toks": 64}))
    return found


def scores(outcome: Any) -> list[float]:
    return [float(answer[0][0]) for row in outcome.samples["unmask_choice_text"] for answer in row["resps"]]


def effect(outcome: Any, task: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = outcome.document["tasks"][task]["effect"][path]
    return found


def test_k1_is_the_baseline_and_says_so(grid: dict[tuple[int, str], Any]) -> None:
    plain = grid[0, "none"]
    for subset in SUBSETS:
        control = grid[1, subset]
        for task in ("unmask_arith_20", "unmask_choice_text"):
            assert [row["resps"] for row in control.samples[task]] == [
                row["resps"] for row in plain.samples[task]
            ]
        assert (
            "k = 1 recomputes at every step" in effect(control, "unmask_arith_20", "generation")["inactive"]
        )
        assert (
            "k = 1 recomputes at every step" in effect(control, "unmask_choice_text", "scoring")["inactive"]
        )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("subset", SUBSETS)
def test_where_a_policy_acts_results_and_ledger_show_it(
    grid: dict[tuple[int, str], Any], k: int, subset: str
) -> None:
    outcome = grid[k, subset]
    for task, path in (("unmask_arith_20", "generation"), ("unmask_choice_text", "scoring")):
        found = effect(outcome, task, path)
        assert found["inactive"] is None
        assert 0 < found["reuse_fraction"] < 1 / 3
        assert found["layer_calls_replayed"] > 0
    assert scores(outcome) != scores(grid[0, "none"])


def test_no_two_acting_configurations_agree_to_the_last_digit(grid: dict[tuple[int, str], Any]) -> None:
    acting = [tuple(scores(grid[k, subset])) for k in (2, 3) for subset in SUBSETS]
    assert len(set(acting)) == len(acting)


def test_choices_of_one_token_leave_no_policy_anything_to_do(grid: dict[tuple[int, str], Any]) -> None:
    found = effect(grid[2, "middle"], "unmask_choice", "scoring")
    assert found["reuse_fraction"] == 0
    assert found["inactive"]
