"""Bad requests and data that cannot be had end in one sentence before any model is loaded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.evaluation.task_data import dataset_commits, explain, load_tasks, pin_model, quiet

pytestmark = pytest.mark.usefixtures("lm_eval")


def refused(names: str, data: Path | None, **options: Any) -> str:
    with pytest.raises(UnmaskError) as caught:
        load_tasks(names.split(","), data, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize(
    "name, near", [("gsm8", "gsm8k"), ("mmlu_anatomie", "mmlu_anatomy"), ("gpqa_main", "gpqa_main_n_shot")]
)
def test_an_unknown_task_gets_the_nearest_names(name: str, near: str, invented: Path) -> None:
    sentence = refused(name, invented)
    assert repr(name) in sentence
    assert near in sentence


def test_no_name_is_like_it(invented: Path) -> None:
    assert "docs/evaluation.md" in refused("§§§", invented)
    assert "--tasks gsm8k" in refused(" ,", invented)


def test_a_task_twice(invented: Path) -> None:
    assert "mmlu_anatomy is asked for twice" in refused("mmlu_anatomy,mmlu", invented)


def test_data_that_is_not_there(tmp_path: Path) -> None:
    assert "no such folder" in refused("gsm8k", tmp_path / "none")
    assert "no such folder" in refused("unmask_arith", tmp_path / "none"), (
        "also where nothing is read from it"
    )
    sentence = refused("gsm8k", tmp_path)
    assert "gsm8k/train.jsonl is missing" in sentence
    assert "openai/gsm8k" in sentence
    assert "gpqa/gpqa_main.jsonl is missing" in refused("gpqa_main_zeroshot", tmp_path)


def test_rows_of_another_schema(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "gsm8k").mkdir(exist_ok=True)
        (tmp_path / f"gsm8k/{split}.jsonl").write_text('{"frage": 1}\n')
    assert "gsm8k cannot be loaded from" in refused("gsm8k", tmp_path)


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_that_means_nothing(limit: int, invented: Path) -> None:
    assert f"--limit is {limit}" in refused("gsm8k", invented, limit=limit)


def test_a_limit_beyond_the_set_takes_all_of_it(invented: Path) -> None:
    assert load_tasks(["gsm8k"], invented, limit=4).sizes == {"gsm8k": 3}


def test_programs_run_only_when_allowed(invented: Path) -> None:
    assert "--allow-code" in refused("humaneval", invented)


def test_a_sentence_model_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    (tmp_path / "ifeval").mkdir()
    (tmp_path / "ifeval/input_data.jsonl").write_text("{}\n")
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk, "download", lambda *_, **__: False)
    assert "punkt_tab" in refused("ifeval", tmp_path)


def test_a_sentence_model_that_cannot_be_downloaded_is_told_in_one_sentence_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import nltk

    (tmp_path / "ifeval").mkdir()
    (tmp_path / "ifeval/input_data.jsonl").write_text("{}\n")
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk.downloader._downloader, "_url", "http://127.0.0.1:9/index.xml")
    assert "punkt_tab" in refused("ifeval", tmp_path)
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")


def test_progress_bars_of_datasets_are_off_while_tasks_are_loaded(invented: Path) -> None:
    import datasets

    before = datasets.are_progress_bars_disabled()
    with quiet():
        assert datasets.are_progress_bars_disabled()
    assert datasets.are_progress_bars_disabled() == before


def test_a_gated_set_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked = []

    class Api:
        def auth_check(self, dataset: str, repo_type: str) -> None:
            asked.append((dataset, repo_type))
            failure: Any = type("GatedRepoError", (Exception,), {})("Access to dataset is restricted")
            failure.response = type("Reply", (), {"status_code": 401})
            raise failure

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    sentence = refused("gpqa_diamond_zeroshot", None)
    assert asked == [("Idavidrein/gpqa", "dataset")]
    assert "accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa" in sentence


def test_offline_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert "cannot be reached" in refused("gsm8k", None)
    gated = refused("gpqa_main_zeroshot", None)
    assert "it is gated, so accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa" in gated
    assert "HF_TOKEN" in gated
    assert "HF_TOKEN" not in refused("gsm8k", None)


class Api:
    """A hub with one checkpoint and all datasets."""

    asked: list[str]

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked = []

    def model_info(self, model: str, revision: str | None, files_metadata: bool) -> Any:
        assert (model, revision, files_metadata) == ("org/name", None, True)
        files = [
            SimpleNamespace(rfilename="model.safetensors", size=self.size),
            SimpleNamespace(rfilename="movie.mp4", size=1 << 60),
        ]
        return SimpleNamespace(sha="abc", siblings=files)

    def auth_check(self, dataset: str, repo_type: str) -> None:
        assert repo_type == "dataset"
        self.asked.append(dataset)

    def dataset_info(self, dataset: str) -> Any:
        return SimpleNamespace(sha=f"sha of {dataset}")


def test_commits_are_pinned_and_room_is_checked_before_a_download(tmp_path: Path) -> None:
    assert pin_model("org/name", None, Api(10)) == "abc"
    assert pin_model(str(tmp_path), None, Api(10)) is None
    with pytest.raises(UnmaskError, match="set HF_HOME"):
        pin_model("org/name", None, Api(1 << 60))
    api = Api(10)
    assert dataset_commits(["gsm8k", "mmlu", "unmask_arith"], api) == {
        "openai/gsm8k": "sha of openai/gsm8k",
        "cais/mmlu": "sha of cais/mmlu",
    }
    assert api.asked == ["openai/gsm8k", "cais/mmlu"]


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


def test_a_checkpoint_has_a_page_of_its_own_and_no_local_data() -> None:
    for failure, token in CASES.values():
        sentence = str(explain(failure, "org/name", token, dataset=False))
        assert "huggingface.co/datasets" not in sentence
        assert "--data" not in sentence
        assert sentence.endswith(".")


def test_sentences_differ() -> None:
    kinds = ["no token", "not accepted", "expired", "offline", "gone"]
    assert len({str(explain(*CASES[kind][:1], GPQA, CASES[kind][1])) for kind in kinds}) == len(kinds)


def test_a_token_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_word")
    sentence = str(explain(ValueError("bad header: Bearer hf_secret_word"), GPQA, True))
    assert "secret" not in sentence
