"""When memory runs out the batch is halved, that is told and recorded, and the answers stay the same."""

from typing import Any

import pytest
import torch

from checkpoints import OF_FAMILY, engine_of, small_model
from unmask.engine.engine import Engine
from unmask.engine.forward import Workspace
from unmask.engine.prompt import Request
from unmask.engine.score import ScoreRequest
from unmask.errors import UnmaskError

FREE = {"stop_tokens": (), "max_new_tokens": 20}
ROWS = [Request([row + 1] * (3 + 7 * row), 12 + row) for row in range(7)]
OUT_OF_RAM = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"


class Narrow(Engine):
    """Has memory for two requests."""

    slots_that_fit = 2

    def workspace(self, slots: int, length: int, block_size: int) -> Workspace:
        if slots > self.slots_that_fit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().workspace(slots, length, block_size)


class Full(Narrow):
    """Has memory for none."""

    slots_that_fit = 0


class Faulty(Engine):
    """Has another problem."""

    def workspace(self, *sizes: int) -> Workspace:  # noqa: ARG002
        raise RuntimeError("a driver problem")


class FullLater(Engine):
    """Runs out of memory once, in the middle of a decoding, after some answers are there."""

    failures = 1
    fails_at = 12
    message = OUT_OF_RAM

    def workspace(self, slots: int, length: int, block_size: int) -> Workspace:
        return FailingWorkspace(self, slots, length, block_size)


class FailingWorkspace(Workspace):
    def __init__(self, engine: FullLater, slots: int, length: int, block_size: int) -> None:
        super().__init__(engine.transformer, slots, length, block_size)
        self.engine = engine
        self.calls = 0

    def forward(self, *arguments, **named):  # type: ignore[no-untyped-def]
        self.calls += 1
        if self.engine.failures and self.calls == self.engine.fails_at:
            self.engine.failures -= 1
            raise RuntimeError(self.engine.message)
        return super().forward(*arguments, **named)


def test_the_batch_is_halved_until_it_fits() -> None:
    plain = small_model().engine
    expected = plain.generate(ROWS, FREE)
    with pytest.warns(UserWarning, match="halved") as told:
        found = engine_of(Narrow, plain).generate(ROWS, FREE)
    assert [answer.ids for answer in found] == [answer.ids for answer in expected]
    assert [answer.ledger for answer in found] == [answer.ledger for answer in expected]
    assert {answer.batch_size for answer in found} == {1}
    assert ["from 7 to 3" in str(told[0].message), "from 3 to 1" in str(told[1].message)] == [True, True]


def test_the_batch_is_halved_no_further_than_needed() -> None:
    with pytest.warns(UserWarning, match="from 4 to 2"):
        found = engine_of(Narrow, small_model().engine).generate(ROWS, FREE, batch_size=4)
    assert {answer.batch_size for answer in found} == {2}


def test_a_batch_that_fits_is_left_alone() -> None:
    found = engine_of(Narrow, small_model().engine).generate(ROWS, FREE, batch_size=2)
    assert {answer.batch_size for answer in found} == {2}


def test_answers_given_before_are_kept_and_the_others_decoded_again() -> None:
    plain = small_model().engine
    rows = [Request([1, 2, 3], 2), *ROWS]
    expected = plain.generate(rows, FREE, batch_size=4)
    engine = engine_of(FullLater, plain)
    with pytest.warns(UserWarning, match="from 4 to 2"):
        found = engine.generate(rows, FREE, batch_size=4)
    assert engine.failures == 0
    assert [answer.ids for answer in found] == [answer.ids for answer in expected]
    assert [answer.ledger for answer in found] == [answer.ledger for answer in expected]
    assert {answer.batch_size for answer in found} == {4, 2}


@pytest.mark.parametrize("settings", [{"cache": "prefix", "sub_block_size": 8}, {"guidance": 0.5}], ids=str)
def test_canvases_fit_in_smaller_batches(settings: dict[str, Any]) -> None:
    """With guidance a request fills two slots, so two slots hold one request."""
    plain = small_model(**OF_FAMILY["llada"]).engine
    rows = [Request([row + 1] * (3 + 7 * row), 12 + row) for row in range(4)]
    expected = plain.generate(rows, FREE | settings)
    with pytest.warns(UserWarning, match="halved"):
        found = engine_of(Narrow, plain).generate(rows, FREE | settings)
    assert [answer.ids for answer in found] == [answer.ids for answer in expected]
    assert [answer.ledger for answer in found] == [answer.ledger for answer in expected]
    assert {answer.batch_size for answer in found} == {1 if "guidance" in settings else 2}


@pytest.mark.filterwarnings("ignore:Memory ran out")
def test_a_single_request_without_memory_is_an_error_in_one_sentence() -> None:
    with pytest.raises(UnmaskError, match=r"Memory ran out with a single request; .*\.$"):
        engine_of(Full, small_model().engine).generate(ROWS, FREE)


SCORED = [ScoreRequest([row + 1, 2], [token, row]) for row in range(5) for token in range(3)]


def test_scoring_is_halved_until_it_fits() -> None:
    plain = small_model().engine
    expected = plain.score(SCORED).scores
    with pytest.warns(UserWarning, match="halved") as told:
        found = engine_of(Narrow, plain).score(SCORED)
    assert [score.logprob for score in found.scores] == pytest.approx(
        [score.logprob for score in expected], abs=1e-5
    )
    halves = [str(each.message).removeprefix("Memory ran out: the batch is halved ") for each in told]
    assert halves == ["from 15 to 7.", "from 7 to 3.", "from 3 to 1."]


@pytest.mark.parametrize(
    "message", [OUT_OF_RAM, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"]
)
def test_what_was_scored_before_is_kept(message: str) -> None:
    plain = small_model().engine
    expected, settled = plain.score(SCORED), []
    engine = engine_of(FullLater, plain)
    engine.message, engine.fails_at = message, 5
    with pytest.warns(UserWarning, match="from 4 to 2"):
        found = engine.score(SCORED, batch_size=4, progress=settled.append)
    assert engine.failures == 0
    assert sum(settled) == len(SCORED)
    assert [s.logprob for s in found.scores] == pytest.approx([s.logprob for s in expected.scores], abs=1e-5)
    assert len(found.ledgers) == len(found.sharing) == 1 + max(score.group for score in found.scores)


def test_estimates_are_halved_and_the_same() -> None:
    plain = small_model(**OF_FAMILY["llada"]).engine
    decode = {"draws": 4}
    expected = plain.score(SCORED, "monte_carlo", decode=decode)
    with pytest.warns(UserWarning, match="from 4 to 2"):
        found = engine_of(Narrow, plain).score(SCORED, "monte_carlo", decode=decode, batch_size=4)
    assert [s.logprob for s in found.scores] == pytest.approx([s.logprob for s in expected.scores], abs=1e-5)
    assert found.ledgers == expected.ledgers


def test_other_errors_of_the_runtime_pass_through() -> None:
    engine = engine_of(Faulty, small_model().engine)
    with pytest.raises(RuntimeError, match="a driver problem"):
        engine.generate(ROWS, FREE)
