"""Options that verbs share: of a checkpoint, of decode settings, of chats, of files to be written.

Knows their names, their help and what is made of them. It does not load weights.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import msgspec

from unmask.errors import UnmaskError
from unmask.model.checkpoint import Checkpoint, open_checkpoint
from unmask.model.hub import find_checkpoint
from unmask.policies.text import read_rule
from unmask.reading import parse_settings, read_plain_text
from unmask.spec import DecodeSpec, build
from unmask.spec.decode import joined
from unmask.spec.family import CacheName, EndOfText
from unmask.spec.recipe import EMBEDDED

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Which checkpoint, and how it is to be loaded."""

    model: str
    revision: str | None
    device: str | None
    dtype: str | None
    mask_token_id: int | None

    @classmethod
    def taken_from(cls, flags: dict[str, Any]) -> "CheckpointOptions":
        """Take these options out of the parameters of a verb."""
        return cls(*(flags.pop(name) for name in cls.__slots__))

    def opened(self) -> Checkpoint:
        """The checkpoint with its headers checked."""
        return open_checkpoint(find_checkpoint(self.model, self.revision))


def checkpoint_options(command: F) -> F:
    """Add the options that `CheckpointOptions` holds."""
    return _added(
        command,
        click.option(
            "--model",
            "-m",
            default=EMBEDDED[0],
            show_default=True,
            metavar="PATH_OR_HUB_ID",
            help="Checkpoint.",
        ),
        click.option("--revision", help="Branch, tag or commit of a hub id."),
        click.option("--device", help="cpu, cuda, cuda:1 or mps. [the best one present]"),
        click.option("--dtype", help="float32, float16 or bfloat16. [what suits the device]"),
        click.option("--mask-token-id", type=int, help="Mask token, where the checkpoint names none."),
    )


def batch_option(command: F) -> F:
    """Add the number of requests that decode together."""
    return _added(
        command,
        click.option(
            "--batch-size",
            type=click.IntRange(min=1),
            default=16,
            show_default=True,
            help="Requests together.",
        ),
    )


def chat_option(command: F) -> F:
    """Add the choice between the chat template and raw text; None stands for raw where nobody chose."""
    return _added(
        command,
        click.option(
            "--chat/--raw",
            default=None,
            help="Apply the chat template to text, or take it as it stands. [raw]",
        ),
    )


def hint_at_chat(checkpoint: Checkpoint, chat: bool | None) -> None:
    """Say in one line that there is a chat template which nobody asked for or declined."""
    if chat is None and checkpoint.has_tokenizer and checkpoint.tokenizer.has_chat_template:
        click.echo(
            "Hint: this checkpoint has a chat template, and the text is given to it as it stands; "
            "--chat applies the template, --raw silences this line.",
            err=True,
        )


def check_writable(path: Path, option: str = "--output") -> None:
    """Refuse an output that could not be written after all the work."""
    if path.is_dir():
        raise UnmaskError(f"{path} is a folder; {option} takes the name of a file.")
    try:  # the permissions of a folder do not say all: /proc takes no file from anybody
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError:
        raise UnmaskError(
            f"{path.parent} is no folder that can be written to; choose another {option}."
        ) from None


DECODE_FLAGS = {
    "max_new_tokens": "max_new_tokens",
    "threshold": "threshold",
    "rule": "rule",
    "sub_block_size": "sub_block_size",
    "block_size": "block_size",
    "cache": "cache",
    "refresh_every": "refresh_every",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "guidance": "guidance",
    "end_of_text": "end_of_text",
    "draws": "draws",
    "seed": "seed",
    "stop": "stop_strings",
    "stop_token": "stop_tokens",
}
"""Parameters of the command line and the decode settings that they set."""


cache_option = click.option(
    "--cache",
    type=click.Choice(get_args(CacheName)),
    help="Reuse keys within a block: what later steps need not feed. [the family's]",
)


def decode_options(command: F) -> F:
    """Add one option for each decode setting, and a file that may hold them all."""
    defaults = DecodeSpec()
    return _added(
        command,
        click.option(
            "--decode", "decode_file", type=Path, metavar="FILE", help="Decode settings as .toml or .json."
        ),
        click.option(
            "--max-new-tokens", type=int, help=f"Most tokens of an answer. [{defaults.max_new_tokens}]"
        ),
        click.option("--threshold", type=float, help="Unmask above this confidence. [the family's]"),
        click.option(
            "--rule", metavar="RULE", help="What a step unmasks, as in top_n:steps=4. [the family's]"
        ),
        click.option("--sub-block-size", type=int, help="Positions of a step. [the family's]"),
        click.option("--block-size", type=int, help="Positions of a block. [the checkpoint's]"),
        cache_option,
        click.option(
            "--refresh-every", type=int, metavar="STEPS", help="Refresh the cache so often. [never]"
        ),
        click.option("--temperature", type=float, help="0 is greedy. [0]"),
        click.option("--top-p", type=float, help="Mass to draw from. [the family's]"),
        click.option("--top-k", type=int, help="Tokens to draw from. [all]"),
        click.option("--guidance", type=float, help="Push away from answers without the prompt. [0]"),
        click.option(
            "--end-of-text", type=click.Choice(get_args(EndOfText)), help="Hold end tokens back. [not]"
        ),
        click.option("--draws", type=int, help=f"Draws of the estimator monte_carlo. [{defaults.draws}]"),
        click.option("--seed", type=int, help=f"Seed of the draws. [{defaults.seed}]"),
        click.option("--stop", multiple=True, metavar="TEXT", help="Cut the text here. Repeatable."),
        click.option("--stop-token", multiple=True, type=int, metavar="ID", help="Stop id. Repeatable."),
    )


def _added(command: F, *options: Callable[[F], F]) -> F:
    """The command with these options, in this order in its help."""
    for option in reversed(options):
        command = option(command)
    return command


def decode_spec(file: Path | None, flags: dict[str, Any]) -> DecodeSpec:
    """Join the settings of a file with the options given, which win."""
    given = {setting: flags[flag] for flag, setting in DECODE_FLAGS.items() if flags[flag] not in (None, ())}
    if "rule" in given:
        given["rule"] = msgspec.to_builtins(read_rule(given["rule"]))
    values = joined(_read_settings(file) if file else {}, given)
    return build(DecodeSpec, values, str(file) if file else "Decode settings")


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        return parse_settings(read_plain_text(file), file.suffix == ".toml")
    except FileNotFoundError:
        raise UnmaskError(f"{file}: no such file; --decode takes a .toml or .json file.") from None
    except OSError as error:
        raise UnmaskError(f"{file} cannot be read as decode settings ({error.strerror}).") from None
    except ValueError as error:
        raise UnmaskError(f"{file} cannot be read as decode settings ({error}).") from None


store_option = click.option(
    "--store", type=Path, metavar="DIR", help="Where results are. [UNMASK_STORE, or results]"
)


until_decided_option = click.option(
    "--until-decided/--to-the-end",
    default=None,
    help="Whether runs end as soon as the criterion is certain of them. [as the recipe says]",
)


run_equal_option = click.option(
    "--run-equal",
    is_flag=True,
    help="Execute configurations that are equal by construction one and all. [one of them, and a twin]",
)


def selection(command: F) -> F:
    """Add the options that say which runs of a recipe are meant."""
    for option in (
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help="Rows of each task instead of the recipe's.",
        ),
        click.option("--config", multiple=True, metavar="NAME", help="Only these configurations (patterns)."),
        click.option("--task", multiple=True, metavar="NAME", help="Only these tasks (patterns)."),
    ):
        command = option(command)
    return command
