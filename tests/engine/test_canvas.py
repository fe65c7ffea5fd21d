"""LLaDA and Dream on whole canvases: their vectors, an independent oracle, caches, guidance and refusals."""

import math
from collections import Counter
from functools import lru_cache
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_families import rules

from canvas_oracle import CanvasBruteForce, CanvasSettings, likelihood
from checkpoints import MASK, OF_FAMILY, VOCABULARY, Model, load_recipe, small_recipe
from decoding_cases import prompts, requests
from traces import Trace, trace
from unmask.conformance.published import CANVAS_KINDS
from unmask.engine import decode as decoding
from unmask.engine.monte_carlo import Draw, drawn, estimate
from unmask.engine.prompt import Request
from unmask.engine.rules import make_rule
from unmask.engine.score import ScoreRequest
from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy
from unmask.spec import DecodeSpec
from unmask.spec.family import DREAM, FAMILIES, LLADA, Family

CANVASES = [LLADA, DREAM]
ENDS = (VOCABULARY - 3, VOCABULARY - 4)
NEAR = 1e-4
"""Scores and logits this close may be rounded the other way in single precision."""


@lru_cache
def of(family: Family, seed: int = 0, **changes: Any) -> Model:
    return load_recipe(small_recipe(seed, **OF_FAMILY[family.name] | {"eos_token_id": list(ENDS)} | changes))


@st.composite
def specs(draw: st.DrawFn, family: Family, cached: bool | None = None) -> DecodeSpec:
    """Settings that a family can serve."""
    rule = draw(rules())
    ends = (None, None, "never", *(["last"] if make_rule(rule, family).score == "confidence" else []))
    cache = draw(st.sampled_from(family.caches if cached is None else family.caches[1:]))
    filters = family.filters_greedy and draw(st.booleans())
    return DecodeSpec(
        max_new_tokens=draw(st.integers(1, 20)),
        stop_tokens=draw(st.sampled_from(((), (5,), (40, 41, 42, 43)))),
        sub_block_size=draw(st.sampled_from((1, 3, 4, 8, 32))),
        cache=cache,
        refresh_every=None if cache == "none" else draw(st.sampled_from((None, 1, 2, 3))),
        guidance=draw(st.sampled_from((0.0, 0.0, 0.5, 2.0))),
        top_p=draw(st.floats(0.5, 0.99)) if filters else None,
        top_k=draw(st.integers(2, 9)) if filters and draw(st.booleans()) else None,
        end_of_text=draw(st.sampled_from(ends)),
        rule=rule,
    )


def settings_of(spec: DecodeSpec, family: Family, **changes: Any) -> CanvasSettings:
    """The oracle's settings."""
    full = spec.resolved(family, None)
    values: dict[str, Any] = {
        "max_new_tokens": full.max_new_tokens,
        "rule": msgspec.to_builtins(full.unmasking),
        "sub_block_size": full.sub_block_size,
        "cache": full.cache,
        "refresh_every": full.refresh_every,
        "guidance": full.guidance,
        "top_p": full.top_p,
        "top_k": full.top_k,
        "stop_tokens": frozenset(full.stop_tokens or ()),
        "never": frozenset(ENDS[:1] if full.end_of_text == "never" else ()),
        "last": frozenset(ENDS if full.end_of_text == "last" else ()),
    }
    return CanvasSettings(**(values | changes))


def agrees(model: Model, prompt: list[int], settings: CanvasSettings, found: Trace) -> bool:
    """Whether steps are the oracle's, idle ones left out; False where they part within rounding, else it fails."""
    expected = CanvasBruteForce(model.oracle, prompt, settings)
    expected.run()
    steps = expected.needed_steps
    for ours, theirs in zip(found.steps, steps, strict=False):
        if ours.writes != theirs.writes and min(theirs.logit_gap, theirs.choice_gap) <= NEAR:
            return False
        assert (CANVAS_KINDS[ours.kind], ours.writes) == (theirs.kind, theirs.writes)
    assert len(found.steps) == len(steps)
    assert found.answer.ids == expected.answer
    counted: Counter[tuple[str, int]] = Counter()
    for work, count in found.answer.ledger.entries.items():
        counted[CANVAS_KINDS[work.kind], work.rows] += count
    assert counted == expected.forwards(idle=False)
    return True


