"""A ledger's counts are the calls really made."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from checkpoints import Model, engine_of, small_model
from decoding_cases import models, prompts, requests, specs
from unmask.cost import Ledger, Sharing
from unmask.engine.engine import Engine
from unmask.engine.forward import ForwardOutput, Workspace
from unmask.engine.prompt import Request
from unmask.model.geometry import Segment
from unmask.model.transformer import Transformer
from unmask.spec import DecodeSpec


class Watched(Transformer):
    """Counts calls of every branch and rows whose logits are read."""

    def __init__(self, whole: Transformer) -> None:
        super().__init__(whole.config, whole.embedding_VD, whole.layers, whole.norm_D, whole.head)
        self.attention_calls: Counter[int] = Counter()
        self.mlp_calls: Counter[int] = Counter()
        self.rows_read = 0

    def attention(self, index: int, *rest: Any) -> Tensor:
        self.attention_calls[index] += 1
        return super().attention(index, *rest)

    def mlp(self, index: int, *rest: Any) -> Tensor:
        self.mlp_calls[index] += 1
        return super().mlp(index, *rest)

    def logits(self, x_ND: Tensor) -> Tensor:
        self.rows_read += len(x_ND)
        return super().logits(x_ND)


class WatchedWorkspace(Workspace):
    """Keeps the segments of every forward."""

    forwards: list[list[Segment]]

    def forward(self, tokens: Sequence[int], segments: Sequence[Segment], *rest: Any) -> ForwardOutput:
        assert len(tokens) == sum(len(segment.positions) for segment in segments)
        self.forwards.append(list(segments))
        return super().forward(tokens, segments, *rest)


class WatchedEngine(Engine):
    """Hands out workspaces that keep their forwards in one list."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.forwards: list[list[Segment]] = []

    def workspace(self, slots: int, length: int, block_size: int) -> Workspace:
        workspace = WatchedWorkspace(self.transformer, slots, length, block_size)
        workspace.forwards = self.forwards
        return workspace


def watched(model: Model) -> tuple[WatchedEngine, Watched]:
    transformer = Watched(model.engine.transformer)
    return engine_of(WatchedEngine, model.engine, transformer), transformer


def total(ledgers: list[Ledger], field: str) -> int:
    return sum(count * getattr(work, field) for ledger in ledgers for work, count in ledger.entries.items())


@given(models(), prompts(), specs())
def test_a_request_alone(model: Model, prompt: list[int], spec: DecodeSpec) -> None:
    engine, transformer = watched(model)
    ledger = engine.generate([prompt], spec)[0].ledger

    steps = ledger.steps()
    assert sum(steps.values()) == len(engine.forwards)
    calls = [transformer.attention_calls[layer] for layer in range(len(transformer.layers))]
    assert ledger.layer_calls() == calls
    assert transformer.mlp_calls == transformer.attention_calls
    segments = [segment for forward in engine.forwards for segment in forward]
    assert total([ledger], "rows") == sum(len(segment.positions) for segment in segments)
    assert total([ledger], "pairs") == sum(len(segment.positions) * segment.visible for segment in segments)
    assert total([ledger], "reads") == transformer.rows_read

    assert spec.block_size is not None
    first_block = len(prompt) // spec.block_size
    assert steps["prefill"] == (first_block > 0)
    assert ledger.rows()["prefill"] == first_block * spec.block_size
    whole = first_block * spec.block_size
    fed = [len(segment.positions) for segment in segments if segment.visible > whole]
    assert ledger.rows()["sub"] == sum(rows for rows in fed if rows < spec.block_size) or (
        spec.sub_block_size == spec.block_size
    )
    assert steps["block"] + steps["sub"] + steps["commit"] == len(fed)


@given(models(), st.lists(requests(), min_size=2, max_size=4), specs(), st.integers(1, 4))
def test_a_batch_shares_forwards_but_not_rows(
    model: Model, rows: list[Request], spec: DecodeSpec, batch_size: int
) -> None:
    engine, transformer = watched(model)
    answers = engine.generate(rows, spec, batch_size=batch_size)
    ledgers = [answer.ledger for answer in answers]
    spared = Sharing()
    for answer in answers:
        spared.add(answer.sharing)

    segments = [segment for forward in engine.forwards for segment in forward]
    fed = sum(len(segment.positions) for segment in segments)
    seen = sum(len(segment.positions) * segment.visible for segment in segments)
    assert total(ledgers, "rows") - spared.positions == fed
    assert total(ledgers, "pairs") - spared.pairs == seen
    assert total(ledgers, "reads") == transformer.rows_read
    assert set(transformer.attention_calls.values()) == {len(engine.forwards)}
    assert len(engine.forwards) == sum(sum(ledger.steps().values()) for ledger in ledgers) - spared.forwards
    assert all(len({segment.slot for segment in forward}) <= batch_size for forward in engine.forwards)


def test_rows_at_different_steps_share_a_forward() -> None:
    engine, _ = watched(small_model())
    rows = [Request([row + 1] * (3 + 11 * row), 30) for row in range(4)]
    ledgers = [answer.ledger for answer in engine.generate(rows, {"stop_tokens": ()})]
    longest = max(sum(ledger.steps().values()) for ledger in ledgers)
    assert len(engine.forwards) <= longest + 1


def test_a_prefill_counts_once_however_it_is_chunked() -> None:
    engine, _ = watched(small_model())
    prompt = [place % 60 for place in range(1100)]
    ledger = engine.generate([prompt], {"max_new_tokens": 1, "stop_tokens": ()})[0].ledger
    prefills = [forward for forward in engine.forwards if forward[0].visible <= 1088]
    assert len(prefills) == 2
    assert ledger.steps()["prefill"] == 1
    assert ledger.rows()["prefill"] == 1088
    pairs = sum(len(segment.positions) * segment.visible for forward in prefills for segment in forward)
    assert [work.pairs for work in ledger.entries if work.kind == "prefill"] == [pairs]


def test_prompts_of_several_chunks_spare_no_forward_that_was_none() -> None:
    """Two prompts in three forwards: each prompt is one forward of its ledger, and they end in different ones."""
    engine, _ = watched(small_model())
    prompts = [[place % 60 for place in range(start, start + 1100)] for start in (0, 7)]
    answers = engine.generate(prompts, {"max_new_tokens": 1, "stop_tokens": ()})
    assert len([forward for forward in engine.forwards if forward[0].visible <= 1088]) == 3
    steps = sum(sum(answer.ledger.steps().values()) for answer in answers)
    # The first prompt's first chunk holds no end of a prompt, so the ledgers know two of the three forwards.
    assert len(engine.forwards) == steps - sum(answer.sharing.forwards for answer in answers) + 1


def test_no_forward_needs_gradients() -> None:
    engine = small_model().engine
    for _ in engine.stream([[1, 2, 3]], {"max_new_tokens": 2, "stop_tokens": ()}):
        assert not torch.is_inference_mode_enabled(), "the caller's code must not run in inference mode"
