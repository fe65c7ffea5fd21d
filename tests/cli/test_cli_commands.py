"""What every verb promises: help with examples, a stable set of flags, a quick start, clean exits."""

import fcntl
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import click
import pytest
from cli_cases import Run, error_line

import unmask
from unmask.cli import app
from unmask.cli.group import VERBS

FLAGS = Path(__file__).with_name("flags.txt")
CONTEXT = click.Context(app)


def verb(name: str) -> click.Command:
    command = app.get_command(CONTEXT, name)
    assert command is not None
    return command


def current_flags() -> list[str]:
    return [
        f"{name} {flag}"
        for name in app.list_commands(CONTEXT)
        for parameter in verb(name).params
        for flag in sorted([*parameter.opts, *parameter.secondary_opts])
    ]


def test_the_flags_are_those_of_the_snapshot():
    """A new flag is a promise: add it to flags.txt on purpose."""
    assert current_flags() == FLAGS.read_text().splitlines()


@pytest.mark.parametrize("name", [None, *VERBS])
def test_help_has_examples(run: Run, name: str | None):
    result = run(*([name] if name else []), "--help")
    assert result.exit_code == 0
    assert "\n  Examples:\n    unmask " in result.stdout


@pytest.mark.parametrize("name", VERBS)
def test_every_option_is_explained(name: str):
    for parameter in verb(name).params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter.name


def test_no_arguments_print_the_help(run: Run):
    result = run()
    assert result.exit_code == 0
    sections = [line[:-1] for line in result.stdout.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections == ["Options", "Models", "Experiments", "Results", "Machine"]


def test_version(run: Run):
    assert run("--version").stdout == f"unmask, version {unmask.__version__}\n"


def test_help_and_info_start_without_torch(text_model: Path):
    program = (
        "import sys\n"
        "from unmask.cli import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    for arguments in (["--help"], *([name, "--help"] for name in VERBS), ["info", str(text_model)]):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (arguments, done.stderr)


def test_the_list_of_verbs_imports_no_verb() -> None:
    program = (
        "import sys\n"
        "from unmask.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print('IMPORTED', *sorted(name for name in sys.modules if name.startswith('unmask.cli.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[-1] == "IMPORTED unmask.cli.group"
    for name, listed in VERBS.items():
        assert f"  {name:<12} {listed.help}" in lines


def test_wrong_usage_is_one_line(run: Run):
    assert error_line(run("frobnicate")) == "No such command 'frobnicate'. See unmask --help."
    assert "--frob" in error_line(run("generate", "--frob"))
    assert "--frob" in error_line(run("--frob"))
    assert error_line(run("info")) == "Missing argument 'PATH_OR_HUB_ID'. See unmask info --help."


def test_a_defect_is_one_line_without_traceback(run: Run, bare_model: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object) -> None:
        raise KeyError("column")

    monkeypatch.setattr("unmask.cli.info.describe", fail)
    result = run("info", bare_model)
    assert result.exit_code == 70
    assert result.stderr.startswith("Error: Unmask failed unexpectedly (KeyError: 'column')")
    assert result.stderr.count("\n") == 1


def test_a_system_error_is_one_line(run: Run, bare_model: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied", "config.json")

    monkeypatch.setattr("unmask.cli.info.describe", fail)
    assert error_line(run("info", bare_model)) == "config.json: Permission denied."


def test_interrupt_leaves_with_130_and_no_traceback(bare_model: Path):
    command = [sys.executable, "-c", "from unmask.cli import main; main()", "generate"]
    command += ["--model", str(bare_model), "--input", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        unread = bytearray(b"\x01\0\0\0")
        while any(unread):  # until the program has read the first line and waits for more
            fcntl.ioctl(process.stdin, termios.FIONREAD, unread)
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "Interrupted.\n"
