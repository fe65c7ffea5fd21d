"""Functions that task files name: lm-eval's own, made to give the same result each time, and boxed prompts.

lm-eval shuffles GPQA's choices and draws IFEval's unnamed letters from generators that other tasks (and
earlier calls for the same rows) move on, and recognises languages by chance: the choices a model saw could
differ from those its answer is checked against. Here each call starts from the state of a fresh run.
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
    """The rows without files behind them, so that no shuffle is taken from another run's cache."""
    return Dataset.from_list(rows.to_list())


def gpqa_zeroshot_docs(rows: Dataset) -> Dataset:
    """GPQA's rows with shuffled choices."""
    with _seeded(PYTHON_SEED):
        return import_module("lm_eval.tasks.gpqa.zeroshot.utils").process_docs(_in_memory(rows))


def gpqa_generative_n_shot_docs(rows: Dataset) -> Dataset:
    """GPQA's rows with shuffled choices."""
    with _seeded(PYTHON_SEED):
        return import_module("lm_eval.tasks.gpqa.generative.utils").process_docs(_in_memory(rows))


def gpqa_n_shot_docs(rows: Dataset) -> Dataset:
    """GPQA's rows with shuffled choices; these have a generator of their own."""
    stock = import_module("lm_eval.tasks.gpqa.n_shot.utils")
    stock.rng.seed(N_SHOT_SEED)
    return stock.process_docs(_in_memory(rows))


def ifeval_results(doc: Mapping[str, Any], results: Sequence[str]) -> Any:
    """Whether an answer follows its instructions; a letter left open is drawn by the row's key.

    The recogniser of languages, which looks at random pieces of an answer, starts alike each time.
    """
    import_module("langdetect").DetectorFactory.seed = PYTHON_SEED
    with _seeded(int(doc["key"])):
        return import_module("lm_eval.tasks.ifeval.utils").process_results(doc, results)


def boxed_problem(doc: Mapping[str, Any]) -> str:
    """A MATH problem with the published evaluation's instruction in place of `Solution:`."""
    return f"Problem:\n{doc['problem']}\n\n{BOXED}"
