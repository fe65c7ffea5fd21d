"""Why data cannot be had, as one sentence with what to do: gated, refused, expired, offline, unknown.

Works on exceptions alone, so that every case is tested without a network. A token is never part of a message.
"""

import os
from collections.abc import Iterator

from unmask.errors import UnmaskError

OFFLINE_NAMES = {
    "OfflineModeIsEnabled",
    "LocalEntryNotFoundError",
    "ConnectError",
    "ConnectTimeout",
    "ReadTimeout",
    "MaxRetryError",
}
LOCAL_COPY = "or point --data to a folder with a local copy"


def has_token() -> bool:
    """Whether a hub token is there; its value is not looked at."""
    from huggingface_hub import get_token

    return get_token() is not None


def explain(error: BaseException, dataset: str, token: bool) -> UnmaskError:
    """The sentence for a failed attempt to get a dataset."""
    page = f"https://huggingface.co/datasets/{dataset}"
    chain = list(_chain(error))
    text = " ".join(str(link) for link in chain).lower()
    status = _status(chain)
    if "expired" in text or "invalid user token" in text or "invalid username or password" in text:
        return UnmaskError(
            f"{dataset}: the hub does not accept the token (it is expired or mistyped); make a new one at "
            "https://huggingface.co/settings/tokens and give it as HF_TOKEN or by `hf auth login`."
        )
    gated = "gated" in text or any(type(link).__name__ == "GatedRepoError" for link in chain)
    refused = status == 403 or "ask for access" in text or "not in the authorized list" in text
    if refused and (gated or token):
        return UnmaskError(
            f"{dataset} is gated and your account may not read it yet; accept its terms at {page}, {LOCAL_COPY}."
        )
    if gated or (status == 401 and not token):
        return UnmaskError(
            f"{dataset} is gated: accept its terms at {page} and give your token as HF_TOKEN or by `hf auth login`, "
            f"{LOCAL_COPY}."
        )
    if status == 401:
        return UnmaskError(
            f"{dataset}: the hub does not accept the token; give another as HF_TOKEN or by `hf auth login`."
        )
    if _is_offline(chain):
        return UnmaskError(
            f"{dataset} is not in the download cache and the hub cannot be reached; run `unmask prepare` where there "
            f"is a network, {LOCAL_COPY}."
        )
    if status == 404 or any("NotFound" in type(link).__name__ for link in chain):
        return UnmaskError(f"{dataset} cannot be found on the hub; see {page}, {LOCAL_COPY}.")
    what = " ".join(str(error).split()) or type(error).__name__
    return UnmaskError(f"{dataset} cannot be loaded ({_without_token(what)}); see {page}, {LOCAL_COPY}.")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those it came from."""
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


def _without_token(text: str) -> str:
    token = os.environ.get("HF_TOKEN")
    return text.replace(token, "***") if token else text
