"""fp16 and bf16 on the CPU: the golden vectors run, and how far their predictions agree with fp32's."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from checkpoints import (
    change_weights,
    engine_of,
    golden_settings,
    load_engine,
    load_recipe,
    read_golden,
    small_model,
    small_recipe,
    write_small,
)
from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent, collect
from unmask.engine.forward import PlannedPart
from unmask.engine.policy import StepView
from unmask.engine.prompt import Request
from unmask.engine.step_plan import Op, StepPlan, Unit
from unmask.engine.unmasking import ForcedTokens
from unmask.model.geometry import Segment
from unmask.model.transformer import Transformer

VECTORS = ["single_28layers", "single_len40", "single_len96", "single_mqa"]
FLOORS = {torch.float32: 1.0, torch.float16: 0.97, torch.bfloat16: 0.93}
"""Share of forced tokens that are also predicted. Measured on all vectors (torch 2.13.0, CPU): 9165 of 9178 in fp16
(0.999), 9037 in bf16 (0.985); with a residual stream of the working dtype 9162 and 9022. Of these four it is 0.997
and 0.978. The floors leave about 2.5 and 5 points for kernels that round in another order."""
Script = dict[int, list[list[tuple[int, int]]]]


def requests_of(vector: dict[str, Any]) -> tuple[list[Request], dict[str, Any]]:
    settings = golden_settings(vector)
    limits = settings.pop("max_new_tokens")
    return [Request(ids, limit) for ids, limit in zip(vector["prompts"], limits, strict=True)], settings


def script_of(engine: Engine, vector: dict[str, Any]) -> Script:
    """What fp32 writes, step by step."""
    requests, settings = requests_of(vector)
    script: Script = {index: [] for index in range(len(requests))}
    for event in engine.stream(requests, settings):
        if isinstance(event, StepEvent) and event.positions:
            script[event.request].append(list(zip(event.positions, event.tokens, strict=True)))
    return script


def agreement(engine: Engine, vector: dict[str, Any], script: Script) -> ForcedTokens:
    requests, settings = requests_of(vector)
    rule = ForcedTokens(script)
    for event in engine.stream(requests, settings, rule=rule):
        if not isinstance(event, StepEvent):
            expected = vector["expect"][event.request]["ids"]
            assert event.generation.ids == expected, "forced tokens are the answer in any dtype"
    return rule


@pytest.fixture(scope="module")
def scripts() -> dict[str, Script]:
    return {
        name: script_of(load_recipe(read_golden(name)["checkpoint"]).engine, read_golden(name))
        for name in VECTORS
    }


@pytest.mark.parametrize("dtype", FLOORS, ids=str)
def test_candidates_agree_with_those_of_fp32_on_the_same_states(
    dtype: torch.dtype, scripts: dict[str, Script]
) -> None:
    positions = agreed = 0
    for name in VECTORS:
        vector = read_golden(name)
        engine = load_recipe(vector["checkpoint"], dtype).engine
        assert engine.transformer.dtype == dtype
        found = agreement(engine, vector, scripts[name])
        print(f"{name} {dtype}: {found.agreed} of {found.positions} predictions agree")
        positions, agreed = positions + found.positions, agreed + found.agreed
    print(f"all {dtype}: {agreed} of {positions} = {agreed / positions:.4f}")
    assert agreed / positions >= FLOORS[dtype]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["single_len33", "single_nocache", "single_stop0"])
def test_golden_vectors_decode_freely(name: str, dtype: torch.dtype) -> None:
    vector = read_golden(name)
    requests, settings = requests_of(vector)
    answers = load_recipe(vector["checkpoint"], dtype).engine.generate(requests, settings)
    for request, answer in zip(requests, answers, strict=True):
        assert len(answer.ids) == request.max_new_tokens or answer.finish_reason == "stop"


def lowered(dtype: torch.dtype) -> Transformer:
    return load_recipe(small_recipe(), dtype).engine.transformer


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1e-4, 1.0, 1000.0, 30000.0])
def test_norms_are_fp32_inside(dtype: torch.dtype, size: float) -> None:
    """The square of 1000 overflows fp16, that of 1e-4 vanishes in it; normalised both are as any other."""
    narrow, wide = lowered(dtype), small_model().engine.transformer
    draw = torch.Generator().manual_seed(0)
    x = (torch.randn(5, 32, generator=draw).clamp(-2, 2) * size).to(dtype)
    expected = wide._rms_norm(x.float(), wide.norm_D)
    found = narrow._rms_norm(x, narrow.norm_D)
    assert found.dtype == dtype
    assert (found.float() - expected).abs().max() < 4 * torch.finfo(dtype).eps * expected.abs().max()


LARGE = [7, *(20 + place % 30 for place in range(40))]
"""A prompt whose first token is planted to be large."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in which a few rows grow as those of Qwen2.5 do: each change fits into fp16, their sum does not."""

    def plant(weights: dict[str, Tensor]) -> None:
        weights["model.embed_tokens.weight"][7] = 60000.0
        weights["model.layers.1.mlp.down_proj.weight"] *= 8000.0

    return change_weights(write_small(tmp_path_factory.mktemp("large")), plant)


