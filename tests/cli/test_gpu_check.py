"""`unmask gpu-check`: parts fail one by one, verdicts say what was found, and the folder holds nothing private."""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_cases import Run

from checkpoints import write_small
from unmask.evaluation.device_parts import NEW_TOKENS, Place, compared, launches, memory, published, speed
from unmask.lab import gpu_check as checking
from unmask.lab.gpu_parts import NAMES, CheckPart, CheckRequest, Done, PartVerdict, parts_of

WELL = [
    {"name": "torch", "well": True, "says": "2.13"},
    {"name": "GPU", "well": True, "says": "a card: they fit"},
]


def answered(finding: str) -> Callable[[Done], PartVerdict]:
    return lambda done: PartVerdict(finding, "good", json.loads(done.output)[0]["name"])


def wanted(folder: Path, **fields: Any) -> CheckRequest:
    return CheckRequest("embedded", "cpu", None, folder, **fields)


def judged(part: str, document: Any, scratch: Path, code: int = 0, **used: Any) -> PartVerdict:
    known = {"device": None, "dtype": "float16"} | used
    return parts_of(wanted(scratch / "out"), known, scratch)[part].judge(Done(code, json.dumps(document)))


def test_a_part_that_fails_or_hangs_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        CheckPart("works", 60, ("doctor", "--json"), answered("works")),
        CheckPart("fails", 60, ("no-such-verb",), answered("fails")),
        CheckPart("hangs", 0.1, ("doctor", "--json"), answered("hangs")),
        CheckPart("has nothing to do", 60, (), answered("has nothing to do")),
    ]
    monkeypatch.setattr(checking, "NAMES", [part.name for part in parts])
    monkeypatch.setattr(checking, "parts_of", lambda *_: {part.name: part for part in parts})
    news = list(checking.gpu_check(wanted(tmp_path / "out")))
    findings = [each for each in news if isinstance(each, PartVerdict)]
    assert [(each.part, each.verdict) for each in findings] == [
        ("works", "good"),
        ("fails", "failed"),
        ("hangs", "failed"),
        ("has nothing to do", "skipped"),
    ]
    assert "no-such-verb" in findings[1].says
    assert findings[2].says == "it took longer than 0 seconds"
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [part["verdict"] for part in summary["parts"]] == [each.verdict for each in findings]
    page = (tmp_path / "out" / "summary.md").read_text()
    assert all(f"| {each.part} | {each.verdict} |" in page for each in findings)


def test_no_time_left_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "NAMES", ["doctor", "canary sweep"])
    findings = list(checking.gpu_check(wanted(tmp_path / "out", seconds=5.0)))[1::2]
    assert [(each.verdict, each.says) for each in findings if isinstance(each, PartVerdict)] == [
        ("skipped", "no time was left")
    ] * 2


def test_the_folder_names_no_secret_and_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "hf_" + "a1B2" * 9
    monkeypatch.setenv("HF_TOKEN", token)
    said = f"{token} in {tmp_path / 'out'} of {Path.home()}/x on {platform.node()}"
    part = CheckPart("speaks", 60, ("generate", "--ids", said), answered("speaks"))
    monkeypatch.setattr(checking, "NAMES", ["speaks"])
    monkeypatch.setattr(checking, "parts_of", lambda *_: {"speaks": part})
    list(checking.gpu_check(wanted(tmp_path / "out")))
    for file in (tmp_path / "out").rglob("*"):
        text = file.read_text() if file.is_file() else ""
        assert token not in text
        assert str(tmp_path) not in text
        assert f"{Path.home()}/x" not in text
        assert f"on {platform.node()}" not in text
    assert "of ~/x on this-host" in (tmp_path / "out" / "logs" / "speaks.txt").read_text()


