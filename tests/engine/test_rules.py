"""Unmasking rules as pure functions: hand-made scores, and plain restatements of every rule for random ones."""

import math
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.engine.rules import MAKERS, Rule, RuleView, make_rule
from unmask.errors import UnmaskError
from unmask.spec.rule import AnyRuleSpec, RuleSpec, ScoreName, TopNSpec, rule_spec

DOCS = (Path(__file__).parents[2] / "docs" / "decoder.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", DOCS, flags=re.MULTILINE | re.DOTALL)
CONFIDENCES = st.lists(st.floats(2**-20, 1, width=32), min_size=1, max_size=12)


def chosen(scores: list[float], step: int = 0, size: int | None = None, **rule: Any) -> list[int]:
    return list(make_rule(rule).choose(RuleView(step, size or len(scores), scores)))


def by_rank(scores: list[float], count: int) -> list[int]:
    """The best so many, of equal ones the leftmost, written without sharing anything with the package."""
    order = sorted((-score, place) for place, score in enumerate(scores))
    return sorted(place for _, place in order[:count])


def test_every_rule_has_a_maker() -> None:
    assert {*MAKERS} == {*get_args(AnyRuleSpec)}


@pytest.mark.parametrize("spec", MAKERS, ids=lambda spec: str(spec.__struct_config__.tag))
def test_every_rule_has_its_heading_that_names_its_settings(spec: type[RuleSpec]) -> None:
    found = re.search(
        rf"^### `{spec.__struct_config__.tag}`\n(.*?)(?=^##|\Z)", DOCS, re.MULTILINE | re.DOTALL
    )
    assert found, "docs/decoder.md has no heading for the rule"
    for field in msgspec.structs.fields(spec):
        assert f"`{field.name}`" in found[1]


def test_every_score_is_described() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", DOCS, re.MULTILINE)) >= {*get_args(ScoreName)}


# threshold


def test_the_best_is_taken_and_all_strictly_above_the_threshold() -> None:
    def taken(scores: list[float], threshold: float) -> list[int]:
        return chosen(scores, kind="threshold", threshold=threshold)

    assert taken([0.1, 0.3, 0.3], 0.9) == [1], "the leftmost wins a tie"
    assert taken([0.95, 0.9, 0.91], 0.9) == [0, 2], "equal to the threshold is not above it"
    assert taken([0.95, 0.2, 0.99], 0.9) == [0, 2]
    assert taken([1.0, 1.0], 1.0) == [0], "nothing is above 1"


def test_a_threshold_with_steps_fills_the_quota() -> None:
    settings: dict[str, Any] = {"kind": "threshold", "threshold": 0.8, "steps": 3}
    scores = [0.1, 0.5, 0.9, 0.4, 0.85, 0.2, 0.3, 0.6]
    assert chosen(scores, 0, **settings) == [2, 4, 7], "8 positions in 3 steps: 3, 3, 2"
    assert chosen(scores, 2, **settings) == [2, 4], "two are above, and two are due"
    assert chosen(scores[:2], 2, size=8, **settings) == [0, 1]
    assert chosen([0.9] * 8, 0, **settings) == list(range(8)), "more than the quota if more are above"


