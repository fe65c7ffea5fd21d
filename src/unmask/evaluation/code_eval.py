"""pass@k of model-written programs, in the place of the hub's metric `code_eval`; how one runs is `sandbox.py`'s."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.sandbox import TIME_LIMIT, SandboxName, choose_sandbox, run_program

Details = dict[int, list[tuple[int, dict[str, Any]]]]


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Probability that k of the samples, drawn without replacement, hold a correct one (arXiv 2107.03374)."""
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def code_eval(
    references: Sequence[str],
    predictions: Sequence[Sequence[str]],
    k: Sequence[int] = (1,),
    timeout: float = TIME_LIMIT,
    sandbox: SandboxName = "bubblewrap",
) -> tuple[dict[str, float], Details]:
    """Like the hub's metric: pass@k for each k that all problems have samples for, and what happened to each sample."""
    if not references or len(references) != len(predictions) or not all(predictions) or min(k, default=0) < 1:
        raise UnmaskError("Code is scored with one test, one candidate or more and k of at least 1.")
    programs = [
        (task, number, candidate + "\n" + references[task])
        for task, candidates in enumerate(predictions)
        for number, candidate in enumerate(candidates)
    ]
    details: Details = {task: [] for task in range(len(references))}
    with ThreadPoolExecutor(4) as pool:
        outcomes = pool.map(lambda program: run_program(program[2], timeout, sandbox=sandbox), programs)
        for (task, number, _), outcome in zip(programs, outcomes, strict=True):
            names = {"task_id": task, "completion_id": number}
            details[task].append((number, names | {"passed": outcome.passed, "result": outcome.reason}))
    totals = [(len(rows), sum(row["passed"] for _, row in rows)) for rows in details.values()]
    sizes = [size for size in k if all(count >= size for count, _ in totals)]
    scores = {
        f"pass@{size}": sum(pass_at_k(*total, size) for total in totals) / len(totals) for size in sizes
    }
    return scores, details


@contextmanager
def sandboxed_metric(
    allow_unsafe: bool = False, tell: Callable[[SandboxName], None] = lambda _: None
) -> Iterator[None]:
    """Hand out the sandbox as `code_eval`: lm-eval's files ask for it while imported, and no setting names another."""
    import evaluate

    original = evaluate.load

    def load(path: str, *arguments: Any, **options: Any) -> Any:
        if path != "code_eval":
            return original(path, *arguments, **options)
        sandbox = choose_sandbox(allow_unsafe)
        tell(sandbox)
        return SimpleNamespace(compute=partial(code_eval, sandbox=sandbox))

    evaluate.load = load
    try:
        yield
    finally:
        evaluate.load = original