@pytest.mark.parametrize("family", CANVASES, ids=lambda family: family.name)
@given(st.data())
def test_random_settings_equal_brute_force(family: Family, data: st.DataObject) -> None:
    """Each request of a batch, whose prompts and answers have lengths of their own."""
    model = of(family, seed=data.draw(st.integers(0, 2), label="seed"))
    rows = data.draw(st.lists(requests(30, 20), min_size=1, max_size=3), label="rows")
    spec = data.draw(specs(family), label="spec")
    found = trace(model.engine, rows, spec, data.draw(st.integers(1, 3), label="batch size"))
    compared = [
        agrees(model, list(row.prompt), settings_of(spec, family, max_new_tokens=row.max_new_tokens), one)
        for row, one in zip(rows, found, strict=True)
    ]
    assume(any(compared))


@pytest.mark.parametrize("held", ["never", "last"])
def test_end_tokens_are_held_back(held: str) -> None:
    """`never` predicts no end-of-text token; `last` gives end tokens no confidence, so others come first."""
    acted = 0
    for seed in range(4):
        prompt, plain = [seed + 1] * 9, DecodeSpec(max_new_tokens=24, sub_block_size=8, stop_tokens=())
        (without,) = trace(of(LLADA, seed).engine, [prompt], plain)
        ends = tuple(dict.fromkeys(without.answer.ids))[:2]
        model = load_recipe(small_recipe(seed, **OF_FAMILY["llada"] | {"eos_token_id": list(ends)}))
        (found,) = trace(model.engine, [prompt], msgspec.structs.replace(plain, end_of_text=held))
        settings = settings_of(plain, LLADA, **{held: frozenset(ends[:1] if held == "never" else ends)})
        acted += agrees(model, prompt, settings, found) and found.steps != without.steps
        assert held == "last" or ends[0] not in found.answer.ids
    assert acted


@pytest.mark.parametrize("family", CANVASES, ids=lambda family: family.name)
@given(st.data())
def test_a_batch_decodes_what_each_request_decodes_alone(family: Family, data: st.DataObject) -> None:
    """Also with draws by lot, and with tokens drawn at a temperature."""
    model, spec = of(family), data.draw(specs(family), label="spec")
    lots: dict[str, Any] = data.draw(
        st.sampled_from(
            (
                {},
                {"temperature": 0.8},
                {"rule": {"kind": "random", "n": 2}},
                {"rule": {"kind": "origin", "steps": 5}},
                {"rule": {"kind": "share", "steps": 5, "temperature": 0.5}, "end_of_text": None},
            )
        ),
        label="lots",
    )
    spec = msgspec.convert(msgspec.to_builtins(spec) | lots, DecodeSpec)
    rows = data.draw(st.lists(requests(30, 15), min_size=2, max_size=4), label="rows")
    together = model.engine.generate(rows, spec, batch_size=data.draw(st.integers(1, 4), label="batch size"))
    for request, found in zip(rows, together, strict=True):
        (alone,) = model.engine.generate([request], spec)
        assert (found.ids, found.ledger) == (alone.ids, alone.ledger)


@given(st.data())
def test_a_cache_that_is_refreshed_at_every_step_is_none(data: st.DataObject) -> None:
    model = of(LLADA)
    spec, prompt = data.draw(specs(LLADA, cached=True)), data.draw(prompts(30))
    often = msgspec.structs.replace(spec, refresh_every=1)
    never = msgspec.structs.replace(spec, cache="none", refresh_every=None)
    (cached,), (plain,) = trace(model.engine, [prompt], often), trace(model.engine, [prompt], never)
    assert cached.steps == plain.steps
    assert cached.answer.ledger == plain.answer.ledger


def test_caches_differ_from_each_other_and_from_none() -> None:
    model, prompt = of(LLADA), [1, 2, 3, 4, 5]
    answers = {
        cache: tuple(
            model.engine.generate(
                [prompt], {"max_new_tokens": 32, "sub_block_size": 8, "cache": cache, "stop_tokens": ()}
            )[0].ids
        )
        for cache in LLADA.caches
    }
    assert len(set(answers.values())) == 3


