"""Why data cannot be had: one sentence each, told apart by the exception alone."""

from typing import Any

import pytest

from unmask.evaluation.access import explain

GPQA = "Idavidrein/gpqa"


class Answer:
    """A reply of the hub."""

    def __init__(self, status: int) -> None:
        self.status_code = status


def error(name: str, text: str, status: int | None = None, cause: BaseException | None = None) -> Exception:
    """An exception as the libraries raise them, by class name, text and reply."""
    found: Any = type(name, (Exception,), {})(text)
    if status:
        found.response = Answer(status)
    found.__cause__ = cause
    return found  # type: ignore[no-any-return]


GATED = f"Dataset '{GPQA}' is a gated dataset on the Hub."
CASES = {
    "no token": (error("DatasetNotFoundError", f"{GATED} You must be authenticated to access it."), False),
    "no token, as the hub says it": (error("GatedRepoError", "401 Client Error", 401), False),
    "not accepted": (
        error("DatasetNotFoundError", f"{GATED} Visit the dataset page at https://... to ask for access."),
        True,
    ),
    "not accepted, as the hub says it": (error("GatedRepoError", "403 Client Error", 403), True),
    "expired": (error("HfHubHTTPError", "401: User Access Token 'x' is expired", 401), True),
    "mistyped": (error("HfHubHTTPError", "Invalid user token.", 401), True),
    "offline": (ConnectionError("Couldn't reach the Hub (OfflineModeIsEnabled)"), True),
    "no network": (error("ConnectError", "[Errno -2] Name or service not known"), False),
    "wrapped": (error("RuntimeError", "failed", cause=ConnectionError("no route")), False),
    "gone": (error("RepositoryNotFoundError", "404 Client Error", 404), True),
    "anything else": (ValueError("odd rows"), True),
}
WORDS = {
    "no token": ["https://huggingface.co/datasets/Idavidrein/gpqa", "HF_TOKEN", "hf auth login", "--data"],
    "no token, as the hub says it": ["is gated", "HF_TOKEN", "--data"],
    "not accepted": ["your account may not read it yet", "https://huggingface.co/datasets/Idavidrein/gpqa"],
    "not accepted, as the hub says it": ["your account may not read it yet"],
    "expired": ["expired", "https://huggingface.co/settings/tokens"],
    "mistyped": ["mistyped"],
    "offline": ["cannot be reached", "unmask prepare"],
    "no network": ["cannot be reached"],
    "wrapped": ["cannot be reached"],
    "gone": ["cannot be found"],
    "anything else": ["odd rows"],
}


@pytest.mark.parametrize("case", CASES)
def test_each_failure_has_its_sentence(case: str) -> None:
    failure, token = CASES[case]
    sentence = str(explain(failure, GPQA, token))
    assert all(word in sentence for word in WORDS[case])
    assert sentence.count("\n") == 0
    assert sentence.endswith(".")


def test_sentences_differ() -> None:
    kinds = ["no token", "not accepted", "expired", "offline", "gone"]
    assert len({str(explain(*CASES[kind][:1], GPQA, CASES[kind][1])) for kind in kinds}) == len(kinds)


def test_a_token_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_word")
    sentence = str(explain(ValueError("bad header: Bearer hf_secret_word"), GPQA, True))
    assert "secret" not in sentence
