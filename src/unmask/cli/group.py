"""The group of verbs: imports a verb when it is asked for, and turns every failure into one line.

Knows the names of the verbs and the exit codes (0 done, 1 a difference was found, 2 the input does not
allow it, 70 a defect of this program, 130 interrupted). It does not know what any verb does.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TextIO

import click

import unmask
from unmask.errors import UnmaskError

VERBS = {
    "cancel": "unmask.cli.runs:cancel",
    "ceiling": "unmask.cli.ceiling:ceiling",
    "check": "unmask.cli.check:check",
    "compare": "unmask.cli.compare:compare",
    "conformance": "unmask.cli.conformance:conformance",
    "doctor": "unmask.cli.doctor:doctor",
    "eval": "unmask.cli.eval:evaluate",
    "export": "unmask.cli.exchange:export",
    "generate": "unmask.cli.generate:generate",
    "import": "unmask.cli.exchange:import_summaries",
    "info": "unmask.cli.info:info",
    "logs": "unmask.cli.runs:logs",
    "new": "unmask.cli.recipe:new",
    "plan": "unmask.cli.plan:plan",
    "prepare": "unmask.cli.recipe:prepare",
    "probe": "unmask.cli.probe:probe",
    "report": "unmask.cli.report:report",
    "retract": "unmask.cli.runs:retract",
    "rm": "unmask.cli.runs:remove",
    "run": "unmask.cli.run:run",
    "run-one": "unmask.cli.run_one:run_one",
    "status": "unmask.cli.status:status",
}
TRACEBACK = "UNMASK_TRACEBACK"
"""Environment variable that lets the traceback of a defect through."""


class Refusal(click.ClickException):
    """Input that does not allow what was asked, as one line."""

    exit_code = 2


class Defect(click.ClickException):
    """A failure that this program should not have; the line asks for a report."""

    exit_code = 70

    def __init__(self, error: Exception) -> None:
        what = " ".join(f"{type(error).__name__}: {error}".split())
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
        module, name = VERBS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

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
        raise Refusal(" ".join(str(error).split())) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise Refusal(f"{place}{error.strerror or error}.") from None
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        raise Defect(error) from None


def _usage_sentence(error: click.UsageError) -> str:
    hint = f" See {error.ctx.command_path} --help." if error.ctx else ""
    return " ".join(error.format_message().split()) + hint


def _show_warning(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 (the signature of warnings.showwarning)
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    click.echo(f"Warning: {message}", err=True)


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.version_option(unmask.__version__, prog_name="unmask")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Run block-diffusion language models.

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
