"""Every family, cache and estimator on a device other than the CPU, as on_device.py has it for Fast-dLLM v2."""

import sys
from functools import lru_cache
from typing import Any

import pytest
import torch

from checkpoints import MASK, OF_FAMILY, small_recipe
from policy_cases import BOTH, adaptive, combine, prompt, reuse, trim
from unmask import ScoreRequest
from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent
from unmask.engine.probe import probe
from unmask.engine.step_plan import Kind
from unmask.model.checkpoint import open_checkpoint
from unmask.model.synthetic import write_checkpoint
from unmask.model.weights import load_transformer
from unmask.policies.registry import make_policy
from unmask.spec import DecodeSpec

LAYERS = 4
SETTINGS: dict[str, dict[str, Any]] = {
    "fast_dllm_v2": {"block_size": 16, "sub_block_size": 4},
    "fast_dllm_v2 without a cache": {"block_size": 16, "sub_block_size": 4, "cache": "none"},
    "fast_dllm_v2 drawn": {"block_size": 16, "sub_block_size": 4, "temperature": 0.7, "top_p": 0.9},
    "sdar": {"block_size": 8},
    "autoregressive": {},
    **{
        f"{family} with {cache} cache": {"sub_block_size": 8, "cache": cache}
        for family in ("llada", "dream")
        for cache in ("none", "prefix", "dual")
    },
    "llada with guidance": {"sub_block_size": 8, "cache": "dual", "refresh_every": 3, "guidance": 0.7},
    "llada with end tokens held back": {"sub_block_size": 8, "end_of_text": "last"},
    "llada without end tokens": {"sub_block_size": 8, "end_of_text": "never"},
    "dream drawn": {"sub_block_size": 8, "cache": "dual", "temperature": 0.5, "top_p": 0.9, "top_k": 20},
}
DENOISING = [
    name for name in SETTINGS if name != "autoregressive" and "drawn" not in name and "end tokens" not in name
]
POLICIES = [
    *(reuse(unit=unit, k=2, on=BOTH) for unit in ("residual", "attention")),
    trim(inside=True, keep=0.4, probe_layer=1),
    adaptive(max_drift=10),
    combine(trim(inside=True), reuse(unit="output", on=BOTH)),
]
PROMPTS = [prompt(length, seed=3) for length in (5, 19, 33)]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @lru_cache
    def load(family: str, device: torch.device) -> Engine:
        changes = OF_FAMILY[family] | {"num_hidden_layers": LAYERS, "n_layers": LAYERS}
        folder = write_checkpoint(small_recipe(4, **changes), tmp_path_factory.mktemp(family))
        mask_token = None if family == "autoregressive" else MASK
        transformer = load_transformer(open_checkpoint(folder), device, torch.float32)
        return Engine(transformer, mask_token, make_policy=make_policy)

    return lambda name, device: load(name.partition(" ")[0], device)


def same(engines: Any, device: torch.device, name: str, policy: Any = None) -> None:
    settings = SETTINGS[name] | {"max_new_tokens": 20, "stop_tokens": ()}
    here, there = (
        engines(name, each).generate(PROMPTS, settings, policy, batch_size=2)
        for each in (torch.device("cpu"), device)
    )
    assert [answer.ids for answer in there] == [answer.ids for answer in here]
    assert [answer.ledger for answer in there] == [answer.ledger for answer in here]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_family_gives_the_tokens_of_the_cpu(engines: Any, device: torch.device, name: str) -> None:
    same(engines, device, name)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda spec: "-".join(map(str, spec.values()))[:40])
@pytest.mark.parametrize("name", DENOISING)
def test_every_policy_on_every_family_gives_the_tokens_of_the_cpu(
    engines: Any, device: torch.device, name: str, policy: Any
) -> None:
    same(engines, device, name, policy)


@pytest.mark.parametrize("name", SETTINGS)
def test_scores_of_every_family_are_those_of_the_cpu(engines: Any, device: torch.device, name: str) -> None:
    requests = [ScoreRequest(PROMPTS[1], prompt(length, seed=9)) for length in (1, 4, 9)]
    for estimator in engines(name, device).config.family.estimators:
        if estimator == "canvas":
            continue  # one token at a time: on_device.py
        here, there = (
            engines(name, each).score(requests, estimator) for each in (torch.device("cpu"), device)
        )
        assert [score.logprob for score in there.scores] == pytest.approx(
            [score.logprob for score in here.scores], rel=1e-4
        ), estimator


@pytest.mark.parametrize("name", ["llada with dual cache", "dream with none cache", "sdar"])
def test_traces_of_families_are_those_of_the_cpu(engines: Any, device: torch.device, name: str) -> None:
    spec = DecodeSpec(**SETTINGS[name], max_new_tokens=16)
    here, there = (probe(engines(name, each), PROMPTS[:1], spec) for each in (torch.device("cpu"), device))
    assert (there.kind, there.unmasked) == (here.kind, here.unmasked)


BUDGETS = {"sdar": 18, "autoregressive": 18}
"""Operations a layer of one forward, where it is not that of the others: these normalise queries and keys."""
USUAL_BUDGET = 14


@pytest.mark.skipif("'device.pretended' not in sys.modules", reason="only a pretended device counts")
@pytest.mark.parametrize("name", SETTINGS)
def test_forwards_of_every_family_stay_within_their_budget(
    engines: Any, device: torch.device, name: str
) -> None:
    watch = sys.modules["device.pretended"].WATCH
    settings = SETTINGS[name] | {"max_new_tokens": 40, "stop_tokens": ()}
    guided = 1 + bool(settings.get("guidance"))
    before, live = None, []
    for event in engines(name, device).stream(PROMPTS[:1], settings):
        if isinstance(event, StepEvent):
            if before is not None and event.kind is not Kind.PREFILL:
                launches, casts, uploads, waits = (
                    now - then for now, then in zip(watch.counts(), before, strict=True)
                )
                most = BUDGETS.get(name, USUAL_BUDGET) * LAYERS + (
                    60 if "drawn" in name or "held" in name else 30
                )
                assert launches <= most * guided, (event.kind, launches)
                assert casts <= (2 if "drawn" in name else 1), casts
                assert uploads <= 3, (event.kind, uploads)
                assert waits <= 1, (event.kind, waits)
            live.append(watch.live_bytes())
            before = watch.counts()
    first = len(live) // 2
    # A few frames more are kept in the second half, and logits are of more or fewer rows.
    assert max(live[first:]) <= 1.05 * max(live[:first]), "buffers grow"
