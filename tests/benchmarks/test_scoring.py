"""Scoring costs a fraction of one forward a choice: rows are counted here, times are for the script to tell."""

import json
import os
from pathlib import Path

import pytest
import torch

import scoring
import unmask
from mmlu_questions import questions, write_invented
from unmask.engine.score import ScoreRequest
from unmask.model.hub import find_checkpoint

SUBJECT = "anatomy"
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries under lm-eval


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["TQDM_DISABLE"] = "1"
    import datasets

    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    datasets.disable_progress_bars()


@pytest.fixture(scope="module")
def engine() -> unmask.Engine:
    return unmask.load("embedded", "cpu", "float32")


@pytest.fixture(scope="module")
def invented(engine: unmask.Engine, tmp_path_factory: pytest.TempPathFactory) -> list[ScoreRequest]:
    return questions(engine, SUBJECT, write_invented(tmp_path_factory.mktemp("data"), SUBJECT), limit=3)


def row_ratio(engine: unmask.Engine, requests: list[ScoreRequest]) -> float:
    plain = scoring.PlainScorer(engine, find_checkpoint("embedded"))
    plain_rows = sum(plain.length(one) for one in requests)
    return sum(scoring.rows_of(engine.score(requests)).values()) / plain_rows


def test_invented_questions_cost_at_most_two_fifths(
    engine: unmask.Engine, invented: list[ScoreRequest]
) -> None:
    assert len(invented) == 12
    assert row_ratio(engine, invented) <= scoring.LIMIT


@pytest.mark.slow
def test_a_real_subject_costs_at_most_two_fifths(engine: unmask.Engine) -> None:
    shared = Path(__file__).parents[3] / "shared/data"
    data = Path(os.environ.get("UNMASK_DATA", shared))
    if not (data / f"mmlu/test/{SUBJECT}.jsonl").is_file():
        pytest.skip("no benchmark data here; set UNMASK_DATA to a folder in the documented layout")
    requests = questions(engine, SUBJECT, data)
    assert len(requests) == 4 * 135
    assert row_ratio(engine, requests) <= scoring.LIMIT


def test_the_plain_way_feeds_every_choice_and_scores_alike(
    engine: unmask.Engine, invented: list[ScoreRequest]
) -> None:
    plain = scoring.PlainScorer(engine, find_checkpoint("embedded"))
    alone = plain.score(invented)
    fed = plain.rows
    assert fed == sum(plain.length(one) for one in invented)
    assert plain.score(invented, together=True) == pytest.approx(alone, abs=scoring.TOLERANCE)
    assert plain.rows == fed
    assert scoring.refuse_difference(engine, plain, invented, batch_size=4) <= scoring.TOLERANCE


def test_no_time_where_scores_differ(
    engine: unmask.Engine, invented: list[ScoreRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = scoring.PlainScorer(engine, find_checkpoint("embedded"))
    monkeypatch.setattr(plain, "score", lambda requests: [0.0] * len(requests))
    with pytest.raises(SystemExit, match="no time is given"):
        scoring.refuse_difference(engine, plain, invented, batch_size=4)


@pytest.mark.usefixtures("engine")
def test_the_script_ends_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    scoring.main(["--limit", "1", "--repeats", "1"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["requests"], report["task"]) == (4, "mmlu_anatomy (invented questions)")
    assert report["row_ratio"] <= scoring.LIMIT
    assert set(report["contenders"]) == {"unmask", "each", "together"}
