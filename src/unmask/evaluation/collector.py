"""Takes down what lm-eval would ask a model, without answering: the prompts of a timing run."""

from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from unmask.errors import UnmaskError
from unmask.evaluation.harness import Options, evaluate_tasks
from unmask.evaluation.lm import UnmaskLM
from unmask.evaluation.preflight import Loaded
from unmask.store.result import PathName


class Collector(LM):
    """A model that remembers its requests; templates and tokens are those of a real one."""

    def __init__(self, lm: UnmaskLM) -> None:
        super().__init__()
        self.lm = lm
        self.requests: dict[PathName, list[Instance]] = {}

    @property
    def tokenizer_name(self) -> str:
        """That of the real model."""
        return self.lm.tokenizer_name

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        """That of the real model."""
        return self.lm.apply_chat_template(chat_history, add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """That of the real model."""
        return self.lm.chat_template(chat_template)

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002
        """Remember generations."""
        self.requests.setdefault("generation", []).extend(requests)
        return [""] * len(requests)

    def loglikelihood(
        self,
        requests: Sequence[Instance],
        disable_tqdm: bool = False,  # noqa: ARG002
    ) -> list[tuple[float, bool]]:
        """Remember scorings."""
        self.requests.setdefault("scoring", []).extend(requests)
        return [(0.0, False)] * len(requests)

    def loglikelihood_rolling(
        self,
        requests: Sequence[Instance],  # noqa: ARG002
        disable_tqdm: bool = False,  # noqa: ARG002
    ) -> list[float]:
        """No benchmark of the catalogue asks for it."""
        raise UnmaskError("Tasks that score whole texts cannot be timed yet; name another task.")


def collect(
    lm: UnmaskLM, loaded: Loaded, options: Options, allow_code: bool = False
) -> tuple[PathName, list[Instance]]:
    """The path that a task takes and its requests."""
    collector = Collector(lm)
    evaluate_tasks(collector, loaded, options, allow_code)
    ((path, requests),) = collector.requests.items()
    return path, requests
