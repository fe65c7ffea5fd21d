"""`unmask chat`, line by line and in a pseudo-terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cli_cases import Run, error_line

import unmask
from unmask.play.conversation import Conversation

QUESTION = "Tom has 12 pens. Tom buys 5 more pens. Then Tom sells 9 pens. How many pens does Tom have now?"
STEERING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


def test_without_a_terminal_every_line_is_a_turn(run: Run) -> None:
    lines = [QUESTION, "", "/policy trim:keep=0", "/threshold 0.8", QUESTION]
    result = run("chat", stdin="\n".join([*lines, "/stats"]))
    assert result.exit_code == 0, result.output
    (expected,) = unmask.load("embedded").generate(f"Question: {QUESTION}\nAnswer:")
    assert result.stdout.startswith(str(expected.text).strip())
    assert result.stdout.count("####") == 2
    assert "word problems" in result.stderr
    assert "2 answers, " in result.stderr
    assert " 0% of the layer work" not in result.stderr


def test_turns_go_through_the_template_and_stay_until_reset(text_model: Path) -> None:
    engine = unmask.load(text_model)
    conversation = Conversation(engine, {"max_new_tokens": 8})
    assert "chat template" in conversation.manner
    (first,) = [event.generation for event in conversation.stream("Hi") if hasattr(event, "generation")]
    conversation.keep("Hi", first, 0.1)
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And?"},
    ]
    assert conversation.prompt("And?") == messages
    (second,) = [event.generation for event in conversation.stream("And?") if hasattr(event, "generation")]
    (expected,) = engine.generate([messages], {"max_new_tokens": 8})
    assert second.ids == expected.ids
    conversation.reset()
    assert conversation.prompt("And?") == messages[-1:]
    assert conversation.answers == 1


def test_without_a_template_turns_follow_each_other_as_they_stand(text_model: Path, spoiled: Path) -> None:
    settings = spoiled / "tokenizer_config.json"
    settings.write_text(settings.read_text().replace('"chat_template"', '"other"'))
    conversation = Conversation(unmask.load(spoiled), {"max_new_tokens": 8})
    assert "no chat template" in conversation.manner
    (first,) = [event.generation for event in conversation.stream("Hi") if hasattr(event, "generation")]
    conversation.keep("Hi", first, 0.1)
    assert conversation.prompt("And?") == f"Hi\n{first.text}\nAnd?"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("/threshold high", "threshold is 'high'; it must be a number."),
        ("/threshold 2", "threshold is 2"),
        ("/policy trim:keep=2", "keep is 2.0"),
        ("/cache prefix", "choose among dual, none"),
        ("/tempo 3", "There is no setting tempo"),
        ("/policy", "/help lists the commands"),
        ("x" * 20_000, "context"),
    ],
)
def test_a_bad_line_ends_a_chat_without_terminal(run: Run, line: str, sentence: str) -> None:
    result = run("chat", stdin=line)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""


def test_a_checkpoint_without_tokenizer_is_refused(run: Run, bare_model: Path) -> None:
    assert "tokenizer" in error_line(run("chat", "--model", bare_model, stdin="Hi"))


class Terminal:
    """A process in a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "unmask", *arguments]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Read until a text appears; return what came since the last call, without what steers the terminal."""
        deadline = time.monotonic() + seconds
        while text not in STEERING.sub("", self.seen):
            assert time.monotonic() < deadline, f"waited for {text!r} in {self.seen!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 1 << 16).decode(errors="replace")
        whole = STEERING.sub("", self.seen)
        end = whole.index(text) + len(text)
        self.seen = whole[end:]
        return whole[:end]

    def type(self, line: str) -> None:
        os.write(self.master, line.encode() + b"\n")

    def wait_for_quiet(self, seconds: float = 60) -> None:
        """Until the process waits for a key: a signal that comes just before that is seen at the next key only."""
        process, idle = psutil.Process(self.process.pid), 0
        deadline = time.monotonic() + seconds
        while idle < 5:
            assert time.monotonic() < deadline, "the process never waits"
            idle = idle + 1 if process.status() == psutil.STATUS_SLEEPING else 0
            time.sleep(0.1)

    def interrupt(self) -> None:
        os.kill(self.process.pid, signal.SIGINT)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal("chat")
    yield found
    if found.process.poll() is None:
        found.process.kill()
    found.process.wait()
    os.close(found.master)


def test_answers_are_unmasked_live_and_settings_change_between_turns(terminal: Terminal) -> None:
    greeting = terminal.wait_for("> ")
    assert "word problems" in greeting
    assert "For example: Tom has" in greeting
    terminal.type(QUESTION)
    shown = terminal.wait_for("by stop")
    assert "░" in shown
    assert "#### 8" in shown
    terminal.wait_for("> ")
    terminal.type("/threshold much")
    assert "it must be a number" in terminal.wait_for("> ")
    terminal.type("/threshold 0.7")
    assert "threshold: 0.7" in terminal.wait_for("> ")
    terminal.type("/stats")
    assert "1 answer, " in terminal.wait_for("reused.")
    terminal.wait_for("> ")
    terminal.type("/quit")
    assert terminal.process.wait(timeout=30) == 0


def test_ctrl_c_stops_an_answer_and_a_second_one_leaves(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("/rule top_n:n=1")
    terminal.wait_for("> ")
    terminal.type("/max_new_tokens 3000")
    terminal.wait_for("> ")
    terminal.type("/temperature 50")
    terminal.wait_for("> ")
    terminal.type(QUESTION)
    terminal.wait_for("░")
    terminal.interrupt()
    terminal.wait_for("Stopped; Ctrl-C again leaves.")
    terminal.wait_for("> ")
    terminal.type("/stats")
    assert "Nothing was answered yet." in terminal.wait_for("> ")
    terminal.wait_for_quiet()
    terminal.interrupt()
    terminal.wait_for("Ctrl-C again leaves")
    terminal.wait_for("> ")
    terminal.wait_for_quiet()
    terminal.interrupt()
    assert terminal.process.wait(timeout=30) == 0
