"""The group of verbs: imports a verb when it is asked for, and turns every failure into one line.

Knows the names of the verbs and the exit codes (0 done, 1 a difference was found, 2 the input does not
allow it, 70 a defect of this program, 130 interrupted). It does not know what any verb does.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TextIO

import click

import unmask
from unmask.errors import UnmaskError
from unmask.reading import printable
from unmask.store.redaction import redacted


class Verb(NamedTuple):
    """Where a verb is and what `unmask --help` says of it."""

    module: str
    """File of this package."""
    function: str
    help: str


GROUPS = {
    "Models": {
        "generate": Verb("generate", "generate", "Answer prompts with a checkpoint."),
        "chat": Verb("chat", "chat", "Talk to a checkpoint, and watch it unmask."),
        "play": Verb("play", "play", "Two settings side by side, in a browser."),
        "eval": Verb("eval", "evaluate", "Evaluate a checkpoint on benchmarks."),
        "info": Verb("info", "info", "What a checkpoint is and what it needs."),
        "probe": Verb("probe", "probe", "Record how layers move between steps."),
        "ceiling": Verb("ceiling", "ceiling", "The most that policies can save."),
        "predict": Verb("predict", "predict", "Speeds that a named card should reach."),
    },
    "Experiments": {
        "demo": Verb("demo", "demo", "A sweep in minutes, its verdict and its report."),
        "new": Verb("recipe", "new", "Begin a new experiment."),
        "prepare": Verb("recipe", "prepare", "Fetch checkpoint and data once."),
        "plan": Verb("plan", "plan", "What a recipe would run, and what it can show."),
        "run": Verb("run", "run", "Execute what a recipe still lacks."),
        "status": Verb("status", "status", "Where runs stand."),
        "logs": Verb("runs", "logs", "What a run's worker has printed."),
        "cancel": Verb("runs", "cancel", "Stop runs."),
        "run-one": Verb("run_one", "run_one", "Execute one run of a store (what workers start as)."),
    },
    "Results": {
        "results": Verb("status", "results", "The table that `unmask run` ends with."),
        "check": Verb("check", "check", "What makes results invalid or doubtful."),
        "compare": Verb("compare", "compare", "Two runs, sample by sample."),
        "report": Verb("report", "report", "Write results.md and report.html."),
        "export": Verb("exchange", "export", "Results as CSV, Parquet or summary.json files."),
        "import": Verb("exchange", "import_summaries", "Read results of older scripts."),
        "retract": Verb("runs", "retract", "Keep an invalid result out of every table."),
        "rm": Verb("runs", "remove", "Delete runs."),
    },
    "Machine": {
        "doctor": Verb("doctor", "doctor", "Check versions, data, token, disk and GPU."),
        "gpu-check": Verb("gpu_check", "check", "The first hour on a GPU: right, and how fast?"),
        "conformance": Verb("conformance", "conformance", "Compare this machine with recorded decodings."),
    },
}
"""The verbs as `unmask --help` shows them."""
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
LONGEST_LINE = 1_500
"""Characters of an error; a library may repeat what it could not read."""
TRACEBACK = "UNMASK_TRACEBACK"
"""Environment variable that lets the traceback of a defect through."""


class Refusal(click.ClickException):
    """Input that does not allow what was asked, as one line."""

    exit_code = 2


class Defect(click.ClickException):
    """A failure that this program should not have; the line asks for a report."""

    exit_code = 70

    def __init__(self, error: Exception) -> None:
        what = _one_line(f"{type(error).__name__}: {error}")
        super().__init__(f"Unmask failed unexpectedly ({what}); set {TRACEBACK}=1 to see where.")


class LazyGroup(click.Group):
    """Imports the file of a verb when the verb is first looked at."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Every verb, whether imported or not."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the verb's file."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        command: click.Command = getattr(import_module(f"unmask.cli.{verb.module}"), verb.function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the groups of verbs from the table alone, so that `unmask --help` imports none of them."""
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), verb.help) for name, verb in verbs.items()])

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the options before the verb."""
        with failures_as_one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse and run the verb."""
        with failures_as_one_line(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return super().invoke(ctx)


@contextmanager
def failures_as_one_line() -> Iterator[None]:
    """Leave click a message and an exit code for whatever goes wrong."""
    try:
        yield
    except click.UsageError as error:
        raise Refusal(_usage_sentence(error)) from None
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(130) from None
    except UnmaskError as error:
        raise Refusal(_one_line(str(error))) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise Refusal(_one_line(f"{place}{error.strerror or error}.")) from None
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        raise Defect(error) from None


def _one_line(text: str) -> str:
    """A message on one line of bounded length, without secrets, and without what would steer a terminal."""
    line = printable(redacted(" ".join(text.split())))
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} ..."


def _usage_sentence(error: click.UsageError) -> str:
    hint = f" See {error.ctx.command_path} --help." if error.ctx else ""
    return _one_line(error.format_message()) + hint


def _show_warning(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 (the signature of warnings.showwarning)
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    click.echo(_one_line(f"Warning: {message}"), err=True)


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.version_option(unmask.__version__, prog_name="unmask")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Run diffusion language models, and learn what shortcuts cost and save.

    \b
    Examples:
      unmask generate "Why is the sky blue?" --chat --model Efficient-Large-Model/Fast_dLLM_v2_1.5B
      unmask info path/to/checkpoint
      unmask conformance tests/golden
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        app(prog_name="unmask")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        sys.stderr.write(redacted(traceback.format_exc()))
        sys.exit(1)