@given(CONFIDENCES, st.floats(0.01, 1), st.integers(0, 12), st.none() | st.integers(1, 20))
def test_threshold_is_the_best_of_quota_and_number_above(
    scores: list[float], threshold: float, step: int, steps: int | None
) -> None:
    size = 12
    due = 1 if steps is None else max(1, size // steps + (step < size % steps))
    above = sum(score > threshold for score in scores)
    found = chosen(scores, step, size, kind="threshold", threshold=threshold, steps=steps)
    assert found == by_rank(scores, max(due, above))


# top_n and sequential


@given(CONFIDENCES, st.integers(1, 15), st.integers(0, 20), st.booleans())
def test_top_n_and_sequential(scores: list[float], number: int, step: int, as_steps: bool) -> None:
    size = 12
    count = max(1, size // number + (step < size % number)) if as_steps else number
    pace = {"steps" if as_steps else "n": number}
    assert chosen(scores, step, size, kind="top_n", **pace) == by_rank(scores, count)
    assert chosen(scores, step, size, kind="sequential", **pace) == list(range(min(count, len(scores))))


@pytest.mark.parametrize("score", ["confidence", "margin", "entropy"])
def test_top_n_names_the_score_it_reads(score: Any) -> None:
    assert make_rule(TopNSpec(n=1, score=score)).score == score


def test_more_steps_than_positions_write_one_a_step() -> None:
    assert [len(chosen([0.5] * 4, step, 4, kind="top_n", steps=9)) for step in range(4)] == [1, 1, 1, 1]


# entropy_bound


def test_entropies_are_summed_while_they_stay_below_the_bound() -> None:
    scores = [-0.3, -0.05, -0.2, -0.1]
    assert chosen(scores, kind="entropy_bound", bound=0.36) == [1, 2, 3]
    assert chosen(scores, kind="entropy_bound", bound=0.1) == [1]
    assert chosen(scores, kind="entropy_bound", bound=0.0) == [1], "one in any case"
    assert chosen(scores, kind="entropy_bound", bound=9) == [0, 1, 2, 3]
    assert chosen([-0.5, -0.25], kind="entropy_bound", bound=0.25) == [1], (
        "a sum equal to the bound is not below it"
    )


# factor


@given(CONFIDENCES, st.floats(0, 3))
def test_factor(scores: list[float], factor: float) -> None:
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    passed = 1
    for rank in range(1, len(order)):
        if scores[order[rank]] < 1 - factor / (rank + 2):
            break
        passed += 1
    expected = order if passed >= len(order) - 1 else order[:passed]
    assert chosen(scores, kind="factor", factor=factor) == sorted(expected)


def test_of_two_positions_factor_takes_both() -> None:
    assert chosen([0.1, 0.2], kind="factor", factor=0.01) == [0, 1]
    assert chosen([0.1, 0.2, 0.3], kind="factor", factor=0.01) == [2]


# Dream's schedules


def test_with_as_many_steps_as_positions_a_share_lags_behind() -> None:
    rule, masked, written = make_rule({"kind": "share", "steps": 16}), 16, []
    for step in range(16):
        written.append(len(rule.choose(RuleView(step, 16, [-1.0] * masked))))
        masked -= written[-1]
    assert written == [0, *[1] * 14, 2]
    assert masked == 0


@given(st.integers(1, 40), st.integers(1, 60), st.floats(1e-4, 0.5), st.data())
def test_a_share_is_what_the_noise_levels_leave(
    masked: int, steps: int, eps: float, data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, steps - 1))
    exact = masked * (1 - eps) / (steps - step * (1 - eps))
    scores = [-float(place % 7) for place in range(masked)]
    found = chosen(scores, step, masked, kind="share", steps=steps, eps=eps)
    if step == steps - 1:
        assert found == list(range(masked))
    elif abs(exact - round(exact)) > 1e-3:
        assert found == by_rank(scores, math.floor(exact))


def test_overdue_allows_no_more_than_the_schedule_and_drops_what_is_not_confident() -> None:
    settings: dict[str, Any] = {"kind": "overdue", "threshold": 0.5, "steps": 4, "size": 8}
    assert chosen([0.9] * 8, 0, **settings) == [0, 1]
    assert chosen([0.9] * 8, 1, **settings) == [0, 1, 2, 3], "what was left over is overdue"
    assert chosen([0.2, 0.1, 0.6, 0.4], 3, **settings) == [2], "the others are not confident enough"
    assert chosen([0.2, 0.1], 9, **settings) == [0], "one in any case"
    assert chosen([0.5, 0.2], 9, **settings) == [0], "equal to the threshold is enough"


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=8, max_size=8), min_size=30, max_size=30), st.integers(1, 8)
)
def test_overdue_is_the_published_counting(steps_of_scores: list[list[float]], steps: int) -> None:
    """The published loop keeps what it dropped as a debt; the rule knows the step alone."""
    steps = next(number for number in range(steps, 0, -1) if 8 % number == 0)
    masked, left, share = list(range(8)), 0, 8 // steps
    for step, all_scores in enumerate(steps_of_scores):
        scores = [all_scores[place] for place in masked]
        order = by_rank_list(scores)[: (share if step < steps else 0) + left]
        kept = [place for place in order if place == order[0] or scores[place] >= 0.6]
        left = len(order) - len(kept)
        assert chosen(scores, step, 8, kind="overdue", threshold=0.6, steps=steps) == sorted(kept)
        masked = [place for index, place in enumerate(masked) if index not in kept]
        if not masked:
            return


def by_rank_list(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))


# One's own, and bad input.


