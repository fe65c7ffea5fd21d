"""Puts loaded tasks to a model the way lm-eval does: to a real one for its results, or to one that only listens.

What lm-eval's `simple_evaluate` does around `evaluate` is done here, with its seeds, except that it also
spends ten seconds describing the machine. What the results mean is not known here.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import PYTHON_SEED
from unmask.evaluation.task_data import Loaded, quiet
from unmask.store.result import PathName

if TYPE_CHECKING:
    from unmask.evaluation.lm import UnmaskLM

OTHER_SEED = 1234
"""lm-eval's default seed of all other generators."""
BOOTSTRAPS = 1000
"""Resamples behind the standard error of metrics that are no means."""
TEMPLATES = 256
"""Compiled templates that are kept; no run has as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How tasks are put to the model."""

    limit: int | None = None
    """Samples of each task; None takes all."""
    num_fewshot: int | None = None
    """None takes each task's own number; tasks that fix it at 0 keep it."""
    chat: bool = False
    """Whether prompts go through the chat template, examples as turns of their own."""
    system_instruction: str | None = None
    generation: Mapping[str, Any] | None = None
    """Generation arguments that win over the tasks' own."""


def evaluate_tasks(lm: Any, loaded: Loaded, options: Options) -> dict[str, Any]:
    """lm-eval's results and samples for all tasks."""
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks import TaskManager

    random.seed(PYTHON_SEED)
    np.random.seed(OTHER_SEED)
    tasks = TaskManager(include_defaults=False).load(list(loaded.objects))
    for task in tasks["tasks"].values():
        _set_up(task, options)
    if getattr(lm, "rounds", None) is not None:
        lm.rounds.tasks = tasks["tasks"]
    with quiet(), compiled_once():
        results: dict[str, Any] = evaluate(
            lm=lm,
            task_dict=tasks,
            limit=options.limit,
            bootstrap_iters=BOOTSTRAPS,
            system_instruction=options.system_instruction,
            apply_chat_template=options.chat,
            fewshot_as_multiturn=options.chat,
            confirm_run_unsafe_code=loaded.sandbox is not None,
        )
    return results


def _set_up(task: Any, options: Options) -> None:
    if options.generation and task.get_config("output_type") == "generate_until":
        task.set_config(key="generation_kwargs", value=dict(options.generation), update=True)
    own = task.get_config("num_fewshot")
    if own is None or (options.num_fewshot is not None and own != 0):
        task.set_config(key="num_fewshot", value=options.num_fewshot or 0)
    task.set_fewshot_seed(seed=OTHER_SEED)


@contextmanager
def compiled_once() -> Iterator[None]:
    """Let lm-eval's template engine remember what it has compiled.

    lm-eval compiles a task's template anew for every sample and every example. That is most of the time in
    which prompts are built: 5-shot gsm8k compiles twelve times a sample.
    """
    from lm_eval.utils import env

    env.from_string = lru_cache(TEMPLATES)(env.from_string)
    try:
        yield
    finally:
        del env.from_string  # the method of its class is in effect again


class Collector(LM):
    """A model that keeps its requests and answers nothing; templates and tokens are those of a real one."""

    def __init__(self, lm: "UnmaskLM") -> None:
        super().__init__()
        self.lm = lm
        self.requests: dict[PathName, list[Instance]] = {}

    @property
    def tokenizer_name(self) -> str:
        """Ask the real model."""
        return self.lm.tokenizer_name

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        """Ask the real model."""
        return self.lm.apply_chat_template(chat_history, add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Ask the real model."""
        return self.lm.chat_template(chat_template)

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002
        """Keep requests for a text."""
        self.requests.setdefault("generation", []).extend(requests)
        return [""] * len(requests)

    def loglikelihood(
        self,
        requests: Sequence[Instance],
        disable_tqdm: bool = False,  # noqa: ARG002
    ) -> list[tuple[float, bool]]:
        """Keep requests for a score."""
        self.requests.setdefault("scoring", []).extend(requests)
        return [(0.0, False)] * len(requests)

    def loglikelihood_rolling(
        self,
        requests: Sequence[Instance],  # noqa: ARG002
        disable_tqdm: bool = False,  # noqa: ARG002
    ) -> list[float]:
        """Refuse: no benchmark of the catalogue asks for it."""
        raise UnmaskError("Tasks that score whole texts cannot be timed yet; name another task.")


def collect(lm: "UnmaskLM", loaded: Loaded, options: Options) -> tuple[PathName, list[Instance]]:
    """The path of a task (generation or scoring) and what lm-eval would ask the model: the prompts of a timing run."""
    collector = Collector(lm)
    evaluate_tasks(collector, loaded, options)
    ((path, requests),) = collector.requests.items()
    return path, requests
