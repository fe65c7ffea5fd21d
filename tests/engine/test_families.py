"""Every family's decoder against its brute force: random settings and rules, prompts of awkward lengths, batches."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from brute_force import BruteForce
from checkpoints import MASK, OF_FAMILY, Model, engine_of, small_model
from decoding_cases import prompts, requests
from traces import same_but_for_rounding, settings_of, trace
from unmask.engine import decode as decoding
from unmask.engine.engine import Engine
from unmask.engine.forward import Workspace
from unmask.engine.prompt import Request
from unmask.errors import UnmaskError
from unmask.evaluation.recordings import record_decoding
from unmask.spec import DecodeSpec
from unmask.spec.family import FAMILIES, Family
from unmask.spec.rule import AnyRuleSpec

BLOCKWISE = [family for family in FAMILIES.values() if not family.canvas]


def of(family: Family, seed: int = 0, **changes: Any) -> Model:
    return small_model(seed, **OF_FAMILY[family.name] | changes)


@st.composite
def rules(draw: st.DrawFn) -> AnyRuleSpec:
    """Any unmasking rule of the package."""
    steps, tau = draw(st.integers(1, 9)), draw(st.sampled_from((0.3, 0.6, 0.9, 1.0)))
    score = draw(st.sampled_from(("confidence", "margin", "entropy")))
    pace = draw(st.sampled_from(({"n": draw(st.integers(1, 4))}, {"steps": steps})))
    values: dict[str, Any] = draw(
        st.sampled_from(
            (
                {"kind": "threshold", "threshold": tau},
                {"kind": "threshold", "threshold": tau, "steps": steps},
                {"kind": "top_n", "score": score} | pace,
                {"kind": "sequential"} | pace,
                {"kind": "entropy_bound", "bound": draw(st.floats(0, 6))},
                {"kind": "factor", "factor": draw(st.floats(0, 2))},
                {"kind": "share", "steps": steps, "score": score},
                {"kind": "overdue", "steps": steps, "threshold": tau},
            )
        )
    )
    return msgspec.convert(values, AnyRuleSpec)


@st.composite
def specs(draw: st.DrawFn, family: Family) -> DecodeSpec:
    """Settings that a family can serve."""
    stops = draw(st.sampled_from(((), (5,), (40, 41, 42, 43))))
    wanted = draw(st.integers(1, 30))
    if not family.has_mask:
        return DecodeSpec(max_new_tokens=wanted, stop_tokens=stops)
    block = draw(st.sampled_from((3, 4, 8, 16)))
    return DecodeSpec(
        max_new_tokens=wanted,
        stop_tokens=stops,
        block_size=block,
        sub_block_size=draw(st.sampled_from([size for size in (1, 2, 3, 4, 8, 16) if block % size == 0])),
        cache=draw(st.sampled_from(family.caches)),
        rule=draw(rules()),
    )


def check(model: Model, prompt: list[int], spec: DecodeSpec) -> None:
    """The engine's steps are the oracle's, and so are the tokens unless both part within rounding."""
    settings = settings_of(spec, None, model.engine.config.family)
    expected = BruteForce(model.oracle, prompt, settings)
    steps = expected.run()
    (found,) = trace(model.engine, [prompt], spec)
    if same_but_for_rounding(model.oracle, prompt, settings, steps, found.steps):
        assert found.answer.ids == expected.answer


@pytest.mark.parametrize("family", BLOCKWISE, ids=lambda family: family.name)
@given(st.data())
def test_random_settings_equal_brute_force(family: Family, data: st.DataObject) -> None:
    model = of(family, seed=data.draw(st.integers(0, 2), label="seed"))
    check(model, data.draw(prompts(40), label="prompt"), data.draw(specs(family), label="spec"))


@pytest.mark.parametrize("family", BLOCKWISE, ids=lambda family: family.name)
@given(st.data())
def test_a_batch_decodes_what_each_request_decodes_alone(family: Family, data: st.DataObject) -> None:
    model, spec = of(family), data.draw(specs(family), label="spec")
    rows = data.draw(st.lists(requests(40, 20), min_size=2, max_size=4), label="rows")
    together = trace(model.engine, rows, spec, data.draw(st.integers(1, 4), label="batch size"))
    for request, found in zip(rows, together, strict=True):
        (alone,) = trace(model.engine, [request], spec)
        settings = settings_of(spec, None, family, max_new_tokens=request.max_new_tokens)
        if same_but_for_rounding(model.oracle, list(request.prompt), settings, alone.steps, found.steps):
            assert found.answer.ids == alone.answer.ids
            assert found.answer.ledger == alone.answer.ledger


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 255, 256, 257, 300, 700])
def test_long_and_short_prompts_are_prefilled_under_a_staircase(length: int) -> None:
    for family, block in (
        ("autoregressive", {}),
        ("sdar", {"block_size": 4}),
        ("fast_dllm_v2", {"block_size": 8}),
    ):
        spec = DecodeSpec(max_new_tokens=6, stop_tokens=(), **block)
        check(of(FAMILIES[family]), [index * 7 % MASK for index in range(length)], spec)


@pytest.mark.parametrize("family", BLOCKWISE, ids=lambda family: family.name)
def test_prompts_that_begin_alike_are_fed_once_and_decode_as_alone(family: Family) -> None:
    engine, beginning = of(family).engine, [index * 5 % MASK for index in range(64)]
    rows = [Request([*beginning, *rest], 8) for rest in ([1], [2, 3], [2, 4, 5], list(range(20)))]
    together = engine.generate(rows, {"stop_tokens": ()})
    alone = [engine.generate([row], {"stop_tokens": ()})[0] for row in rows]
    assert [answer.ids for answer in together] == [answer.ids for answer in alone]
    assert [answer.ledger for answer in together] == [answer.ledger for answer in alone]
    assert sum(answer.sharing.positions > 0 for answer in together) == len(rows) - 1


@given(st.data())
def test_a_blocks_prompt_tail_counts_for_the_quota(data: st.DataObject) -> None:
    """SDAR's schedule is not adapted to the tail: its last steps may find nothing left."""
    length, steps = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 8))
    spec = DecodeSpec(
        max_new_tokens=8, block_size=8, stop_tokens=(), rule=make({"kind": "top_n", "steps": steps})
    )
    (found,) = trace(of(FAMILIES["sdar"]).engine, [[1] * length], spec)
    first = next(step for step in found.steps if step.kind == "block")
    assume(length % 8)
    assert len(first.writes) == min(8 - length % 8, 8 // steps + (8 % steps > 0))


def make(values: dict[str, Any]) -> AnyRuleSpec:
    return msgspec.convert(values, AnyRuleSpec)


def test_an_sdar_block_that_the_prompt_ends_with_predicts_nothing() -> None:
    """Without a shift nothing is read from a prefill or a commit, and the last commit never happens."""
    (found,) = trace(of(FAMILIES["sdar"]).engine, [[1] * 8], DecodeSpec(max_new_tokens=8, stop_tokens=()))
    assert [step.kind for step in found.steps if not step.writes] == ["prefill", "commit"]
    assert found.answer.ledger.steps()["commit"] == 1


def test_logits_are_cut_where_a_forward_reads_nothing_of_some_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A block of SDAR that is committed predicts nothing, beside others that predict a lot."""
    engine = of(FAMILIES["sdar"]).engine
    rows = [Request([1] * length, 11) for length in (4, 5, 6, 7, 9)]
    settings = {"stop_tokens": (), "rule": {"kind": "top_n", "n": 2}}
    before = engine.generate(rows, settings)
    monkeypatch.setattr(decoding, "MOST_LOGITS", 3 * engine.config.vocab_size)
    assert [answer.ids for answer in engine.generate(rows, settings)] == [answer.ids for answer in before]


def test_settings_that_a_family_cannot_serve_are_refused() -> None:
    for family, settings, words in (
        ("autoregressive", {"rule": {"kind": "factor"}}, "predict one token at a time"),
        ("autoregressive", {"threshold": 0.5}, "predict one token at a time"),
        ("autoregressive", {"block_size": 8}, "blocks of 1"),
        ("sdar", {"cache": "dual"}, "cannot use the cache dual"),
        ("sdar", {"sub_block_size": 3}, "4 is not a multiple of sub_block_size 3"),
    ):
        with pytest.raises(UnmaskError) as caught:
            of(FAMILIES[family]).engine.generate([[1]], settings)
        assert words in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
@pytest.mark.parametrize("length", [3, 8, 13])
def test_a_recording_says_what_every_forward_fed(family: Family, length: int) -> None:
    """It follows the blocks by itself; what it says is held against the segments that were fed."""
    fed: list[list[int]] = []

    class Watched(Engine):
        def workspace(self, slots: int, length: int, block_size: int) -> Workspace:
            workspace = super().workspace(slots, length, block_size)
            forward = workspace.forward

            def noted(tokens: Any, segments: Any, *rest: Any) -> Any:
                fed.append([segments[0].positions[0], segments[-1].positions[-1] + 1])
                return forward(tokens, segments, *rest)

            workspace.forward = noted  # type: ignore[method-assign]
            return workspace

    engine = engine_of(Watched, of(family).engine)
    recorded = record_decoding(engine, [1] * length, {"max_new_tokens": 20, "stop_tokens": ()})
    assert [step["fed"] for step in recorded["steps"]] == fed
