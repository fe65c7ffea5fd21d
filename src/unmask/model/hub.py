"""Finds the folder of a checkpoint: an embedded one, a local path, or a hub id through the hub's cache.

Where its config alone is asked for, facts of published checkpoints stand in for a download.
"""

import re
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.model.config import CONFIG_FILE, ModelConfig, parse_config, read_config
from unmask.spec.published import PublishedCheckpoint, published
from unmask.spec.recipe import EMBEDDED

ASSETS = Path(__file__).parents[1] / "assets"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
SMALL = ["*.json", "*.jinja", "*.txt"]
WANTED = [*SMALL, "*.safetensors"]
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")


def find_checkpoint(name: str | Path, revision: str | None = None, weights: bool = True) -> Path:
    """Return the folder of a checkpoint, downloading it (with a progress bar) when `name` is a hub id.

    Without `weights` only the small files are fetched.
    """
    if revision is not None and not is_hub_id(name):
        raise UnmaskError(f"{name} has no revisions: only hub ids do, so leave the revision out.")
    if name in EMBEDDED:
        return ASSETS / str(name).replace("-", "_")
    if is_hub_id(name):
        return _download(str(name), revision, WANTED if weights else SMALL)
    return Path(name).expanduser()


def find_config(name: str | Path, revision: str | None = None) -> ModelConfig:
    """The config of a checkpoint, which is fetched where it is not known."""
    return known_config(name, revision) or read_config(find_checkpoint(name, revision, weights=False))


def known_config(name: str | Path, revision: str | None = None) -> ModelConfig | None:
    """The config as it is known without a network: by its folder, the hub's cache, or a published fact."""
    if not is_hub_id(name) or in_cache(str(name), revision):
        return read_config(find_checkpoint(name, revision, weights=False))
    known = published(str(name))
    return None if known is None else parse_published(known)


def parse_published(known: PublishedCheckpoint) -> ModelConfig:
    """The config of a published checkpoint by the facts that ship with the package."""
    (name,) = known.names
    return parse_config(known.config, known.generation_config, source=f"{name} (published config)")


def in_cache(repository: str, revision: str | None = None) -> bool:
    """Whether the hub's cache holds the config of a repository."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(repository, CONFIG_FILE, revision=revision), str)


def needs_download(name: str | Path, revision: str | None = None) -> bool:
    """Whether a checkpoint is one of the hub whose weights have not been fetched."""
    from huggingface_hub import try_to_load_from_cache

    if not is_hub_id(name):
        return False
    files = (try_to_load_from_cache(str(name), file, revision=revision) for file in WEIGHT_FILES)
    return not any(isinstance(file, str) for file in files)


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
