"""HumanEval and MBPP with the sandbox as their metric.

lm-eval's files for both ask the hub for the metric `code_eval` while they are imported, and run a program
with it at once. There is no setting for another metric, so for the time of that import, and only then,
`evaluate.load` hands out the sandbox.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unmask.evaluation.sandbox import code_eval


class SandboxedCodeEval:
    """Has the one method of the hub's metric that lm-eval calls."""

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int] = (1,)
    ) -> tuple[dict[str, float], Any]:
        """pass@k and what happened to each program."""
        return code_eval(references, predictions, k)


@contextmanager
def sandboxed_metric() -> Iterator[None]:
    """Let task files that are imported meanwhile get the sandbox as `code_eval`."""
    import evaluate

    original = evaluate.load

    def load(path: str, *arguments: Any, **options: Any) -> Any:
        return SandboxedCodeEval() if path == "code_eval" else original(path, *arguments, **options)

    evaluate.load = load
    try:
        yield
    finally:
        evaluate.load = original