@pytest.mark.parametrize(
    ("part", "document", "verdict", "says"),
    [
        ("doctor", WELL, "good", "GPU: a card: they fit"),
        ("doctor", [WELL[0], WELL[1] | {"well": False, "says": "no code"}], "bad", "GPU: no code"),
        ("doctor", [WELL[0], WELL[1] | {"well": None, "says": "none"}], "bad", "no GPU is seen"),
        (
            "doctor",
            [*WELL, {"name": "lm_eval", "well": False, "says": "x"}],
            "good",
            "not needed here: lm_eval",
        ),
        ("conformance in float32", {"equal": 3, "different": 0, "vectors": []}, "good", "3 of 3"),
        ("conformance in float32", {"equal": 2, "different": 1, "vectors": []}, "bad", "2 of 3"),
        ("conformance in the working format", {"agreed": 99, "positions": 100}, "good", "99.00%"),
        ("conformance in the working format", {"agreed": 96, "positions": 100}, "bad", "96 of 100"),
        ("memory", {"verdict": "bad", "says": "too much", "ratio": 2}, "bad", "too much"),
    ],
)
def test_verdicts(tmp_path: Path, part: str, document: Any, verdict: str, says: str) -> None:
    finding = judged(part, document, tmp_path)
    assert finding.verdict == verdict
    assert says in finding.says


def test_without_a_gpu_the_cpu_must_be_asked_for(tmp_path: Path) -> None:
    none = [WELL[0], WELL[1] | {"well": None, "says": "none is seen"}]
    assert judged("doctor", none, tmp_path, device="cpu").verdict == "good"


def test_every_part_has_a_command_that_there_is(tmp_path: Path) -> None:
    parts = parts_of(
        wanted(tmp_path / "out", run_published_code=True), {"device": "cpu", "dtype": "bfloat16"}, tmp_path
    )
    assert tuple(parts) == NAMES
    assert all(part.command for part in parts.values())
    assert "--run-published-code" in parts["published code"].command
    assert sum(part.seconds for part in parts.values()) >= 600


def test_parts_measure_a_checkpoint_on_the_cpu(tmp_path: Path) -> None:
    place = Place(str(write_small(tmp_path / "model")), "cpu", "float32")
    fast, counted = speed(place), launches(place)
    assert set(fast["kinds"]) >= {"block", "sub", "commit"}
    assert [part["batch_size"] for part in fast["batches"]] == [1, 4, 16]
    assert all(part["tokens_per_second"] > 0 for part in fast["batches"])
    assert counted["kinds"]["sub"]["operations"] > 2 * 15
    assert memory(place)["peak_bytes"] > 0
    assert published(place, allowed=True)["verdict"] == "skipped"


def test_published_code_is_run_only_where_it_is_allowed(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "model")
    (folder / "modeling.py").write_text("raise SystemExit('it was run')")
    refused = published(Place(str(folder), "cpu", "float32"), allowed=False)
    assert refused["verdict"] == "skipped"


def test_answers_are_compared_up_to_the_end_of_the_shorter() -> None:
    answers = [[1, 2, 3], [4, 5, 6], [7, 8], [1] * NEW_TOKENS]
    others = iter([[1, 2, 3, 9, 9], [4, 9, 6], [7, 8, 0, 0, 3], [1] * (NEW_TOKENS + 8)])
    found = compared([[0]] * 4, answers, lambda _: next(others), stops={3})
    assert (found["equal"], found["parted"], found["verdict"]) == (3, [{"prompt": 1, "token": 1}], "good")
    wrong = compared([[0]] * 6, [[1]] * 6, lambda _: [2], stops=set())
    assert (wrong["equal"], wrong["verdict"]) == (0, "bad")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no/checkpoint"], "no/checkpoint is not here; fetch it first"),
        (["--output", "."], "is there already; name a new folder"),
    ],
)
def test_bad_input_gets_a_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    failed = run("gpu-check", *arguments)
    assert failed.exit_code == 2
    assert sentence in failed.stderr


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part, in float16 so that none is left out, on a small checkpoint."""
    monkeypatch.chdir(tmp_path)
    model = str(write_small(tmp_path / "model"))
    empty = tmp_path / "no-vectors"
    empty.mkdir()
    done = run(
        "gpu-check", model, "--device", "cpu", "--dtype", "float16", "-o", "out", "--vectors", str(empty)
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    found = {part["part"]: (part["verdict"], part["says"]) for part in summary["parts"]}
    assert tuple(found) == NAMES
    canary = found.pop("canary sweep")  # this checkpoint has no tokenizer
    assert canary[0] == "failed"
    assert "tokenizer" in canary[1]
    assert {verdict for verdict, _ in found.values()} <= {"good", "skipped"}, found
    assert done.exit_code == 1
    assert all(f"{number:2}/10 " in done.stdout for number in range(1, 11))
