"""Options that verbs share, and the decode settings made of them."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec, build

F = TypeVar("F", bound=Callable[..., Any])

DECODE_FLAGS = {
    "max_new_tokens": "max_new_tokens",
    "threshold": "threshold",
    "sub_block_size": "sub_block_size",
    "block_size": "block_size",
    "block_cache": "block_cache",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop_strings",
    "stop_token": "stop_tokens",
}
"""Parameters of the command line and the decode settings that they set."""


def decode_options(command: F) -> F:
    """Add one option for each decode setting, and a file that may hold them all."""
    defaults = DecodeSpec()
    for option in reversed(
        [
            click.option(
                "--decode",
                "decode_file",
                type=Path,
                metavar="FILE",
                help="Decode settings as .toml or .json.",
            ),
            click.option(
                "--max-new-tokens", type=int, help=f"Most tokens of an answer. [{defaults.max_new_tokens}]"
            ),
            click.option(
                "--threshold", type=float, help=f"Unmask above this confidence. [{defaults.threshold}]"
            ),
            click.option(
                "--sub-block-size", type=int, help=f"Positions of a step. [{defaults.sub_block_size}]"
            ),
            click.option("--block-size", type=int, help="Positions of a block. [the checkpoint's]"),
            click.option(
                "--block-cache/--no-block-cache", default=None, help="Reuse keys within a block. [on]"
            ),
            click.option("--temperature", type=float, help="0 is greedy. [0]"),
            click.option("--top-p", type=float, help=f"Mass to draw from. [{defaults.top_p}]"),
            click.option("--seed", type=int, help=f"Seed of the draws. [{defaults.seed}]"),
            click.option("--stop", multiple=True, metavar="TEXT", help="Cut the text here. Repeatable."),
            click.option("--stop-token", multiple=True, type=int, metavar="ID", help="Stop id. Repeatable."),
        ]
    ):
        command = option(command)
    return command


def decode_spec(file: Path | None, flags: dict[str, Any]) -> DecodeSpec:
    """Join the settings of a file with the options given, which win."""
    values = _read_settings(file) if file else {}
    for flag, setting in DECODE_FLAGS.items():
        if flags[flag] not in (None, ()):
            values[setting] = flags[flag]
    return build(DecodeSpec, values, str(file) if file else "Decode settings")


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        values = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except FileNotFoundError:
        raise UnmaskError(f"{file}: no such file; --decode takes a .toml or .json file.") from None
    except (OSError, ValueError) as error:
        raise UnmaskError(f"{file} cannot be read as decode settings ({error}).") from None
    if not isinstance(values, dict):
        raise UnmaskError(f"{file} holds no table of decode settings.")
    return values


store_option = click.option(
    "--store", type=Path, metavar="DIR", help="Where results are. [UNMASK_STORE, or results]"
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
