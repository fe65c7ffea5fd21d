"""Which commits of checkpoint and datasets to fetch, and whether the disk has room for them."""

import shutil
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.access import explain, has_token
from unmask.evaluation.catalogue import members_of
from unmask.model.hub import HUB_ID, WANTED

GIB = 1 << 30
SPARE_BYTES = 2 * GIB
"""Left free beside the download, for datasets and results."""


def dataset_commits(names: Iterable[str], api: Any) -> dict[str, str]:
    """The present commit of every hub dataset that these tasks read."""
    found: dict[str, str] = {}
    for name in names:
        for source in members_of(name):
            if source.hub and source.stock and source.hub not in found:
                found[source.hub] = _commit(source.hub, api)
    return found


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
        sentence = str(explain(error, model, has_token())).replace("/datasets/", "/")
        raise UnmaskError(sentence.replace(", or point --data to a folder with a local copy", "")) from None
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
