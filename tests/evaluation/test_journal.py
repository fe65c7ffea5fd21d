"""A run that is cut off and goes on: the same answers, scores and counted work, and nothing old in a speed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unmask.store import canonical
from unmask.store.attempt import AnyAnswer, decode_answer

pytestmark = pytest.mark.usefixtures("lm_eval")

REUSE = {"kind": "layer_reuse", "k": 2, "layers": [0], "on": ["sub", "block"]}
SHORT = {"do_sample": False, "max_gen_toks": 40}
DRAWN = {"do_sample": True, "temperature": 2.0, "max_gen_toks": 24}


class CutOffError(Exception):
    """What stops a run in these tests."""


class Disk:
    """Keeps lines as files do, and fails after so many of them."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.lines: list[bytes] = []
        self.told: list[tuple[int, int]] = []

    def write(self, answer: AnyAnswer) -> None:
        if len(self.lines) == self.most:
            raise CutOffError
        self.lines.append(canonical(answer))

    def journal(self, *earlier: "Disk") -> Any:
        from unmask.evaluation.journal import Journal

        answers = [decode_answer(line) for disk in earlier for line in disk.lines]
        known = {answer.key: answer for answer in answers}
        return Journal(known, self.write, lambda done, total: self.told.append((done, total)))


@pytest.fixture(scope="module")
def model(text_model: Path) -> Any:
    from unmask.loading import load

    return load(text_model, "cpu", "float32")


def make(model: Any, journal: Any = None, **options: Any) -> Any:
    from unmask.evaluation.lm import UnmaskLM

    return UnmaskLM(engine=model, policy=REUSE, journal=journal, **options)


def questions() -> list[Any]:
    from text_model import asked

    texts = ["One", "A somewhat longer question about pears", "Two and", "Why is it so? " * 5, "One"]
    return [asked(text, task=f"task{place % 2}", **SHORT) for place, text in enumerate(texts)]


def endings() -> list[Any]:
    from text_model import choices

    return [
        *choices("Question: which?\nAnswer:", " A", " B", " pear"),
        *choices("Another one. Answer:", " A", " apple pie", " B", task="other"),
        *choices("And the last. Answer:", " yes", " no"),
        *choices("And the last. Answer:", " yes", " no"),
    ]


def generate(lm: Any) -> list[str]:
    return lm.generate_until(questions(), disable_tqdm=True)


def score(lm: Any) -> list[tuple[float, bool]]:
    return lm.loglikelihood(endings(), disable_tqdm=True)


def cut_off(model: Any, ask: Callable[[Any], Any], after: int, **options: Any) -> Disk:
    disk = Disk(after)
    with pytest.raises(CutOffError):
        ask(make(model, disk.journal(), **options))
    assert len(disk.lines) == after
    return disk


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_generation_goes_on_where_it_was_cut_off(model: Any, after: int, batch_size: int) -> None:
    whole = make(model, batch_size=batch_size)
    expected = generate(whole)
    first = cut_off(model, generate, after, batch_size=batch_size)
    second = Disk()
    resumed = make(model, second.journal(first), batch_size=batch_size)
    assert generate(resumed) == expected
    assert resumed.proof.of() == whole.proof.of()
    assert resumed.proof.of(["task1"]) == whole.proof.of(["task1"])
    assert resumed.details == whole.details
    assert resumed.journal.resumed == after
    assert len(second.lines) == 5 - after


def alike() -> list[Any]:
    """Questions whose first blocks are the same."""
    from text_model import asked

    beginning = "An example that all of them begin with, long enough for several blocks of tokens. " * 2
    return [asked(f"{beginning}Question {place}: why?", **SHORT) for place in range(3)]


