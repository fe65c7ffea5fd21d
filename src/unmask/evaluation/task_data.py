"""The samples of tasks, loaded before any model; the hub, the disk, and why data cannot be had.

Loading the tasks is the check: what cannot be loaded now could not be evaluated later. Why a download failed
is judged by the exception alone, so that every case is tested without a network. Neither lm-eval nor torch is
imported before a task is loaded.
"""

import io
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import EMBEDDED_TASKS, GATED, PYTHON_SEED, Source, members_of
from unmask.evaluation.code_eval import sandboxed_metric
from unmask.evaluation.sandbox import SandboxName, choose_sandbox
from unmask.evaluation.task_files import check_names, local_files, write_definitions
from unmask.model.hub import HUB_ID, WANTED
from unmask.store.redaction import redacted

SENTENCES = "tokenizers/punkt_tab"
NLTK_FOLDER = "nltk_data"
GIB = 1 << 30
TOKEN = "your token as HF_TOKEN or by `hf auth login`"
SPARE_BYTES = 2 * GIB
"""Left free beside a download, for datasets and results."""
OFFLINE_NAMES = {
    "OfflineModeIsEnabled",
    "LocalEntryNotFoundError",
    "ConnectError",
    "ConnectTimeout",
    "ReadTimeout",
    "MaxRetryError",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Tasks with their samples."""

    names: tuple[str, ...]
    """Tasks and groups as the caller named them."""
    objects: list[Any]
    """lm-eval's tasks and groups."""
    sizes: dict[str, int]
    """Samples of each task."""
    sandbox: SandboxName | None = None
    """How the programs that the model writes are going to run; None where no task runs any."""


def load_tasks(
    names: Sequence[str],
    data: Path | None = None,
    limit: int | None = None,
    allow_code: bool = False,
    allow_unsafe_code: bool = False,
    revisions: Mapping[str, str] | None = None,
) -> Loaded:
    """Load the tasks, or say in one sentence why one of them cannot be evaluated."""
    wanted = check_names(names)
    members = [source for name in wanted for source in members_of(name)]
    if data is not None and not data.is_dir():
        raise UnmaskError(
            f"{data}: no such folder; --data takes the folder laid out as docs/evaluation.md says."
        )
    if limit is not None and limit < 1:
        raise UnmaskError(f"--limit is {limit}; it must be at least 1, or left out for all samples.")
    for source in members:
        if source.runs_code and not (allow_code or allow_unsafe_code):
            raise UnmaskError(
                f"{source.name} runs programs that the model writes; add --allow-code to let them run in a sandbox."
            )
        if data is not None and source.stock:
            local_files(source, data)
    if any(source.name == "ifeval" for source in members):
        _find_sentence_model(data)
    runs_code = any(source.runs_code for source in members)
    sandbox = choose_sandbox(allow_unsafe_code) if runs_code else None
    built = _load(wanted, members, data, revisions, allow_unsafe_code)
    sizes = {task.task_name: len(task.eval_docs) for task in tasks_of(built)}
    return Loaded(tuple(wanted), built, sizes, sandbox)


def _load(
    wanted: list[str],
    members: list[Source],
    data: Path | None,
    revisions: Mapping[str, str] | None,
    allow_unsafe_code: bool,
) -> list[Any]:
    from lm_eval.tasks import TaskManager

    hub = data is None and any(source.stock for source in members)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unmask-tasks-")))
        stack.enter_context(quiet())
        if any(source.runs_code for source in members):
            stack.enter_context(sandboxed_metric(allow_unsafe_code))
        write_definitions(wanted, folder, data, revisions)
        if hub:
            check_hub(members)
        manager = TaskManager(include_path=[str(folder), str(EMBEDDED_TASKS)], include_defaults=False)
        random.seed(PYTHON_SEED)
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
    """Refuse a dataset that the hub does not let us read. One that cannot be reached may still be in the cache."""
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


@contextmanager
def quiet() -> Iterator[None]:
    """Show nothing of lm-eval's log but errors, nor the bars of datasets: they are of no use to those who benchmark."""
    import datasets

    logger = logging.getLogger("lm_eval")
    level, bars = logger.level, datasets.are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()


def work_offline() -> None:
    """Take datasets and checkpoints from the cache alone. It spares retries of 23 seconds for each dataset."""
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
    # A download that fails tells so in several lines of its own.
    if not nltk.download("punkt_tab", quiet=True, print_error_to=io.StringIO()):
        raise UnmaskError(
            f"ifeval needs NLTK's sentence model punkt_tab and it cannot be downloaded; put it into "
            f"{(data or Path('DATA')) / NLTK_FOLDER / SENTENCES} and give --data, or set NLTK_DATA."
        )


def tasks_of(built: Sequence[Any]) -> Iterator[Any]:
    """Single tasks, with those of groups."""
    for item in built:
        if hasattr(item, "get_all_tasks"):  # lm-eval's groups and tasks share no base class
            yield from item.get_all_tasks()
        else:
            yield item


def dataset_commits(names: Iterable[str], api: Any) -> dict[str, str]:
    """The present commit of every hub dataset that these tasks read."""
    commits: dict[str, str] = {}
    for name in names:
        for source in members_of(name):
            if source.hub and source.stock and source.hub not in commits:
                commits[source.hub] = _commit(source.hub, api)
    return commits


def _commit(dataset: str, api: Any) -> str:
    try:
        api.auth_check(dataset, repo_type="dataset")
        return str(api.dataset_info(dataset).sha)
    except Exception as error:  # the classes differ between versions of the library
        raise explain(error, dataset, has_token()) from None


def pin_model(model: str, revision: str | None, api: Any) -> str | None:
    """The commit of a hub checkpoint, after a look at the disk; None for a local folder."""
    if Path(model).expanduser().exists() or not HUB_ID.fullmatch(model):
        return None
    try:
        info = api.model_info(model, revision=revision, files_metadata=True)
    except Exception as error:  # the classes differ between versions of the library
        raise explain(error, model, has_token(), dataset=False) from None
    wanted = [file for file in info.siblings if any(fnmatch(file.rfilename, mask) for mask in WANTED)]
    check_room(sum(file.size or 0 for file in wanted), cache_folder())
    return str(info.sha)


def check_room(needed: int, folder: Path) -> None:
    """Refuse a download that the disk, or a quota it reports, has no room for."""
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if needed + SPARE_BYTES > free:
        raise UnmaskError(
            f"The download needs {needed / GIB:.1f} GiB and {SPARE_BYTES / GIB:.0f} GiB to spare but {place} has "
            f"{free / GIB:.1f} GiB free; set HF_HOME to a folder with more room."
        )


def cache_folder() -> Path:
    """Where the hub's files are kept."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def has_token() -> bool:
    """Whether there is a hub token; its value is not read."""
    from huggingface_hub import get_token

    return get_token() is not None


def explain(error: BaseException, name: str, token: bool, dataset: bool = True) -> UnmaskError:
    """The sentence for a failed attempt to get a dataset, or a checkpoint, from the hub."""
    page = f"https://huggingface.co/{'datasets/' if dataset else ''}{name}"
    local_copy = ", or point --data to a folder with a local copy" if dataset else ""
    chain = list(_chain(error))
    text = " ".join(str(link) for link in chain).lower()
    status = _status(chain)
    if "expired" in text or "invalid user token" in text or "invalid username or password" in text:
        return UnmaskError(
            f"{name}: the hub does not accept the token (it is expired or mistyped); make a new one at "
            "https://huggingface.co/settings/tokens and give it as HF_TOKEN or by `hf auth login`."
        )
    gated = "gated" in text or any(type(link).__name__ == "GatedRepoError" for link in chain)
    refused = status == 403 or "ask for access" in text or "not in the authorized list" in text
    if refused and (gated or token):
        return UnmaskError(
            f"{name} is gated and your account may not read it yet; accept its terms at {page}{local_copy}."
        )
    if gated or (status == 401 and not token):
        return UnmaskError(f"{name} is gated: accept its terms at {page} and give {TOKEN}{local_copy}.")
    if status == 401:
        return UnmaskError(
            f"{name}: the hub does not accept the token; give another as HF_TOKEN or by `hf auth login`."
        )
    if _is_offline(chain):
        terms = (
            f"; it is gated, so accept its terms at {page} and give {TOKEN} there" if name in GATED else ""
        )
        return UnmaskError(
            f"{name} is not in the download cache and the hub cannot be reached; run `unmask prepare` where there "
            f"is a network{local_copy}{terms}."
        )
    if status == 404 or any("NotFound" in type(link).__name__ for link in chain):
        return UnmaskError(f"{name} cannot be found on the hub; see {page}{local_copy}.")
    what = " ".join(str(error).split()) or type(error).__name__
    return UnmaskError(f"{name} cannot be loaded ({redacted(what)}); see {page}{local_copy}.")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(chain: list[BaseException]) -> int | None:
    for link in chain:
        code = getattr(getattr(link, "response", None), "status_code", None)
        if isinstance(code, int):
            return code
    return None


def _is_offline(chain: list[BaseException]) -> bool:
    return any(
        isinstance(link, ConnectionError | TimeoutError)
        or type(link).__name__ in OFFLINE_NAMES
        or "offline" in str(link).lower()
        for link in chain
    )