class Middle:
    """Takes the position in the middle."""

    def choose(self, view: RuleView) -> list[int]:
        return [len(view.scores) // 2]


def test_a_rule_of_ones_own() -> None:
    rule = make_rule(Middle())
    assert rule.score == "confidence"
    assert rule.choose(RuleView(0, 3, [0.1, 0.2, 0.3])) == [1]


def test_a_rule_of_ones_own_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rule.py").write_text(
        EXAMPLE + "\nclass Broken:\n    def choose(self, view):\n        1 / 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = rule_spec({"kind": "custom", "target": "own_rule:EveryOther"})
    assert make_rule(spec).choose(RuleView(0, 5, [0.1] * 5)) == [0, 2, 4]
    assert hash(spec) == hash(rule_spec({"kind": "custom", "target": "own_rule:EveryOther"}))
    before = spec.depends_on()
    assert list(before) == ["rule_code"]
    with pytest.raises(UnmaskError) as caught:
        make_rule({"kind": "custom", "target": "own_rule:Broken"}).choose(RuleView(0, 1, [0.1]))
    line = len(EXAMPLE.splitlines()) + 4
    sentence = f"The rule own_rule:Broken failed in {tmp_path}/own_rule.py, line {line} (ZeroDivisionError"
    assert str(caught.value).startswith(sentence)
    (tmp_path / "own_rule.py").write_text(EXAMPLE)
    assert spec.depends_on() != before, "an edit gives other choices"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.at.all:Rule", "cannot be imported"),
        ("math:sqrt", "it is no class with a method choose(view)"),
        ("decimal:Decimal", "it is no class with a method choose(view)"),
        ("unheard_of", "No installed rule is called 'unheard_of'"),
    ],
)
def test_a_place_without_a_rule_is_refused(target: str, words: str) -> None:
    with pytest.raises(UnmaskError) as caught:
        make_rule({"kind": "custom", "target": target})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([0, 0], "each index from 0 to 2 may be named once"),
        ([3], "chose [3] of 3 positions"),
        ([-1], "chose [-1] of 3 positions"),
        (None, "must return indices of view.scores"),
        ([0.5], "must return indices of view.scores"),
        ("ab", "must return indices of view.scores"),
    ],
)
def test_answers_that_name_no_position_are_refused(answer: Any, words: str) -> None:
    class Wrong:
        def choose(self, view: RuleView) -> Any:  # noqa: ARG002
            return answer

    rule: Rule = make_rule(Wrong())
    with pytest.raises(UnmaskError) as caught:
        rule.choose(RuleView(0, 3, [0.1, 0.2, 0.3]))
    assert words in str(caught.value)
    assert "Wrong" in str(caught.value)


def test_an_unknown_score_is_refused() -> None:
    class Wrong(Middle):
        score = "beauty"

    with pytest.raises(UnmaskError, match="'beauty'; there are confidence, margin, entropy"):
        make_rule(Wrong())  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [Middle, 3, "top_n:n=2"])
def test_what_is_no_rule_is_refused(rule: Any) -> None:
    with pytest.raises(UnmaskError, match="is no unmasking rule"):
        make_rule(rule)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "top_n"}, "Give either n"),
        ({"kind": "top_n", "n": 2, "steps": 4}, "Give either n"),
        ({"kind": "top_n", "n": 0}, "n is 0; it must be at least 1"),
        ({"kind": "sequential", "steps": 10**9}, "at most 10000"),
        ({"kind": "top_n", "n": 1, "score": "beauty"}, "Allowed: confidence, margin, entropy"),
        ({"kind": "threshold", "threshold": 1.5}, "must lie in (0, 1]"),
        ({"kind": "threshold", "steps": 0}, "steps is 0"),
        ({"kind": "share", "steps": 4, "eps": 0}, "eps is 0"),
        ({"kind": "overdue"}, "missing required field `steps`"),
        ({"kind": "overdue", "steps": 4, "threshold": 0}, "threshold is 0"),
        ({"kind": "factor", "factor": -1}, "factor is -1"),
        ({"kind": "entropy_bound", "bound": math.nan}, "bound is nan"),
        (
            {"kind": "beauty"},
            "Kinds: custom, entropy_bound, factor, origin, overdue, random, sequential, share, threshold, top_n",
        ),
        ({"kind": "factor", "facto": 1}, "Allowed fields: factor"),
        ({"kind": "custom", "target": "no place"}, "write package.module:Class"),
    ],
)
def test_settings_that_mean_nothing_are_refused_in_one_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UnmaskError) as caught:
        make_rule(values)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
