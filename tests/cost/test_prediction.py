"""Predicted speeds: the arithmetic by hand, sums against forwards, ratios against those measured on a CPU."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from click.testing import CliRunner

from policy_cases import BOTH, reuse, trim
from unmask.analysis.gains import GAINED, PREDICTED
from unmask.cli.predict import predict as predict_command
from unmask.cost import Ledger, ModelShape, Work
from unmask.cost.cards import card_facts, card_named, card_reported, known_cards
from unmask.cost.prediction import (
    ATTENTION_OPERATIONS,
    FORWARD_OPERATIONS,
    MLP_OPERATIONS,
    Counted,
    Load,
    load_of,
    predict,
    predicted_seconds,
    seconds_of_counts,
)
from unmask.cost.work_sums import WorkSums
from unmask.policies.predicted import predicted_speed
from unmask.policies.registry import make_policy, policy_spec
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec.recipe import Gained

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
SMALL = ModelShape(layers=2, hidden=4, ffn=8, heads=2, kv_heads=1, head_dim=2, vocabulary=10)
SEVEN_B = ModelShape(28, 3584, 18944, 28, 4, 128, 152064)
HALF_B = ModelShape(24, 896, 4864, 14, 2, 64, 151936)
RTX = card_named("rtx6000")


def test_a_load_by_hand() -> None:
    """Attention has 4 * 2 * 6 = 48 weights, the MLP 96, the head 40; keys and values of a position are 4 elements."""
    load = load_of(Work("block", rows=8, pairs=8 * 16, reads=3), SMALL)
    weights, keys = 2 * (48 + 96) + 40, 2 * (16 + 8) * 4
    products = 2 * (3 * 40 + 2 * 8 * (48 + 96)) + 2 * 4 * 8 * 16 * 2 * 2
    operations = FORWARD_OPERATIONS + 2 * (ATTENTION_OPERATIONS + MLP_OPERATIONS)
    assert load == Load(1, 2 * (weights + keys), products, operations)
    four = load_of(Work("block", rows=8, pairs=8 * 16, reads=3), SMALL, batch=4)
    assert (four.bytes, four.flops) == (2 * (weights + 4 * keys), 4 * products)


def test_replayed_layers_are_neither_read_nor_launched() -> None:
    load = load_of(Work("sub", 8, 128, 3, attention=(8, 0), mlp=(8, 8)), SMALL)
    whole = load_of(Work("sub", 8, 128, 3), SMALL)
    assert whole.operations - load.operations == ATTENTION_OPERATIONS
    assert whole.bytes - load.bytes == 2 * (48 + (16 + 8) * 4)


@pytest.mark.parametrize(
    ("load", "bound", "seconds"),
    [
        (Load(1, 13.44e9, 1e9, 100), "memory", 0.02 / 0.78 + 100 * 3e-6 + 3e-4),
        (Load(1, 1e6, 1.305e12, 100), "arithmetic", 0.01 / 0.6 + 100 * 3e-6 + 3e-4),
        (Load(2, 1e6, 1e6, 1000), "host", 1000 * 9e-6 + 2 * 3e-4),
    ],
)
def test_the_slower_side_decides(load: Load, bound: str, seconds: float) -> None:
    found = predict(load, RTX)
    assert found.bound_by == bound
    assert found.seconds == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize(
    "spec", [{"kind": "full"}, reuse(unit="output", on=BOTH), reuse(on=BOTH), trim()], ids=str
)
def test_counts_of_a_result_are_priced_as_its_forwards(spec: dict[str, object]) -> None:
    """Sums leave out keys and mix steps of a kind, which are small things for a large model."""
    ledger = rehearse(make_policy(policy_spec(spec), 28), 28, Script())
    sums = WorkSums.of(ledger, SEVEN_B)
    counts = Counted(
        {kind: part.forwards for kind, part in sums.kinds.items()},
        {kind: part.branch_rows for kind, part in sums.kinds.items()},
        sums.layer_calls,
        sums.flops,
    )
    for name in known_cards():
        exact = predicted_seconds(ledger, SEVEN_B, card_named(name))
        assert seconds_of_counts(counts, SEVEN_B, card_named(name)) == pytest.approx(exact, rel=0.03)


def test_rows_gain_nothing_where_weights_bound_and_their_share_where_arithmetic_does() -> None:
    def gain(spec: dict[str, object], batch: int) -> float:
        full, own = (
            predicted_speed(SEVEN_B, Script(), RTX, batch, policy_spec(one))
            for one in ({"kind": "full"}, spec)
        )
        return own.tokens_per_second / full.tokens_per_second

    assert gain(trim(), 1) == pytest.approx(1, abs=0.02)
    assert gain(trim(), 16) > 1.4
    assert gain(reuse(on=BOTH), 1) > 1.15
    assert gain(reuse(on=BOTH), 16) > 1.15


def test_ratios_measured_on_a_cpu_come_out() -> None:
    """The Xeon of docs/performance.md (15.5 GB/s, 158 GFLOP/s in fp32) as a card where nothing else costs time."""
    xeon = msgspec.structs.replace(RTX, bytes_per_second=15.5e9, flops_per_second={"float32": 158e9})

    def seconds(work: Work) -> float:
        load = load_of(work, HALF_B, element_bytes=4)
        return predict(replace(load, operations=0), xeon, "float32").seconds

    block, sub, commit = (
        seconds(Work(kind, rows, rows * 544, reads))
        for kind, rows, reads in (("block", 32, 20), ("sub", 8, 4), ("commit", 32, 1))
    )
    assert block / sub == pytest.approx(333.87 / 195.60, rel=0.25)
    assert commit / block == pytest.approx(317.46 / 333.87, rel=0.2)
    assert block == pytest.approx(0.334, rel=0.25)


def test_cards_are_named_alike_everywhere() -> None:
    assert set(PREDICTED.values()) == set(known_cards())
    assert set(GAINED) == set(get_args(Gained))
    assert card_reported("NVIDIA A100-SXM4-80GB") == "a100"
    assert card_reported("Quadro RTX 6000") == "rtx6000"
    assert card_reported("NVIDIA RTX 6000 Ada Generation") is None
    assert all(card.flops_per_second.keys() == {"16 bit", "float32"} for card in card_facts().cards)


def test_the_table_of_the_page_is_what_the_command_prints() -> None:
    """After a change of the engine's operations: run the command that the page names and put its table there."""
    text = PAGE.read_text(encoding="utf-8")
    for part in text.split("<!-- predicted: ")[1:]:
        arguments, table = part.split(" -->\n", 1)
        printed = CliRunner().invoke(
            predict_command, [*arguments.split(), "--markdown"], catch_exceptions=False
        )
        lines = [line.strip() for line in printed.output.splitlines() if line.strip()]
        assert table.startswith("\n".join(lines) + "\n"), arguments


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--card", "rtx9000"], "The card 'rtx9000' is not known"),
        (["--batch-size", "0"], "give numbers from 1 to 1024"),
        (["--batch-size", "4,x"], "give numbers from 1 to 1024"),
    ],
)
def test_bad_input_gets_a_sentence(arguments: list[str], sentence: str) -> None:
    failed = CliRunner().invoke(predict_command, arguments)
    assert sentence in str(failed.exception)


def test_an_empty_ledger_takes_no_time() -> None:
    assert predicted_seconds(Ledger(28), SEVEN_B, RTX) == 0
