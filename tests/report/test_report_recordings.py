"""Replays: the same decoding told step by step, made once, kept with its run, and refused where it cannot be right."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from invented_store import write_store

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from cli_cases import RECIPE, write_tokenizer

from unmask.engine.engine import Engine
from unmask.errors import UnmaskError
from unmask.evaluation.lock import checkpoint_files, file_sha256
from unmask.evaluation.recordings import make_recordings, record_decoding, run_lengths
from unmask.loading import load
from unmask.model.synthetic import write_checkpoint
from unmask.report.document import Document
from unmask.report.gather import gather
from unmask.report.samples import choose, with_recordings
from unmask.spec.lock import Lock, as_text
from unmask.spec.sweep import ENGINE_REVISION, SCHEMA
from unmask.store import RunFolder, Store, canonical
from unmask.store.result import AccuracyResult, Answers
from unmask.store.run_folder import WorkerSettings

DECODE = {"threshold": 0.6, "max_new_tokens": 40, "sub_block_size": 8, "stop_tokens": ()}
REUSE = {"kind": "layer_reuse", "k": 2, "layers": [0, 1], "unit": "residual", "on": ["sub", "block"]}
PROMPT = "How much is 2 and 2, and why is it so?"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_checkpoint(RECIPE, tmp_path_factory.mktemp("models") / "text")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Engine:
    return load(checkpoint, "cpu")


@pytest.mark.parametrize("policy", [None, REUSE, {"kind": "trim"}])
def test_a_replay_tells_what_was_decoded(engine: Engine, policy: Any) -> None:
    ids = engine.tokenizer.encode(PROMPT)
    told = record_decoding(engine, ids, DECODE, policy)
    (answer,) = engine.generate([ids], DECODE, policy)
    assert told["text"] == answer.text
    assert told["tokens"] == len(answer.ids)
    assert len(told["steps"]) == sum(answer.ledger.entries.values())
    written = [column for step in told["steps"] for column, _, _ in step["written"]]
    assert len(written) == len(set(written))
    assert set(range(len(ids), len(ids) + len(answer.ids))) <= set(written)


@pytest.mark.parametrize("policy", [None, REUSE])
def test_what_was_fed_is_what_the_ledger_counted(engine: Engine, policy: Any) -> None:
    ids = engine.tokenizer.encode(PROMPT)
    told = record_decoding(engine, ids, DECODE, policy)
    (answer,) = engine.generate([ids], DECODE, policy)
    fed: dict[str, int] = {}
    for step in told["steps"]:
        fed[step["kind"]] = fed.get(step["kind"], 0) + step["fed"][1] - step["fed"][0]
        if step["kind"] in ("block", "sub"):
            assert all(step["fed"][0] <= column < step["fed"][1] for column, _, _ in step["written"])
    counted: dict[str, int] = {}
    for work, times in answer.ledger.entries.items():
        counted[work.kind] = counted.get(work.kind, 0) + work.rows * times
    assert fed == counted


def test_replayed_layers_are_marked(engine: Engine) -> None:
    steps = record_decoding(engine, engine.tokenizer.encode(PROMPT), DECODE, REUSE)["steps"]
    assert {"p2", "f2"} <= {step.get("ops") for step in steps}
    one = {**REUSE, "unit": "output", "layers": [1]}
    output = record_decoding(engine, engine.tokenizer.encode(PROMPT), DECODE, one)["steps"]
    assert {"p2", "c1f1"} <= {step.get("ops") for step in output}, "putting back an output spares every layer"


def test_confidences_and_texts_are_those_of_the_answer(engine: Engine) -> None:
    ids = engine.tokenizer.encode(PROMPT)
    told = record_decoding(engine, ids, DECODE)
    pieces = {column: text for step in told["steps"] for column, text, _ in step["written"]}
    sure = [one for step in told["steps"] for _, _, one in step["written"]]
    assert "".join(pieces[len(ids) + place] for place in range(told["tokens"])) == told["text"]
    assert all(0 < one <= 1 for one in sure)


def test_run_lengths() -> None:
    assert run_lengths("cccpp") == "c3p2"
    assert run_lengths("") == ""


@pytest.fixture
def run(tmp_path: Path, checkpoint: Path, engine: Engine) -> RunFolder:
    """A run with one answer that the engine really gave."""
    lock = Lock(
        model=str(checkpoint),
        files={file.name: file_sha256(file) for file in checkpoint_files(checkpoint)},
    )
    (tmp_path / "recipe.lock").write_text(as_text(lock))
    identity = {
        "schema": SCHEMA,
        "kind": "accuracy",
        "engine": ENGINE_REVISION,
        "weights": lock.weights,
        "dtype": None,
        "mask_token_id": None,
        "decode": {**DECODE, "max_new_tokens": 160, "stop_tokens": None},
        "policy": REUSE,
        "generation": {},
        "task": {"name": "arith", "limit": None, "chat": False},
    }
    made = Store.at(tmp_path / "results").run(
        identity,
        WorkerSettings(checkpoint=str(checkpoint), lock=str(tmp_path / "recipe.lock"), device="cpu"),
    )
    (answer,) = engine.generate([engine.tokenizer.encode(PROMPT)], {**DECODE, "stop_tokens": None}, REUSE)
    sample = {
        "id": "arith/0",
        "prompt": PROMPT,
        "answer": answer.text,
        "target": "4",
        "correct": 0.0,
        "tokens": len(answer.ids),
        "finish": answer.finish_reason,
        "scores": None,
    }
    attempt = made.folder / "attempts" / "0001"
    attempt.mkdir(parents=True)
    (attempt / "samples.jsonl").write_bytes(canonical(sample) + b"\n")
    made.publish(
        AccuracyResult(id=made.id, attempt="0001", task="arith", value=0.0, answers=Answers(sha256="a"))
    )
    return made


def test_a_replay_is_made_once_and_is_the_recorded_answer(run: RunFolder) -> None:
    (file,) = make_recordings([(run, ["arith/0"])])
    assert file == run.recording_file("arith/0")
    found = run.recording("arith/0")
    assert found is not None
    assert found["same"] is True
    end = found["prompt_tokens"] + found["tokens"]
    written = [column for step in found["steps"] for column, _, _ in step["written"]]
    assert sum(column < end for column in written) == found["tokens"]
    assert make_recordings([(run, ["arith/0"])]) == []


def test_a_replay_of_earlier_answers_is_not_taken(run: RunFolder) -> None:
    make_recordings([(run, ["arith/0"])])
    file = run.recording_file("arith/0")
    old = json.loads(file.read_text())
    file.write_text(json.dumps({**old, "of": {"attempt": "0001", "answers": "b"}}))
    assert run.recording("arith/0") is None
    file.write_text("{")
    assert run.recording("arith/0") is None


def test_other_weights_and_large_ones_are_refused(run: RunFolder, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="GB of weights"):
        make_recordings([(run, ["arith/0"])], largest=10)
    with pytest.raises(UnmaskError, match="no generated answer to arith/9"):
        make_recordings([(run, ["arith/9"])])
    (checkpoint / "added.json").write_text("{}")
    with pytest.raises(UnmaskError, match="was not there when the checkpoint was locked"):
        make_recordings([(run, ["arith/0"])])
    (checkpoint / "added.json").unlink()
    config = (checkpoint / "config.json").read_text()
    (checkpoint / "config.json").write_text(f"{config} ")
    with pytest.raises(UnmaskError, match="is not the file that was locked"):
        make_recordings([(run, ["arith/0"])])
    (checkpoint / "config.json").write_text(config)
    lock = json.loads((tmp_path / "recipe.lock").read_text())
    lock["files"]["model.safetensors"] = "0" * 64
    (tmp_path / "recipe.lock").write_text(json.dumps(lock))
    with pytest.raises(UnmaskError, match="does not hold the weights"):
        make_recordings([(run, ["arith/0"])])


def test_lost_samples_of_a_mild_configuration_are_chosen(document: Document) -> None:
    choice = choose(document.parts[0], 2)
    assert choice is not None
    assert (choice.control.configuration, choice.other.configuration) == ("k1_first", "k2_last")
    assert len(choice.samples) == 2
    assert choose(document.parts[0], 0) is None


def test_kept_replays_are_read_without_any_decoding(invented: Store, document: Document) -> None:
    said: list[str] = []
    found = with_recordings(document, invented, None, said.append)
    assert said == []
    assert found.recording_note == ""
    assert [len(one["panels"]) for one in found.recordings] == [2, 2]


def test_scored_tasks_have_nothing_to_replay(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60, configurations=["k1_first", "k2_first"], tasks=("exam",))
    assert choose(gather(store, ["05_invented"]).parts[0], 2) is None
