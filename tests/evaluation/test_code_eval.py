"""pass@k: the estimator against enumeration, and the shape lm-eval's code tasks expect."""

from itertools import combinations

import pytest

from unmask.errors import UnmaskError
from unmask.evaluation import code_eval as metric_module
from unmask.evaluation import sandbox
from unmask.evaluation.code_eval import code_eval, pass_at_k, sandboxed_metric
from unmask.evaluation.sandbox import bubblewrap_problem

ADD, MULTIPLY = "def add(a, b): return a + b", "def add(a, b): return a * b"
TEST = "assert add(2, 3) == 5"


@pytest.mark.parametrize("samples", range(1, 6))
def test_estimator_is_the_share_of_draws_with_a_correct_one(samples: int) -> None:
    for correct in range(samples + 1):
        for k in range(1, samples + 1):
            draws = list(combinations([True] * correct + [False] * (samples - correct), k))
            assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.skipif(bubblewrap_problem() is not None, reason="bubblewrap does not work here")
def test_workers_in_parallel_keep_the_order() -> None:
    candidates = [[MULTIPLY, ADD], [ADD, ADD], [MULTIPLY, "while True: pass"]]
    scores, details = code_eval([TEST] * 3, candidates, k=[1, 2, 3], timeout=2.0)
    assert scores == {"pass@1": 0.5, "pass@2": pytest.approx(2 / 3)}
    reasons = [[row["result"] for _, row in details[task]] for task in range(3)]
    assert reasons == [
        ["failed: AssertionError", "passed"],
        ["passed", "passed"],
        ["failed: AssertionError", "timeout"],
    ]
    assert details[0][1] == (1, {"task_id": 0, "passed": True, "result": "passed", "completion_id": 1})


@pytest.mark.usefixtures("lm_eval")
@pytest.mark.parametrize("kind", ["bubblewrap", "unsafe"])
def test_the_metric_is_the_sandbox_for_a_while(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import evaluate

    monkeypatch.setattr(evaluate, "load", lambda path: f"the hub's {path}")
    monkeypatch.setattr(metric_module, "choose_sandbox", lambda _: kind)
    chosen: list[str] = []
    with sandboxed_metric(tell=chosen.append):
        assert evaluate.load("rouge") == "the hub's rouge"
        assert chosen == []
        metric = evaluate.load("code_eval")
    assert chosen == [kind]
    if kind == "unsafe" or bubblewrap_problem() is None:
        assert metric.compute([TEST], [[ADD]], k=[1])[0] == {"pass@1": 1.0}
    assert evaluate.load("code_eval") == "the hub's code_eval"


def test_without_bubblewrap_the_metric_is_refused_unless_unsafe_code_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import evaluate

    monkeypatch.setattr(sandbox, "bubblewrap_problem", lambda: "it is not there")
    with sandboxed_metric(), pytest.raises(UnmaskError, match="it is not there"):
        evaluate.load("code_eval")
    with sandboxed_metric(allow_unsafe=True):
        assert evaluate.load("code_eval")


@pytest.mark.parametrize("references, predictions", [([], []), ([TEST], []), ([TEST], [[]])])
def test_problems_without_candidates(references: list[str], predictions: list[list[str]]) -> None:
    with pytest.raises(UnmaskError, match="one candidate or more"):
        code_eval(references, predictions, k=[1])


@pytest.mark.parametrize("k", [[], [0], [1, -1]])
def test_bad_k(k: list[int]) -> None:
    with pytest.raises(UnmaskError, match="at least 1"):
        code_eval([TEST], [[ADD]], k=k)