def test_the_length_asked_for_is_part_of_the_question() -> None:
    engine = of(LLADA).engine
    short, long = (
        engine.generate([[1, 2, 3]], {"max_new_tokens": length, "stop_tokens": ()})[0].ids
        for length in (16, 32)
    )
    assert short != long[:16]


@pytest.mark.parametrize("limit", ["PREFILL_ROWS", "MOST_LOGITS"])
def test_forwards_and_logits_are_cut_without_a_difference(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Request([token] * (3 * token), 20) for token in range(1, 6)]
    settings = {"sub_block_size": 10, "cache": "prefix", "guidance": 0.5, "stop_tokens": ()}
    for family in CANVASES:
        engine = of(family).engine
        before = engine.generate(rows, settings)
        monkeypatch.setattr(decoding, limit, 64 if limit == "PREFILL_ROWS" else 3 * VOCABULARY)
        after = engine.generate(rows, settings)
        monkeypatch.undo()
        assert [answer.ids for answer in after] == [answer.ids for answer in before]
        assert [answer.ledger for answer in after] == [answer.ledger for answer in before]


def test_guidance_is_counted_twice_and_read_once() -> None:
    engine = of(LLADA).engine
    plain, guided = (
        engine.generate([[1, 2, 3]], {"max_new_tokens": 8, "guidance": guidance, "stop_tokens": ()})[0]
        for guidance in (0.0, 1.0)
    )
    assert guided.ids != plain.ids
    assert guided.ledger.steps()["block"] == 2 * plain.ledger.steps()["block"] == 16
    assert (plain.sharing.forwards, guided.sharing.forwards) == (0, 8)


def test_lots_differ_from_seed_to_seed() -> None:
    engine = of(DREAM).engine
    for rule in ({"kind": "random", "n": 1}, {"kind": "origin"}, {"kind": "share", "temperature": 1.0}):
        orders = set()
        for seed in range(4):
            spec = msgspec.convert(
                {"max_new_tokens": 12, "seed": seed, "rule": rule, "stop_tokens": ()}, DecodeSpec
            )
            (found,) = trace(engine, [[1, 2, 3]], spec)
            orders.add(tuple(tuple(step.writes) for step in found.steps))
            assert len(found.answer.ids) == 12
        assert len(orders) > 1


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_family_can_do_without_end_tokens(family: Family) -> None:
    """What blocks predict behind a commit or prefill included."""
    prompts_ = [[seed] * 9 for seed in range(1, 5)]
    settings = {"max_new_tokens": 24, "stop_tokens": ()}
    plain = [answer.ids for answer in of(family, eos_token_id=40).engine.generate(prompts_, settings)]
    end = plain[0][0]
    engine = of(family, eos_token_id=end).engine
    found = [answer.ids for answer in engine.generate(prompts_, settings | {"end_of_text": "never"})]
    assert all(end not in ids and len(ids) == 24 for ids in found)
    assert found != plain


@pytest.mark.parametrize("family", CANVASES, ids=lambda family: family.name)
@pytest.mark.parametrize("rule", [{"kind": "top_n", "steps": 5}, {"kind": "share", "steps": 5}], ids=str)
def test_steps_and_sub_blocks_need_not_divide(family: Family, rule: dict[str, Any]) -> None:
    """Sub-blocks of 8, 8 and 5 positions, in five steps each; the published code refuses such settings."""
    for cache in family.caches:
        settings = {
            "max_new_tokens": 21,
            "sub_block_size": 8,
            "cache": cache,
            "rule": rule,
            "stop_tokens": (),
        }
        (answer,) = of(family).engine.generate([[1, 2, 3]], settings)
        assert len(answer.ids) == 21
        # The step that opens a sub-block for Dream's caches writes one position, whatever its share is.
        opening = 3 if family is DREAM and cache != "none" else 0
        assert sum(answer.ledger.steps().values()) <= 15 + opening


