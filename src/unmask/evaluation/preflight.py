"""Before any model is loaded: every task's rows are there, and the request makes sense.

Loading the tasks is the check: what cannot be loaded now could not be evaluated later.
"""

import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.access import explain, has_token
from unmask.evaluation.catalogue import EMBEDDED_TASKS, Source, members_of
from unmask.evaluation.code_metric import sandboxed_metric
from unmask.evaluation.definitions import check_names, local_files, write_definitions
from unmask.evaluation.remarks import quiet
from unmask.evaluation.stable import FRESH_SEED

SENTENCES = "tokenizers/punkt_tab"
NLTK_FOLDER = "nltk_data"


@dataclass(frozen=True, slots=True)
class Loaded:
    """Tasks with their rows."""

    names: tuple[str, ...]
    """As asked for."""
    objects: list[Any]
    """lm-eval's tasks and groups."""
    sizes: dict[str, int]
    """Rows of each task."""


def load_tasks(
    names: Sequence[str],
    data: Path | None = None,
    limit: int | None = None,
    allow_code: bool = False,
    revisions: Mapping[str, str] | None = None,
) -> Loaded:
    """Load the tasks, or say in one sentence why one of them cannot be evaluated."""
    wanted = check_names(names)
    members = [source for name in wanted for source in members_of(name)]
    if limit is not None and limit < 1:
        raise UnmaskError(f"--limit is {limit}; it must be at least 1, or left out for all rows.")
    for source in members:
        if source.runs_code and not allow_code:
            raise UnmaskError(
                f"{source.name} runs programs that the model writes; add --allow-code to let them run in the sandbox."
            )
        if data is not None and source.stock:
            local_files(source, data)
    if any(source.name == "ifeval" for source in members):
        _find_sentence_model(data)
    built = _load(wanted, members, data, revisions)
    sizes = {task.task_name: len(task.eval_docs) for task in tasks_of(built)}
    _check_limit(limit, sizes)
    return Loaded(tuple(wanted), built, sizes)


def _load(
    wanted: list[str], members: list[Source], data: Path | None, revisions: Mapping[str, str] | None
) -> list[Any]:
    from lm_eval.tasks import TaskManager

    hub = data is None and any(source.stock for source in members)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unmask-tasks-")))
        stack.enter_context(quiet())
        if any(source.runs_code for source in members):
            stack.enter_context(sandboxed_metric())
        write_definitions(wanted, folder, data, revisions)
        if hub:
            check_hub(members)
        manager = TaskManager(include_path=[str(folder), str(EMBEDDED_TASKS)], include_defaults=False)
        random.seed(FRESH_SEED)
        built: list[Any] = []
        for name in wanted:
            try:
                loaded = manager.load([name])
            except UnmaskError:
                raise
            except Exception as error:  # whatever the loaders of data raise
                raise _unloadable(error, name, data) from error
            built.append(loaded["groups"].get(name) or loaded["tasks"][name])
    return built


def _unloadable(error: Exception, name: str, data: Path | None) -> UnmaskError:
    source = members_of(name)[0]
    if data is None and source.hub:
        return explain(error, source.hub, has_token())
    what = " ".join(str(error).split()) or type(error).__name__
    where = f"{data / next(iter(source.files.values()))}" if data and source.files else "its files"
    return UnmaskError(f"{name} cannot be loaded from {where} ({type(error).__name__}: {what[:300]}).")


def check_hub(members: Sequence[Source]) -> None:
    """Ask the hub for leave to read each dataset; one that cannot be reached may still be in the cache."""
    from huggingface_hub import HfApi, constants

    for dataset in dict.fromkeys(source.hub for source in members if source.stock and source.hub):
        if constants.HF_HUB_OFFLINE:
            return
        try:
            HfApi().auth_check(dataset, repo_type="dataset")
        except Exception as error:  # the classes differ between versions of the library
            sentence = explain(error, dataset, has_token())
            if "cannot be reached" not in str(sentence):
                raise sentence from None
            work_offline()


def work_offline() -> None:
    """Take datasets and checkpoints from the cache alone; spares retries of 23 seconds for each dataset."""
    import datasets
    from huggingface_hub import constants

    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    constants.HF_HUB_OFFLINE = True
    datasets.config.HF_HUB_OFFLINE = True


def _find_sentence_model(data: Path | None) -> None:
    """IFEval counts sentences with NLTK's model, which must be there before its files are imported."""
    import nltk

    if data is not None and str(data / NLTK_FOLDER) not in nltk.data.path:
        nltk.data.path.insert(0, str(data / NLTK_FOLDER))
    try:
        nltk.data.find(SENTENCES)
        return
    except LookupError:
        pass
    if not nltk.download("punkt_tab", quiet=True):
        raise UnmaskError(
            f"ifeval needs NLTK's sentence model punkt_tab and it cannot be downloaded; put it into "
            f"{(data or Path('DATA')) / NLTK_FOLDER / SENTENCES} and give --data, or set NLTK_DATA."
        )


def tasks_of(built: Sequence[Any]) -> Iterator[Any]:
    """Single tasks, those of groups too."""
    for item in built:
        if hasattr(item, "get_all_tasks"):  # lm-eval's groups and tasks share no base class
            yield from item.get_all_tasks()
        else:
            yield item


def _check_limit(limit: int | None, sizes: dict[str, int]) -> None:
    if limit is None:
        return
    largest = max(sizes, key=sizes.__getitem__)
    if limit > sizes[largest]:
        raise UnmaskError(
            f"--limit is {limit} but {largest} has {sizes[largest]} rows; give at most that, or leave it out for all."
        )
