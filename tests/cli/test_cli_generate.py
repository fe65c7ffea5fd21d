"""`unmask generate`: text, ids and JSON lines in; text, JSON and files out."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_cases import Run

import unmask
from unmask.engine.engine import Engine
from unmask.engine.events import collect
from unmask.engine.forward import Workspace
from unmask.errors import UnmaskError
from unmask.model.tokenizer import Tokenizer

SHORT = ["--max-new-tokens", "12"]


def document(run: Run, *arguments: object) -> dict[str, Any]:
    result = run("generate", *arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def test_json_holds_what_the_library_gives(run: Run, text_model: Path):
    ids = [72, 101, 108, 108, 111]
    given = document(run, "--ids", "72,101 108,108,111", "--model", text_model, *SHORT)
    (expected,) = unmask.load(text_model).generate(ids, {"max_new_tokens": 12})
    (answer,) = given["answers"]
    assert answer == {
        "id": 1,
        "text": expected.text,
        "ids": expected.ids,
        "finish_reason": expected.finish_reason,
        "prompt_tokens": 5,
        "batch_size": 16,
        "ledger": expected.ledger.as_dict(),
    }
    assert given["decode"]["max_new_tokens"] == 12
    assert (given["device"], given["dtype"]) == ("cpu", "float32")
    assert given["tokens"] == len(expected.ids)
    assert given["tokens_per_second"] == pytest.approx(given["tokens"] / given["seconds"])


def test_text_goes_to_stdout_and_the_summary_to_stderr(run: Run, text_model: Path):
    (answer,) = document(run, "hello", "--model", text_model, *SHORT)["answers"]
    result = run("generate", "hello", "--raw", "--model", text_model, *SHORT)
    assert result.stdout == answer["text"] + "\n"
    steps = answer["ledger"]["steps"]
    assert result.stderr.startswith("12 tokens in ")
    assert f"{sum(steps.values())} forwards ({steps['block']} block" in result.stderr
    assert result.stderr.endswith("finished by length\n")


def test_several_answers_are_numbered(run: Run, text_model: Path):
    result = run("generate", "one", "two", "--model", text_model, *SHORT)
    assert result.stdout.startswith("[1] ")
    assert "\n\n[2] " in result.stdout
    assert result.stderr.endswith("finished by 2 length\n")


def prompt_tokens(run: Run, model: Path, *arguments: object) -> int:
    count: int = document(run, *arguments, "--model", model, *SHORT)["answers"][0]["prompt_tokens"]
    return count


def test_text_is_raw_unless_chat_is_asked_for(run: Run, text_model: Path):
    assert prompt_tokens(run, text_model, "hello") == len("hello")
    assert prompt_tokens(run, text_model, "hello", "--raw") == len("hello")
    assert prompt_tokens(run, text_model, "hello", "--chat") == len("<user>hello\n<assistant>")


def test_messages_are_always_a_chat(run: Run, text_model: Path, tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"prompt": [{"role": "user", "content": "hello"}]}))
    for flags in ([], ["--raw"], ["--chat"]):
        assert prompt_tokens(run, text_model, "--input", source, *flags) == len("<user>hello\n<assistant>")


@pytest.mark.parametrize("flags, chat", [([], False), (["--raw"], False), (["--chat"], True)])
def test_the_library_and_the_command_line_chat_alike(
    run: Run, text_model: Path, flags: list[str], chat: bool
):
    (given,) = document(run, "hello", "--model", text_model, *SHORT, *flags)["answers"]
    engine = unmask.load(text_model)
    (expected,) = engine.generate("hello", {"max_new_tokens": 12}, chat=chat)
    assert given["ids"] == expected.ids
    (streamed,) = collect(engine.stream("hello", {"max_new_tokens": 12}, chat=chat))
    assert streamed == expected
    messages = [{"role": "user", "content": "hello"}]
    assert (engine.generate(messages, {"max_new_tokens": 12})[0].ids == expected.ids) is chat


def test_a_template_that_nobody_chose_is_hinted_at_in_one_line(run: Run, text_model: Path, spoiled: Path):
    def hints(*arguments: object) -> list[str]:
        lines = run("generate", *arguments, *SHORT).stderr.splitlines()
        return [line for line in lines if "chat template" in line]

    (hint,) = hints("hello", "--model", text_model)
    assert hint.startswith("Hint: ")
    assert "--chat" in hint
    for chosen in ("--chat", "--raw", "--json"):
        assert hints("hello", "--model", text_model, chosen) == []
    assert hints("--ids", "1,2", "--model", text_model) == []
    (spoiled / "tokenizer_config.json").write_text("{}")
    assert hints("hello", "--model", spoiled) == []


def test_chat_needs_a_template(run: Run, spoiled: Path):
    (spoiled / "tokenizer_config.json").write_text("{}")
    assert "has no chat template" in run("generate", "hello", "--chat", "--model", spoiled).stderr
    with pytest.raises(UnmaskError, match="has no chat template"):
        unmask.load(spoiled).generate("hello", chat=True)


def test_the_tokenizer_is_built_once(run: Run, text_model: Path, monkeypatch: pytest.MonkeyPatch):
    built: list[Path] = []
    from_folder = Tokenizer.from_folder

    def noted(folder: Path) -> Tokenizer:
        built.append(folder)
        return from_folder(folder)

    monkeypatch.setattr(Tokenizer, "from_folder", noted)
    assert run("generate", "hello", "--model", text_model, *SHORT).exit_code == 0
    assert built == [text_model]


def test_options_win_over_the_decode_file(run: Run, text_model: Path, tmp_path: Path):
    file = tmp_path / "decode.toml"
    file.write_text('max_new_tokens = 9\nthreshold = 0.5\ncache = "none"\nstop_tokens = [7]\n')
    flags = ["--max-new-tokens", "5", "--stop-token", "3", "--stop-token", "4", "--stop", "\n\n"]
    decode = document(run, "hello", "--model", text_model, "--decode", file, *flags)["decode"]
    assert (decode["max_new_tokens"], decode["threshold"], decode["cache"]) == (5, 0.5, "none")
    assert (decode["stop_tokens"], decode["stop_strings"]) == ([3, 4], ["\n\n"])


def write_prompts(file: Path) -> Path:
    lines = [
        {"prompt": "hello", "id": "text"},
        {"prompt": [1, 2, 3], "max_new_tokens": 3},
        {"prompt": [{"role": "user", "content": "hello"}], "id": 17, "seed": 5},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)))
    return file


def test_json_lines_in_and_out(run: Run, text_model: Path, tmp_path: Path):
    source, output = write_prompts(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    flags = ["--model", text_model, "--batch-size", 2, *SHORT]
    result = run("generate", "--input", source, "--output", output, *flags)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [answer["id"] for answer in answers] == ["text", 3, 17]
    assert [len(answer["ids"]) for answer in answers] == [12, 3, 12]
    assert answers[0]["prompt_tokens"] < answers[2]["prompt_tokens"], "text is raw, messages are a chat"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    piped = run("generate", "--input", "-", *flags, stdin=source.read_text())
    assert piped.stdout == output.read_text()


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every decoding is interrupted after its first event."""
    stream = Engine.stream

    def broken(self: Engine, *arguments: Any, **options: Any) -> Iterator[Any]:
        yield next(stream(self, *arguments, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "stream", broken)


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_run_leaves_the_old_file(run: Run, text_model: Path, tmp_path: Path):
    source, output = write_prompts(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    output.write_text("old\n")
    result = run("generate", "--raw", "--input", source, "--output", output, "--model", text_model)
    assert result.exit_code == 130
    assert result.stderr == "Interrupted.\n"
    assert output.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.filterwarnings("default")
def test_a_halved_batch_is_told_and_recorded(run: Run, text_model: Path, monkeypatch: pytest.MonkeyPatch):
    workspace = Engine.workspace

    def scarce(self: Engine, slots: int, *arguments: Any) -> Workspace:
        if slots > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return workspace(self, slots, *arguments)

    monkeypatch.setattr(Engine, "workspace", scarce)
    result = run("generate", "one", "two", "--json", "--model", text_model, *SHORT)
    assert result.exit_code == 0, result.output
    assert result.stderr == "Warning: Memory ran out: the batch is halved from 2 to 1.\n"
    assert [answer["batch_size"] for answer in json.loads(result.stdout)["answers"]] == [1, 1]


def test_a_checkpoint_without_tokenizer_gives_ids(run: Run, bare_model: Path):
    (answer,) = document(run, "--ids", "5,6", "--model", bare_model, *SHORT)["answers"]
    assert answer["text"] is None
    result = run("generate", "--ids", "5,6", "--model", bare_model, *SHORT)
    assert list(map(int, result.stdout.split())) == answer["ids"]


def on_a_terminal(*arguments: object) -> str:
    """Everything that the command line writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = os.environ | {
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        "LINES": "24",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", "from unmask.cli import main; main()", *map(str, arguments)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    assert process.returncode == 0, written.decode()
    return written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux reports the end of a terminal's output so
        return b""


def test_a_terminal_shows_the_unmasking(bare_model: Path):
    written = on_a_terminal("generate", "--ids", "5,6", "--model", bare_model, *SHORT)
    assert "Loading bare" in written
    assert "░░░░" in written
    assert "tokens per forward" in written
    assert written.rstrip().endswith("finished by length")


def test_a_terminal_shows_a_bar_for_many(text_model: Path, tmp_path: Path):
    source, output = write_prompts(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    written = on_a_terminal("generate", "-i", source, "-o", output, "-m", text_model, *SHORT)
    assert "3/3 answers" in written
    assert "tokens/s" in written
    assert len(output.read_text().splitlines()) == 3