def test_what_was_shared_is_counted_beside_the_work_and_written_down(model: Any) -> None:
    from unmask.cost import Work, price_of

    size = model.config.block_size

    def ask(lm: Any) -> None:
        lm.generate_until(alike(), disable_tqdm=True)

    disk = Disk()
    whole, alone = make(model, disk.journal()), make(model)
    ask(whole)
    for each in alike():
        alone.generate_until([each], disable_tqdm=True)
    found = whole.proof.shared()["generation"]
    blocks = found.positions // 2 // size
    assert blocks >= 2
    taken = Work("prefill", blocks * size, size * size * blocks * (blocks + 1) // 2, 0)
    assert found.flops == 2 * price_of(taken, model.config.shape, 4).flops
    assert found.forwards > 0
    assert whole.proof.of() == alone.proof.of()
    assert (alone.proof.shared()["generation"].flops, alone.proof.shared()["generation"].forwards) == (0, 0)
    again = make(model, Disk(0).journal(disk))
    ask(again)
    assert again.proof.shared() == whole.proof.shared()


def test_what_scored_requests_shared_is_counted_and_written_down(model: Any) -> None:
    from text_model import choices

    beginning = "An example that all of them begin with, long enough for several blocks of tokens. " * 2
    prefixes = [f"{beginning}Question {place}: why?" for place in range(2)]

    def ask(lm: Any, *places: int) -> None:
        asked = [each for place in places for each in choices(prefixes[place], " so", " not", " as it is")]
        lm.loglikelihood(asked, disable_tqdm=True)

    disk = Disk()
    # Two targets have room: the third of a prefix is a sequence of its own, which takes the whole prefix over.
    whole, alone = make(model, disk.journal(), batch_size=2), make(model, batch_size=2)
    ask(whole, 0, 1)
    ask(alone, 0)
    once = alone.proof.shared()["scoring"]
    ask(alone, 1)
    apart, found = alone.proof.shared()["scoring"], whole.proof.shared()["scoring"]
    assert once.positions > 0
    assert apart.positions == 2 * once.positions
    assert found.positions > apart.positions
    assert found.flops > apart.flops > 0
    assert found.forwards > 0
    assert whole.proof.of() == alone.proof.of()
    again = make(model, Disk(0).journal(disk), batch_size=2)
    ask(again, 0, 1)
    assert again.proof.shared() == whole.proof.shared()


def test_answers_that_were_taken_over_are_in_no_speed(model: Any) -> None:
    whole = make(model)
    generate(whole)
    first = cut_off(model, generate, 3, batch_size=1)
    resumed = make(model, Disk().journal(first))
    generate(resumed)
    kept = sum(json.loads(line)["tokens"] for line in first.lines)
    assert resumed.meter.decoding.requests == 2
    assert resumed.meter.decoding.tokens == whole.meter.decoding.tokens - kept
    assert 0 < resumed.meter.decoding.forwards < whole.meter.decoding.forwards
    assert sum(tokens for tokens, _ in resumed.details.values()) == sum(
        tokens for tokens, _ in whole.details.values()
    )


def test_a_run_that_has_all_its_answers_asks_nothing(model: Any) -> None:
    whole = Disk()
    expected = generate(make(model, whole.journal()))
    nothing = Disk(0)
    again = make(model, nothing.journal(whole))
    assert generate(again) == expected
    assert again.journal.resumed == 5
    assert again.meter.decoding.requests == 0
    assert "decoding" not in again.meter.summary()


def test_three_attempts_are_as_good_as_one(model: Any) -> None:
    whole = make(model, batch_size=1)
    expected = generate(whole)
    first = cut_off(model, generate, 2, batch_size=1)
    second = Disk(1)
    with pytest.raises(CutOffError):
        generate(make(model, second.journal(first), batch_size=1))
    last = make(model, Disk().journal(first, second), batch_size=1)
    assert generate(last) == expected
    assert last.journal.resumed == 3
    assert last.proof.of() == whole.proof.of()


def test_progress_counts_what_was_there_before(model: Any) -> None:
    first = cut_off(model, generate, 3, batch_size=1)
    second = Disk()
    generate(make(model, second.journal(first), batch_size=1))
    assert second.told[-1] == (5, 5)
    assert {total for _, total in second.told} == {5}
    done = [count for count, _ in second.told]
    assert done == sorted(done)
    assert min(done) >= 3
    assert first.told[-1] == (3, 5)


@pytest.mark.parametrize("after", [1, 2])
def test_equal_requests_are_told_apart(model: Any, after: int) -> None:
    """Three draws for one and the same prompt differ, and each keeps its own."""
    from text_model import asked

    def draw(lm: Any) -> list[str]:
        return lm.generate_until([asked("One", **DRAWN)] * 3, disable_tqdm=True)

    expected = draw(make(model))
    assert len(set(expected)) == 3
    first = cut_off(model, draw, after, batch_size=1)
    resumed = make(model, Disk().journal(first))
    assert draw(resumed) == expected
    assert resumed.journal.resumed == after


@pytest.mark.parametrize("change", [{"max_gen_toks": 41}, {"until": ["x"]}, {"task": "renamed"}])
def test_another_request_is_not_answered_from_the_journal(model: Any, change: dict[str, Any]) -> None:
    from text_model import asked

    disk = Disk()
    make(model, disk.journal()).generate_until([asked("One", **SHORT)], disable_tqdm=True)
    other = make(model, Disk().journal(disk))
    other.generate_until([asked("One", **SHORT | change)], disable_tqdm=True)
    assert other.journal.resumed == 0


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_scoring_goes_on_where_it_was_cut_off(model: Any, after: int, batch_size: int) -> None:
    whole = make(model, batch_size=batch_size)
    expected = score(whole)
    first = cut_off(model, score, after, batch_size=batch_size)
    second = Disk()
    resumed = make(model, second.journal(first), batch_size=batch_size)
    found = score(resumed)
    assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-4)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    assert resumed.proof.of() == whole.proof.of()
    assert resumed.proof.of(["other"]) == whole.proof.of(["other"])
    kept = sum(len(json.loads(line)["scores"]) for line in first.lines)
    assert resumed.journal.resumed == kept
    assert (kept > 0) == (after > 0)
    assert resumed.meter.scoring.requests == len(endings()) - kept
    assert len(second.lines) == 3 - after
    assert second.told[-1] == (10, 10)


def test_scores_come_back_as_they_were(model: Any) -> None:
    whole = Disk()
    expected = score(make(model, whole.journal()))
    again = make(model, Disk(0).journal(whole))
    assert score(again) == expected
    assert again.meter.scoring.requests == 0


def test_why_a_policy_was_idle_survives(model: Any) -> None:
    from text_model import choices

    def letters(lm: Any) -> None:
        lm.loglikelihood(choices("Question: which?\nAnswer:", "A", "B"), disable_tqdm=True)

    disk = Disk()
    whole = make(model, disk.journal())
    letters(whole)
    again = make(model, Disk().journal(disk))
    letters(again)
    assert again.journal.resumed == 2
    assert again.proof.of()["scoring"].inactive == whole.proof.of()["scoring"].inactive
    assert whole.proof.of()["scoring"].inactive


def test_other_endings_of_a_question_are_scored_anew(model: Any) -> None:
    from text_model import choices

    disk = Disk()
    make(model, disk.journal()).loglikelihood(choices("Which? Answer:", " A", " B"), disable_tqdm=True)
    other = make(model, Disk().journal(disk))
    other.loglikelihood(choices("Which? Answer:", " A", " C"), disable_tqdm=True)
    assert other.journal.resumed == 0
