"""`unmask predict`: speeds that checkpoints should reach on named cards, and gains of policies. Needs no torch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.box import MARKDOWN, SIMPLE
from rich.table import Table

from unmask.analysis.ceilings import script_of
from unmask.cli.screen import console
from unmask.cost.cards import card_facts, card_named, known_cards
from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig
from unmask.model.hub import find_config, parse_published
from unmask.policies.predicted import Speed, predicted_speed
from unmask.policies.text import read_policy
from unmask.spec import DecodeSpec
from unmask.spec.published import facts, published

CARDS = "rtx6000,a100,h100"
BATCHES = "1,4,16"
MOST_BATCH = 1024
PLAIN_WIDTH = 160
"""Characters of a line where no terminal says otherwise."""


@dataclass(frozen=True, slots=True)
class Line:
    """One checkpoint at one batch size, under full compute or a policy."""

    model: str
    policy: str | None
    batch: int
    cards: dict[str, Speed]
    gains: dict[str, float] | None = None
    """Against full compute at equal steps, where there is a policy."""


@click.command()
@click.argument("policies", nargs=-1, metavar="[POLICY]...")
@click.option("--model", "-m", multiple=True, metavar="PATH_OR_HUB_ID", help="[every published one, in turn]")
@click.option("--card", default=CARDS, show_default=True, metavar="NAME,NAME", help="Of the known cards.")
@click.option("--batch-size", default=BATCHES, show_default=True, metavar="N,N", help="Requests together.")
@click.option("--markdown", is_flag=True, help="Print a table for a page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def predict(
    policies: tuple[str, ...],
    model: tuple[str, ...],
    card: str,
    batch_size: str,
    markdown: bool,
    as_json: bool,
) -> None:
    """Predict the speed of checkpoints on named cards in half precision, and what policies gain there.

    A prediction from counted bytes, arithmetic and launched operations, not a measurement: `unmask gpu-check` tests it.
    Prompts have 128 tokens, answers 256 at the usual number of steps; the requests of a batch are in phase.
    Each cell: tokens a second of the whole batch, the share of what the data sheet allows, and what bounds it. With
    policies: how many times faster than full compute, at equal steps.

    \b
    Examples:
      unmask predict
      unmask predict --model Efficient-Large-Model/Fast_dLLM_v2_7B --card rtx6000
      unmask predict layer_reuse:k=2,on=sub+block trim:keep=0 --model Efficient-Large-Model/Fast_dLLM_v2_7B
    """
    cards, batches = _cards(card), _batches(batch_size)
    names = model or tuple(next(iter(each.names)) for each in facts().checkpoints)
    lines = [line for name in names for line in _lines(name, policies, cards, batches)]
    if as_json:
        assumed = card_facts().assumptions
        click.echo(
            json.dumps({"assumptions": _plain(assumed), "predicted": [asdict(line) for line in lines]})
        )
    else:
        _show(lines, cards, markdown)


def _plain(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _cards(text: str) -> list[str]:
    chosen = text.split(",")
    for name in chosen:
        if name not in known_cards():
            raise UnmaskError(f"The card {name!r} is not known; known are {', '.join(known_cards())}.")
    return chosen


def _batches(text: str) -> list[int]:
    numbers = [int(part) if part.isascii() and part.isdigit() else 0 for part in text.split(",")]
    if not all(1 <= number <= MOST_BATCH for number in numbers):
        raise UnmaskError(f"--batch-size is {text!r}; give numbers from 1 to {MOST_BATCH}, as in 1,4,16.")
    return numbers


def _lines(name: str, policies: Sequence[str], cards: Sequence[str], batches: Sequence[int]) -> list[Line]:
    config = _config(name)
    script = script_of(config.decoded(DecodeSpec()), config.family)
    lines = []
    for batch in batches:
        full = {card: predicted_speed(config.shape, script, card_named(card), batch) for card in cards}
        lines.append(Line(name, None, batch, full))
        for text in policies:
            spec = read_policy(text)
            speeds = {
                card: predicted_speed(config.shape, script, card_named(card), batch, spec) for card in cards
            }
            gains = {card: speeds[card].tokens_per_second / full[card].tokens_per_second for card in cards}
            lines.append(Line(name, text, batch, speeds, gains))
    return lines


def _config(name: str) -> ModelConfig:
    """Facts that ship come first, so that no network is asked."""
    known = published(name)
    return parse_published(known) if known else find_config(name)


def _show(lines: Sequence[Line], cards: Sequence[str], markdown: bool) -> None:
    table = Table(box=MARKDOWN if markdown else SIMPLE)
    for heading in ("checkpoint", "policy", "batch"):
        table.add_column(heading, overflow="fold")
    for name in cards:
        table.add_column(card_named(name).title, justify="right", no_wrap=True)
    for line in lines:
        cells = [_cell(line, name) for name in cards]
        table.add_row(
            line.model.partition("/")[2] or line.model, line.policy or "full", str(line.batch), *cells
        )
    screen = console(PLAIN_WIDTH)
    screen.print(table)
    if not markdown:
        screen.print(
            "Predicted, not measured: data sheets, counted work, and what is assumed of every card (--json)."
        )


def _cell(line: Line, card: str) -> str:
    speed = line.cards[card]
    if line.gains is not None:
        return f"{line.gains[card]:.2f}x"
    return f"{speed.tokens_per_second:.0f}/s, {speed.share:.0%}, {speed.bound_by}"
