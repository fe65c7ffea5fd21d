"""HumanEval and MBPP with the sandbox as their metric.

lm-eval's files for both ask the hub for the metric `code_eval` while they are imported, and run a program
with it at once. There is no setting for another metric, so for the time of that import, and only then,
`evaluate.load` hands out the sandbox.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unmask.evaluation.sandbox import code_eval, isolation


class SandboxedCodeEval:
    """Has the one method of the hub's metric that lm-eval calls."""

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int] = (1,)
    ) -> tuple[dict[str, float], Any]:
        """pass@k and what happened to each program."""
        return code_eval(references, predictions, k)


@contextmanager
def sandboxed_metric(tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Let task files that are imported meanwhile get the sandbox as `code_eval`.

    `tell` hears, once a file has asked for it, what this system does not keep programs from.
    """
    import evaluate

    original = evaluate.load

    def load(path: str, *arguments: Any, **options: Any) -> Any:
        if path != "code_eval":
            return original(path, *arguments, **options)
        if tell:
            for gap in isolation().gaps:
                tell(gap)
        return SandboxedCodeEval()

    evaluate.load = load
    try:
        yield
    finally:
        evaluate.load = original
