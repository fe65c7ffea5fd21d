"""What the tests of this folder share: a data folder, a text model, and no network."""

import os
from pathlib import Path

import pytest

os.environ["TQDM_DISABLE"] = "1"

REPOSITORY = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of the libraries under lm-eval are not ours to mend."""
    for item in items:
        if Path(__file__).parent in item.path.parents and "lm_eval" in item.fixturenames:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hashes of weights are remembered in a folder of the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def lm_eval(tmp_path_factory: pytest.TempPathFactory) -> None:
    """lm-eval, imported with its caches in a folder of the tests."""
    import datasets

    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    datasets.disable_progress_bars()


@pytest.fixture(scope="session")
def invented(tmp_path_factory: pytest.TempPathFactory, lm_eval: None) -> Path:
    """Invented rows for every task."""
    from invented import write_data

    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The published rows, where they are."""
    folder = Path(os.environ.get("UNMASK_DATA", REPOSITORY.parent / "shared/data"))
    if not (folder / "gsm8k/test.jsonl").is_file():
        pytest.skip("no benchmark data here; set UNMASK_DATA to a folder in the documented layout")
    return folder


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that reads and writes text."""
    from text_model import write_text_model

    return write_text_model(tmp_path_factory.mktemp("checkpoint"))
