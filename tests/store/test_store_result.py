"""The structs of a run's files hold everything that was ever written into them, to the byte."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from store_cases import done, fields_of_a_result, identity

from unmask.errors import UnmaskError
from unmask.store import RunFolder, Store, canonical
from unmask.store.attempt import AttemptRecord, Failure, decode_answer
from unmask.store.result import AccuracyResult, AnyResult, Effect, Number, TimingResult
from unmask.store.run_folder import Retraction, WorkerSettings

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests" / "reference" / "store" / "runs"
RESULTS = sorted(RUNS.glob("*/result.json"))


def again(line: bytes, layout: Any) -> bytes:
    """A line decoded and encoded."""
    return canonical(msgspec.json.decode(line, type=layout))


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.parent.name)
def test_a_result_comes_back_to_the_byte(file: Path) -> None:
    assert again(file.read_bytes(), AnyResult) + b"\n" == file.read_bytes()


def test_results_of_all_kinds_are_among_them() -> None:
    results = [RunFolder(file.parent).result() for file in RESULTS]
    accuracies = [result for result in results if isinstance(result, AccuracyResult)]
    assert any(isinstance(result, TimingResult) for result in results)
    assert any(result.subtasks for result in accuracies)
    assert any(result.sandbox_gaps for result in accuracies)
    assert any(result.environment.gpus for result in accuracies)
    assert {path for result in accuracies for path in result.effect} == {"generation", "scoring"}


def test_settings_attempts_answers_and_samples_come_back_to_the_byte() -> None:
    lines = 0
    for run in map(RunFolder, sorted(RUNS.iterdir())):
        settings = run.folder / "worker.json"
        if settings.exists():
            assert again(settings.read_bytes(), WorkerSettings) + b"\n" == settings.read_bytes()
        for attempt in run.attempts():
            content = (attempt.folder / "attempt.json").read_bytes()
            assert again(content, AttemptRecord) + b"\n" == content
            answers = attempt.folder / "answers.jsonl"
            if answers.exists():
                kept = answers.read_bytes().splitlines()
                assert [canonical(decode_answer(line)) for line in kept] == kept
                lines += len(kept)
            if attempt.samples_file.exists():
                samples = attempt.samples_file.read_bytes().splitlines()
                assert [canonical(sample) for sample in attempt.samples()] == samples
                lines += len(samples)
    assert lines > 100


def test_a_field_without_a_place_would_be_noticed() -> None:
    content = json.loads(RESULTS[0].read_bytes())
    for place in (content, content["environment"], content["answers"]):
        place["unlisted"] = 1
        line = canonical(content)
        assert again(line, AnyResult) != line
        del place["unlisted"]


@pytest.mark.parametrize("number", [b"1", b"1.0", b"0", b"-0.0", b"1e300", b"123456789012345678901234567890"])
def test_numbers_come_back_as_they_were(number: bytes) -> None:
    value = msgspec.json.decode(number, type=Number)
    assert json.loads(canonical(value)) == json.loads(number)
    assert type(value) is type(json.loads(number))


def test_failures_and_retractions_come_back(store: Store) -> None:
    run = done(store)
    run.new_attempt().fail("no memory")
    run.retract("wrong data")
    failure = (run.attempts()[0].folder / "failure.json").read_bytes()
    assert again(failure, Failure) + b"\n" == failure
    retraction = (run.folder / "retracted.json").read_bytes()
    assert again(retraction, Retraction) + b"\n" == retraction
    assert run.retraction() == msgspec.json.decode(retraction, type=Retraction)


def test_a_result_of_an_older_version_takes_defaults(store: Store) -> None:
    run = store.run(identity())
    fields = {"id": run.id, "kind": "accuracy", "task": "gsm8k", "value": 1, "effect": {"generation": {}}}
    (run.folder / "result.json").write_bytes(canonical(fields))
    result = run.result()
    assert isinstance(result, AccuracyResult)
    assert (result.value, result.answers.sha256, result.environment.gpu) == (1, None, None)
    assert result.effect == {"generation": Effect()}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "high"}, r"Expected `int \| float`, got `str` - at `\$.value`"),
        ({"kind": "other"}, "Invalid value 'other'"),
        ({"answers": []}, r"at `\$.answers`"),
        ({"schema": 2}, "newer version of Unmask"),
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence(store: Store, change: dict[str, Any], says: str) -> None:
    run = store.run(identity())
    (run.folder / "result.json").write_bytes(canonical({**fields_of_a_result(run), **change}))
    with pytest.raises(UnmaskError, match=says) as caught:
        run.result()
    assert str(run.folder / "result.json") in str(caught.value)
    assert "\n" not in str(caught.value)
