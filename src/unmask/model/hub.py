"""Finds the folder of a checkpoint: a local path as it is, a hub id through huggingface_hub's cache."""

import re
from pathlib import Path

from unmask.errors import UnmaskError

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
WANTED = ["*.json", "*.safetensors", "*.jinja", "*.txt"]


def find_checkpoint(name: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a checkpoint, downloading it (with a progress bar) when `name` is a hub id."""
    folder = Path(name).expanduser()
    if folder.exists() or not HUB_ID.fullmatch(str(name)):
        return folder
    return _download(str(name), revision)


def _download(repository: str, revision: str | None) -> Path:
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
        return Path(snapshot_download(repository, revision=revision, allow_patterns=WANTED))
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
