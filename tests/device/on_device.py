"""What a device other than the CPU is asked: run on a pretended one by test_pretended_device.py, or `make test-gpu`."""

import sys
from functools import lru_cache
from typing import Any

import pytest
import torch

from checkpoints import DEVICE, MASK, small_recipe
from policy_cases import DECODE, EXAMPLES, PROMPTS, prompt
from unmask import DecodeSpec, ScoreRequest
from unmask.cost.prediction import (
    ATTENTION_OPERATIONS,
    FORWARD_OPERATIONS,
    GATHERED_OPERATIONS,
    MLP_OPERATIONS,
)
from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent
from unmask.engine.probe import probe
from unmask.engine.step_plan import Kind
from unmask.evaluation.device_parts import PARTS, Place
from unmask.model.checkpoint import open_checkpoint
from unmask.model.geometry import Segment
from unmask.model.synthetic import write_checkpoint
from unmask.model.weights import load_transformer
from unmask.policies.registry import make_policy

LAYERS = 6
POLICIES = [None, *(spec for examples in EXAMPLES.values() for spec in examples.acting)]
LONG = DECODE | {"max_new_tokens": 6 * DECODE["block_size"]}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

on_the_pretended = pytest.mark.skipif(DEVICE.type != "pretended", reason="only a pretended device counts")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_checkpoint(small_recipe(num_hidden_layers=LAYERS), tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def engines(folder: Any) -> Any:
    @lru_cache
    def load(device: torch.device, dtype: torch.dtype = torch.float32) -> Engine:
        transformer = load_transformer(open_checkpoint(folder), device, dtype)
        return Engine(transformer, MASK, make_policy=make_policy)

    return load


def name_of(policy: Any) -> str:
    return "full" if policy is None else "-".join(map(str, policy.values()))[:60]


@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
def test_tokens_and_ledgers_are_those_of_the_cpu(engines: Any, policy: Any) -> None:
    here, there = (
        engines(device).generate(PROMPTS, DECODE, policy, batch_size=3)
        for device in (torch.device("cpu"), DEVICE)
    )
    assert [answer.ids for answer in there] == [answer.ids for answer in here]
    assert [answer.ledger for answer in there] == [answer.ledger for answer in here]


@on_the_pretended
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tokens_are_those_of_the_cpu_in_every_dtype(engines: Any, dtype: torch.dtype) -> None:
    here, there = (
        engines(device, dtype).generate(PROMPTS, DECODE) for device in (torch.device("cpu"), DEVICE)
    )
    assert [answer.ids for answer in there] == [answer.ids for answer in here]


@pytest.mark.parametrize(
    "estimator, lengths", [("chain", (1, 4, 4, 9)), ("canvas", (1, 1)), ("onepass", (3, 9))]
)
def test_scores_are_those_of_the_cpu(engines: Any, estimator: str, lengths: tuple[int, ...]) -> None:
    requests = [ScoreRequest(PROMPTS[1], prompt(length, seed=index)) for index, length in enumerate(lengths)]
    policy = {"kind": "layer_reuse", "unit": "residual", "on": ["sub", "block"]}
    here, there = (
        engines(device).score(requests, estimator, decode={"sub_block_size": 4}, policy=policy)
        for device in (torch.device("cpu"), DEVICE)
    )
    assert [score.logprob for score in there.scores] == pytest.approx(
        [score.logprob for score in here.scores], rel=1e-4
    )


def test_a_trace_is_that_of_the_cpu(engines: Any) -> None:
    spec = DecodeSpec(**DECODE)
    here, there = (probe(engines(device), PROMPTS[:1], spec) for device in (torch.device("cpu"), DEVICE))
    assert there.kind == here.kind
    assert there.unmasked == here.unmasked


def steps_of(engine: Engine, policy: Any, watch: Any) -> list[tuple[StepEvent, tuple[int, ...], int]]:
    """Every event of the device with what was asked since the one before, and the memory then in use."""
    seen, before = [], watch.counts()
    for event in engine.stream([prompt(17)], LONG, policy):
        if isinstance(event, StepEvent):
            now = watch.counts()
            seen.append((event, tuple(a - b for a, b in zip(now, before, strict=True)), watch.live_bytes()))
            before = now
    return seen


BUDGETS = {
    None: (14, 1, 1),
    "layer_reuse": (16, 1, 1),
    "trim": (19, 1, 3),
    "adaptive": (24, 2, 1),
    "combine": (26, 2, 3),
    "custom": (15, 1, 1),
}
"""Operations a layer, copies to the host and uploads of one forward, by policy."""


@on_the_pretended
@pytest.mark.parametrize("policy", POLICIES, ids=name_of)
def test_a_forward_stays_within_its_budget(engines: Any, policy: Any) -> None:
    watch = sys.modules["device.pretended"].WATCH
    most_launches, copies, uploads = BUDGETS[policy and policy["kind"]]
    first, *steps = (
        step for step in steps_of(engines(DEVICE), policy, watch) if step[0].kind is not Kind.PREFILL
    )
    assert first[0].kind is Kind.BLOCK  # it also made the buffers
    for event, (launches, casts, uploaded, waited), _ in steps:
        assert launches <= most_launches * LAYERS + 16, (event.kind, launches)
        assert casts <= 1, (event.kind, casts)
        assert waited <= copies, (event.kind, waited)
        assert uploaded <= uploads, (event.kind, uploaded)


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_gpu_check_measure_it(folder: Any, name: str) -> None:
    found = PARTS[name](Place(str(folder), str(DEVICE), "float16"))
    assert found["verdict"] in (
        ("good", "skipped") if DEVICE.type == "pretended" else ("good", "bad", "skipped")
    )
    assert found["says"]
    for kind in ("block", "sub", "commit") if name == "speed" else ():
        assert found["kinds"][kind]["milliseconds"] > 0


@on_the_pretended
@pytest.mark.parametrize("together", [1, 2])
def test_what_is_launched_is_what_predictions_count(engines: Any, together: int) -> None:
    """In half precision, casts included; a prediction is made of these numbers (cost/prediction.py)."""
    watch = sys.modules["device.pretended"].WATCH
    transformer = engines(DEVICE, torch.float16).transformer
    segments = [
        Segment(slot, range(32 * (1 - slot), 32 * (1 - slot) + 8), 64 - 24 * slot) for slot in range(together)
    ]
    tokens = [1] * 8 * together
    with torch.inference_mode():
        workspace = engines(DEVICE, torch.float16).workspace(2, 64, 32)
        x_TD, frame = workspace.open(tokens, segments)

        def launched(branch: Any) -> int:
            before = watch.counts()
            x_TD.add_(branch(0, x_TD, frame))
            return sum(watch.counts()[:2]) - sum(before[:2])

        launched(transformer.attention)  # the first call makes buffers
        shared = GATHERED_OPERATIONS * (together > 1)
        assert launched(transformer.attention) == ATTENTION_OPERATIONS + shared
        assert launched(transformer.mlp) == MLP_OPERATIONS


@on_the_pretended
def test_what_a_step_launches_besides_its_layers_is_what_predictions_count(engines: Any) -> None:
    watch = sys.modules["device.pretended"].WATCH
    layers = LAYERS * (ATTENTION_OPERATIONS + MLP_OPERATIONS)
    found, before = [], None
    for event in engines(DEVICE, torch.float16).stream([prompt(17)], LONG):
        if isinstance(event, StepEvent):
            now = sum(watch.counts())
            found += [] if before is None else [now - before - layers]
            before = now
    assert abs(sum(found) / len(found) - FORWARD_OPERATIONS) < 6, found


@on_the_pretended
def test_memory_does_not_grow_after_the_first_blocks(engines: Any) -> None:
    watch = sys.modules["device.pretended"].WATCH
    commits = early = later = 0
    for event, _, live in steps_of(engines(DEVICE), None, watch):
        if commits < 3:  # as many frames are kept as ever will be
            early = max(early, live)
        else:
            later = max(later, live)
        commits += event.kind is Kind.COMMIT
    assert 0 < later <= 1.02 * early, "a few rows of logits more or less"


@on_the_pretended
def test_the_device_refuses_tensors_of_the_host_and_counts() -> None:
    watch = sys.modules["device.pretended"].WATCH
    before = watch.counts(), watch.live_bytes()
    ours = torch.ones(4, 4).to(DEVICE)
    with pytest.raises(AssertionError, match="of the device and of the host"):
        ours + torch.ones(4, 4)
    _ = (ours @ ours)[0].half().tolist()
    counts = [after - earlier for earlier, after in zip(before[0], watch.counts(), strict=True)]
    assert counts == [1, 1, 1, 1]  # a product, a cast, an upload, a copy to the host
    assert watch.live_bytes() - before[1] >= 64