def test_activations_may_add_up_to_more_than_fp16_holds(large: Path) -> None:
    wide, narrow = load_engine(large), load_engine(large, torch.float16)
    places = [Segment(0, range(len(LARGE)), len(LARGE))]
    stream = narrow.workspace(1, len(LARGE), 32).forward(LARGE, places).hidden_TD
    assert torch.finfo(torch.float16).max < stream.abs().max() < torch.inf
    script: Script = {0: []}
    settings = {"max_new_tokens": 40, "stop_tokens": ()}
    for event in wide.stream([LARGE], settings):
        if isinstance(event, StepEvent) and event.positions:
            script[0].append(list(zip(event.positions, event.tokens, strict=True)))
    rule = ForcedTokens(script)
    collect(narrow.stream([LARGE], settings, rule=rule))
    assert rule.agreed / rule.positions >= FLOORS[torch.float16]


def test_products_add_up_in_fp32_on_a_gpu(large: Path) -> None:
    """What torch may do with sums of half precision is off once weights are loaded, whatever it was before."""
    settings = torch.backends.cuda.matmul
    settings.allow_tf32 = settings.allow_fp16_accumulation = True
    settings.allow_fp16_reduced_precision_reduction = settings.allow_bf16_reduced_precision_reduction = True
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    load_engine(large, torch.float16)
    assert not settings.allow_tf32
    assert not settings.allow_fp16_accumulation
    assert not settings.allow_fp16_reduced_precision_reduction
    assert not settings.allow_bf16_reduced_precision_reduction
    assert not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("unit", Unit)
def test_a_plan_that_refreshes_each_step_is_the_baseline(unit: Unit, dtype: torch.dtype) -> None:
    """To the bit, in any dtype, and whatever dtype a feature is kept in."""

    class Refreshing:
        def plan(self, view: StepView) -> StepPlan:
            return StepPlan((Op.REFRESH,) * view.layers, unit)

    engine = load_recipe(small_recipe(), dtype).engine
    plain, refreshed = (
        [event for event in engine.stream([LARGE], policy=policy) if isinstance(event, StepEvent)]
        for policy in (None, Refreshing())
    )
    assert [event.confidences for event in refreshed] == [event.confidences for event in plain]
    assert [event.tokens for event in refreshed] == [event.tokens for event in plain]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("unit", Unit)
def test_what_is_replayed_is_what_was_computed(unit: Unit, dtype: torch.dtype) -> None:
    """A second forward of the same rows that puts everything back gives the states of the first, to the bit."""
    engine = load_recipe(small_recipe(), dtype).engine
    layers, places = engine.config.num_layers, [Segment(0, range(20), 20)]
    workspace, tokens = engine.workspace(1, 32, 32), LARGE[:20]
    refresh, replay = (PlannedPart(StepPlan((op,) * layers, unit), 1) for op in (Op.REFRESH, Op.REPLAY))
    first = workspace.forward(tokens, places, [refresh]).hidden_TD.clone()
    second = workspace.forward(tokens, places, [replay]).hidden_TD
    assert first.dtype == second.dtype == torch.float32
    close = unit is Unit.RESIDUAL  # a difference of states is put back, not a sum of changes
    assert torch.allclose(first, second, atol=1e-6) if close else torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_logits_and_confidences_are_fp32(dtype: torch.dtype) -> None:
    transformer = lowered(dtype)
    assert transformer.logits(torch.ones(2, 32, dtype=dtype)).dtype == torch.float32
    confidences = [
        value
        for event in engine_of(Engine, small_model().engine, transformer).stream([[1, 2, 3]])
        if isinstance(event, StepEvent)
        for value in event.confidences
    ]
    rounded = torch.tensor(confidences).to(dtype).float().tolist()
    assert any(value != short for value, short in zip(confidences, rounded, strict=True))
