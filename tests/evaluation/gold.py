"""A model that knows every answer, or none: what the tasks' own checks make of it must be 1 or 0."""

from collections.abc import Sequence
from typing import Any

from ifeval_gold import follow
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from unmask.evaluation.catalogue import metric_of
from unmask.evaluation.harness import Options, evaluate_tasks
from unmask.evaluation.task_data import Loaded


class GoldLM(LM):
    """Answers with the row's own solution, or with text that must fail."""

    tokenizer_name = "gold"

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.right = right
        self.seen: list[Instance] = []

    def generate_until(self, requests: Sequence[Instance], **_: Any) -> list[str]:
        self.seen += requests
        return [self._text(request) for request in requests]

    def loglikelihood(self, requests: Sequence[Instance], **_: Any) -> list[tuple[float, bool]]:
        self.seen += requests
        return [self._score(request) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Instance], **_: Any) -> list[float]:
        raise NotImplementedError

    def _score(self, request: Instance) -> tuple[float, bool]:
        answer = request.doc["answer"]
        index = "ABCD".index(answer.strip("()")) if isinstance(answer, str) else answer
        chosen = (request.idx == index) == self.right
        return (-0.1 if chosen else -10.0), chosen

    def _text(self, request: Instance) -> str:
        doc, task = request.doc, request.task_name
        if not self.right:
            return "" if task == "ifeval" else " no idea at all"
        if task.startswith(("gsm8k_cot", "gsm8k_boxed")):
            final = doc["answer"].split("####")[-1].strip()
            return f" So the total is clear. The answer is {final}."
        if task.startswith(("gsm8k", "unmask_arith")):
            return f" {doc['answer']}"
        if task.startswith("minerva_math"):
            return f" {doc['solution']}\nFinal Answer: The final answer is ${doc['answer']}$. I hope it is correct."
        if task.endswith("_generative"):
            return f" {'ABCD'[doc['answer']]}"
        if task.startswith("gpqa"):
            return f" The answer is {doc['answer']}."
        return _PLAIN[task](doc)


_PLAIN = {
    "ifeval": follow,
    "humaneval": lambda doc: doc["canonical_solution"],
    "humaneval_instruct": lambda doc: doc["canonical_solution"] + "\n```",
    "mbpp": lambda doc: doc["code"],
    "mbpp_instruct": lambda doc: "\n" + doc["code"] + "\n```",
}


def results_of(right: bool, loaded: Loaded, **options: Any) -> dict[str, Any]:
    """lm-eval's own results for the model that is always right, or always wrong."""
    return evaluate_tasks(GoldLM(right), loaded, Options(**options))


def values(task: str, found: dict[str, Any]) -> dict[str, float]:
    """The headline metric of every row of a task, by the row's own name where it has one."""
    metric, _, filtered = metric_of(task).partition(",")
    rows = [row for row in found["samples"][task] if row["filter"] == filtered]
    return {_name(row): float(row[metric]) for row in rows}


def _name(row: dict[str, Any]) -> str:
    named = [row["doc"][key] for key in ("task_id", "key") if key in row["doc"]]
    return str(named[0] if named else row["doc_id"])