@pytest.mark.parametrize(
    ("family", "settings", "words"),
    [
        (LLADA, {"max_new_tokens": 4095}, "a canvas of 4097 positions, but the model has 4096"),
        (LLADA, {"block_size": 32}, "prompt and answer are one block"),
        (LLADA, {"refresh_every": 2}, "the cache is none"),
        (DREAM, {"end_of_text": "last"}, "the unmasking rule reads entropy"),
        (FAMILIES["sdar"], {"cache": "prefix"}, "sdar cannot use the cache prefix; choose among none"),
        (
            FAMILIES["fast_dllm_v2"],
            {"cache": "prefix"},
            "cannot use the cache prefix; choose among dual, none",
        ),
        (FAMILIES["fast_dllm_v2"], {"guidance": 1.0}, "Guidance needs a prompt that can be hidden"),
        (
            FAMILIES["sdar"],
            {"guidance": 1.0},
            "models of the family sdar keep its keys, so leave guidance out",
        ),
        (FAMILIES["sdar"], {"refresh_every": 2}, "the cache is none; leave one out"),
        (FAMILIES["autoregressive"], {"cache": "dual"}, "cannot use the cache dual; choose among none"),
        (DREAM, {"cache": "both"}, "cache"),
        (DREAM, {"refresh_every": 0, "cache": "dual"}, "refresh_every is 0"),
        (LLADA, {"block_cache": True}, "It is now called cache"),
    ],
)
def test_what_a_family_cannot_do_is_refused(family: Family, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UnmaskError) as caught:
        of(family).engine.generate([[1, 2]], settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_end_tokens_that_nobody_knows_cannot_be_held_back() -> None:
    with pytest.raises(UnmaskError, match="the checkpoint names none"):
        of(LLADA, eos_token_id=None).engine.generate([[1]], {"end_of_text": "never"})


# Scores.


@pytest.mark.parametrize("family", CANVASES, ids=lambda family: family.name)
@pytest.mark.parametrize("guidance", [0.0, 0.5])
def test_an_estimate_is_that_of_the_oracle_on_the_same_draws(family: Family, guidance: float) -> None:
    model = of(family)
    rows = [ScoreRequest([1, 2, 3], [7, 8, 9, 10, 11]), ScoreRequest([5] * 9, [4, 4])]
    draws = [drawn(family.likelihood, row, 12, seed=3) for row in rows if family.likelihood]
    found = estimate(model.engine, rows, draws, DecodeSpec(guidance=guidance), batch_size=3)
    for row, own, given_ in zip(rows, draws, found, strict=True):
        patterns, shares = [draw.masked for draw in own], [draw.share for draw in own]
        expected = likelihood(model.oracle, row.prefix, row.target, patterns, shares, guidance)
        assert given_.logprob == pytest.approx(expected, abs=1e-3)


def chained(model: Model, prefix: list[int], target: list[int], size: int, by_confidence: bool) -> float:
    """The oracle's log likelihood: one forward of the canvas a token, without a cache."""
    oracle, tokens, total = model.oracle, [*prefix, *[MASK] * len(target)], 0.0
    for first in range(0, len(target), size):
        left = list(range(first, min(first + size, len(target))))
        while left:
            sources = [len(prefix) + place - oracle.shift for place in left]
            logits = oracle.logits(tokens)[sources]
            logits[:, MASK] = -math.inf
            logprobs = logits.log_softmax(dim=-1)
            best = int(logprobs.amax(dim=-1).argmax()) if by_confidence else 0
            place = left.pop(best)
            total += float(logprobs[best, target[place]])
            tokens[len(prefix) + place] = target[place]
    return total


@pytest.mark.parametrize("family", CANVASES, ids=lambda family: family.name)
@pytest.mark.parametrize("order", ["confidence", "left_to_right"])
def test_a_chain_is_that_of_the_oracle(family: Family, order: Any) -> None:
    model = of(family)
    rows = [ScoreRequest([1, 2, 3], [7, 8, 9, 10, 11]), ScoreRequest([5] * 9, [4, 4]), ScoreRequest([9], [8])]
    for size in (2, 32):
        found = model.engine.score(rows, "chain", order, {"sub_block_size": size})
        for row, score in zip(rows, found.scores, strict=True):
            expected = chained(model, list(row.prefix), list(row.target), size, order == "confidence")
            assert score.logprob == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("family", CANVASES, ids=lambda family: family.name)
def test_estimates_are_seeded_and_independent_of_the_batch(family: Family) -> None:
    engine = of(family).engine
    rows = [
        ScoreRequest([1, 2, 3], [7, 8, 9, 10, 11]),
        ScoreRequest([1, 2, 3], [4, 4]),
        ScoreRequest([9], [8]),
    ]

    def scored(seed: int, **settings: Any) -> list[tuple[float, float | None]]:
        found = engine.score(rows, "monte_carlo", decode={"draws": 16, "seed": seed}, **settings)
        return [(score.logprob, score.stderr) for score in found.scores]

    first = scored(0)
    assert sum(scored(0, batch_size=2), ()) == pytest.approx(sum(first, ()), abs=1e-4)
    assert first[0] != scored(1)[0]
    assert all(stderr is not None and stderr >= 0 for _, stderr in first)
    alone = engine.score(rows[:1], "monte_carlo", decode={"draws": 16, "seed": 0}).scores[0]
    assert (alone.logprob, alone.stderr) == pytest.approx(first[0], abs=1e-4)


def test_one_token_is_exact_and_equals_chain() -> None:
    engine, rows = of(LLADA).engine, [ScoreRequest([1, 2, 3], [token]) for token in range(8)]
    estimated, exact = engine.score(rows, "monte_carlo"), engine.score(rows, "chain")
    for a, b in zip(estimated.scores, exact.scores, strict=True):
        assert (a.logprob, a.stderr) == (pytest.approx(b.logprob, abs=1e-5), pytest.approx(0, abs=1e-6))
    assert estimated.ledgers[0].steps()["block"] == 1


def test_the_standard_error_says_how_far_estimates_lie_from_each_other() -> None:
    """Draws that are spread evenly over how much is masked lie nearer to each other than independent ones."""
    engine, row = of(LLADA).engine, ScoreRequest([1, 2, 3], list(range(5, 17)))
    found = [
        engine.score([row], "monte_carlo", decode={"draws": 24, "seed": seed}).scores[0] for seed in range(30)
    ]
    values = [score.logprob for score in found]
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    told = math.fsum(score.stderr or 0 for score in found) / len(found)
    assert 0.2 * told < spread < 1.5 * told


def test_draws_are_those_that_are_published() -> None:
    """As many tokens as go round from a drawn number, or each with a probability that goes round."""
    request = ScoreRequest([1], list(range(10)))
    assert LLADA.likelihood
    assert DREAM.likelihood
    by_count = drawn(LLADA.likelihood, request, 10, 0)
    assert sorted(len(draw.masked) for draw in by_count) == [*range(1, 11)]
    assert all(draw.share == len(draw.masked) / 10 for draw in by_count)
    by_share = drawn(DREAM.likelihood, request, 2000, 0)
    assert min(draw.share for draw in by_share) >= 1e-3
    masked = sum(len(draw.masked) for draw in by_share) / 2000
    assert masked == pytest.approx(10 * sum(draw.share for draw in by_share) / 2000, rel=0.05)


def test_a_draw_that_masks_nothing_counts_as_zero() -> None:
    engine, row = of(DREAM).engine, ScoreRequest([1, 2], [3, 4])
    (found,) = estimate(engine, [row], [[Draw((), 0.5), Draw((), 0.1)]], DecodeSpec())
    assert (found.logprob, found.stderr, sum(found.ledger.steps().values())) == (0, 0, 0)


def test_no_policy_can_act_on_an_estimate_and_the_result_says_so() -> None:
    found = of(LLADA).engine.score(
        [ScoreRequest([1], [2, 3])], "monte_carlo", policy=make_policy({"kind": "trim", "inside": True}, 2)
    )
    assert found.inactive == "monte_carlo takes one step a draw, so there is no earlier step to reuse"


def test_targets_of_different_length_do_not_share_a_canvas() -> None:
    engine = of(LLADA).engine
    rows = [ScoreRequest([1, 2, 3], list(range(length))) for length in (1, 2, 3, 3)]
    together = engine.score(rows)
    alone = [engine.score([row]).scores[0].logprob for row in rows]
    assert [score.logprob for score in together.scores] == pytest.approx(alone, abs=1e-5)
    assert len({score.group for score in together.scores}) == 3
