"""Finds the folder of a checkpoint: the embedded one, a local path, or a hub id through the hub's cache."""

import re
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.spec.recipe import EMBEDDED

ASSETS = Path(__file__).parents[1] / "assets"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
SMALL = ["*.json", "*.jinja", "*.txt"]
WANTED = [*SMALL, "*.safetensors"]


def find_checkpoint(name: str | Path, revision: str | None = None, weights: bool = True) -> Path:
    """Return the folder of a checkpoint, downloading it (with a progress bar) when `name` is a hub id.

    Without `weights` only the small files are fetched.
    """
    if revision is not None and not is_hub_id(name):
        raise UnmaskError(f"{name} has no revisions: only hub ids do, so leave the revision out.")
    if name == EMBEDDED:
        return ASSETS / EMBEDDED
    if is_hub_id(name):
        return _download(str(name), revision, WANTED if weights else SMALL)
    return Path(name).expanduser()


def is_hub_id(name: str | Path) -> bool:
    """Whether a name is looked for on the hub: it has the form of one and no such folder is here."""
    return HUB_ID.fullmatch(str(name)) is not None and not Path(name).expanduser().exists()


def _download(repository: str, revision: str | None, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    page = f"https://huggingface.co/{repository}"
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=patterns))
    except GatedRepoError:
        raise UnmaskError(
            f"{repository} is gated: accept its terms at {page} and give your token as HF_TOKEN or by `hf auth login`."
        ) from None
    except RepositoryNotFoundError:
        raise UnmaskError(
            f"{repository} is neither a local folder nor a repository on the hub that you may read; "
            "check the spelling, or give a token as HF_TOKEN if it is private."
        ) from None
    except RevisionNotFoundError:
        raise UnmaskError(
            f"{repository} has no revision {revision!r}; see {page} for those it has."
        ) from None
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, OSError):
        raise UnmaskError(
            f"{repository} is no local folder, not in the download cache, and the hub cannot be reached; "
            "download it where there is a network, or give a folder."
        ) from None
