"""Prompts that begin alike: fed once, decoded as if each were alone."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unmask
from checkpoints import small_model
from unmask.cost import Sharing
from unmask.engine.forward import Workspace
from unmask.engine.prefixes import Prefixes, shared
from unmask.engine.sequence import BlockSettings, SequenceState
from unmask.policies.registry import make_policy

SETTINGS = BlockSettings(4, 2, "dual", 99, frozenset())


def row(tokens: list[int], slot: int = 0) -> SequenceState:
    made = SequenceState(0, tokens, 4, SETTINGS, 1)
    made.slot = slot
    return made


def test_only_whole_blocks_are_shared_and_never_the_last() -> None:
    tokens = list(range(13))
    assert shared(row(tokens), tokens) == 8
    assert shared(row(tokens), [*tokens[:6], 50, 51]) == 4
    assert shared(row(tokens[:12]), tokens) == 8
    assert shared(row(tokens[:7]), tokens) == 0
    assert shared(row(tokens), ()) == 0


def test_a_row_waits_for_another_only_if_that_spares_it_work() -> None:
    prefixes = Prefixes(3)
    first, second, other = row(list(range(12)), 0), row([*range(9), 50, 51, 52], 1), row([70] * 12, 2)
    assert prefixes.ready([first, second, other]) == ([first, other], [second])
    prefixes.keep(0, first.tokens[:12])
    assert prefixes.ready([second]) == ([second], [])
    assert prefixes.longest(second) == (0, 8)


def test_its_own_slot_comes_first_where_others_hold_as_much() -> None:
    prefixes = Prefixes(3)
    for slot in range(3):
        prefixes.keep(slot, list(range(12)))
    assert prefixes.longest(row(list(range(12)), 1)) == (1, 8)


@pytest.fixture(scope="module")
def engine() -> unmask.Engine:
    return small_model().engine


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every forward."""
    counted: list[int] = []
    real = Workspace.forward

    def counting(self: Workspace, tokens: Any, *rest: Any) -> Any:
        counted.append(len(tokens))
        return real(self, tokens, *rest)

    monkeypatch.setattr(Workspace, "forward", counting)
    return counted


SPEC = {"max_new_tokens": 5, "stop_tokens": ()}


def test_a_shared_beginning_is_fed_once(engine: unmask.Engine, fed: list[int]) -> None:
    size = engine.config.block_size
    assert size is not None
    beginning = [3 + number % 50 for number in range(3 * size)]
    prompts = [[*beginning, *[7 + index] * size] for index in range(4)]
    alone = [engine.generate([prompt], SPEC)[0] for prompt in prompts]
    rows_alone = sum(fed)
    fed.clear()
    together = engine.generate(prompts, SPEC, batch_size=4)
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert [one.ledger for one in together] == [one.ledger for one in alone]
    assert rows_alone - sum(fed) == 3 * len(beginning)
    assert sorted(one.sharing.positions for one in together) == [0, *[len(beginning)] * 3]
    assert all(one.sharing == Sharing() for one in alone)


def test_what_a_slot_still_holds_of_an_earlier_request_is_taken_over_too(engine: unmask.Engine) -> None:
    size = engine.config.block_size
    assert size is not None
    prompt = [3 + number % 50 for number in range(3 * size)]
    first, second = engine.generate([prompt, prompt], SPEC, batch_size=1)
    assert first.sharing == Sharing()
    assert (second.sharing.positions, second.sharing.forwards) == (2 * size, 0)
    assert second.sharing.pairs == 3 * size * size
    assert first.ledger == second.ledger


def test_scores_say_what_groups_and_their_members_shared(engine: unmask.Engine, fed: list[int]) -> None:
    size = engine.config.block_size
    assert size is not None
    beginning = [3 + number % 50 for number in range(2 * size)]
    asked = [
        unmask.ScoreRequest([*beginning, *[prefix] * (size + 1)], target)
        for prefix in (60, 61)
        for target in ([5, 6, 7], [8, 9, 10])
    ]
    found = engine.score(asked, batch_size=8)
    assert [one.positions for one in found.sharing] == [0, len(beginning)]
    rows = sum(sum(ledger.rows().values()) for ledger in found.ledgers)
    assert sum(fed) == rows - len(beginning)
    forwards = sum(sum(ledger.steps().values()) for ledger in found.ledgers)
    assert len(fed) == forwards - sum(one.forwards for one in found.sharing)


def test_a_slot_that_was_overwritten_is_not_taken_for_what_it_held(engine: unmask.Engine) -> None:
    size = engine.config.block_size
    assert size is not None
    long = [3 + number % 50 for number in range(3 * size)]
    prompts = [long, [5, 6], [9] * (2 * size), long, [5, 6, 7], long[: 2 * size]]
    alone = [engine.generate([prompt], SPEC)[0].ids for prompt in prompts]
    for batch in (1, 2, 3):
        assert [one.ids for one in engine.generate(prompts, SPEC, batch_size=batch)] == alone


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_prompts_from_a_common_tree_decode_as_alone(engine: unmask.Engine, data: st.DataObject) -> None:
    size = engine.config.block_size
    assert size is not None
    parts = data.draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), min_size=2, max_size=6))
    tails = data.draw(st.lists(st.integers(0, size), min_size=len(parts), max_size=len(parts)))
    prompts = [
        [token for bit in part for token in [4 + bit] * size] + [11] * tail
        for part, tail in zip(parts, tails, strict=True)
    ]
    spec = data.draw(st.sampled_from([None, {"kind": "trim"}, {"kind": "layer_reuse", "k": 2, "size": 1}]))
    policy = make_policy(spec, engine.config.num_layers)
    alone = [engine.generate([prompt], SPEC, policy)[0].ids for prompt in prompts]
    batch = data.draw(st.integers(1, 4))
    assert [one.ids for one in engine.generate(prompts, SPEC, policy, batch_size=batch)] == alone
