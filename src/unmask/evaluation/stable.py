"""Functions that task files name: lm-eval's own, made to give the same result each time, and boxed prompts.

lm-eval shuffles GPQA's choices and draws IFEval's unnamed letters from random generators whose state other
tasks (and earlier calls for the same samples) change, and it recognises languages by chance: the choices that a
model saw could differ from those its answer is checked against. Here each call starts from the state of a fresh
run. Only lm-eval calls these functions, by the names that `catalogue.py` gives to the task files.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from datasets import Dataset

from unmask.evaluation.catalogue import BOXED, PYTHON_SEED

N_SHOT_SEED = 42
"""The seed in lm-eval's gpqa/n_shot/utils.py."""


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def _in_memory(rows: Dataset) -> Dataset:
    """The samples without files behind them, so that no shuffle is taken from another run's cache."""
    return Dataset.from_list(rows.to_list())


def gpqa_zeroshot_docs(rows: Dataset) -> Dataset:
    """GPQA's samples with shuffled choices."""
    with _seeded(PYTHON_SEED):
        return import_module("lm_eval.tasks.gpqa.zeroshot.utils").process_docs(_in_memory(rows))


def gpqa_generative_n_shot_docs(rows: Dataset) -> Dataset:
    """GPQA's samples with shuffled choices."""
    with _seeded(PYTHON_SEED):
        return import_module("lm_eval.tasks.gpqa.generative.utils").process_docs(_in_memory(rows))


def gpqa_n_shot_docs(rows: Dataset) -> Dataset:
    """GPQA's samples with shuffled choices; lm-eval's file for them has a generator of its own."""
    stock = import_module("lm_eval.tasks.gpqa.n_shot.utils")
    stock.rng.seed(N_SHOT_SEED)
    return stock.process_docs(_in_memory(rows))


def ifeval_results(doc: Mapping[str, Any], results: Sequence[str]) -> Any:
    """Whether an answer follows its instructions. A letter that a sample leaves open is drawn by the sample's key.

    The recogniser of languages looks at random pieces of an answer; it starts from the same seed each time.
    """
    import_module("langdetect").DetectorFactory.seed = PYTHON_SEED
    with _seeded(int(doc["key"])):
        return import_module("lm_eval.tasks.ifeval.utils").process_results(doc, results)


def boxed_problem(doc: Mapping[str, Any]) -> str:
    """A MATH problem with the published evaluation's instruction in place of `Solution:`."""
    return f"Problem:\n{doc['problem']}\n\n{BOXED}"
