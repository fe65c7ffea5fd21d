"""What a replay does to logits: the branches still follow the input, the output does not."""

from typing import Any

import pytest
import torch
from torch import Tensor

from policy_cases import BLOCK, LAYERS, PROMPTS, SUBSETS, engine, one, prompt, reuse
from unmask.engine.forward import PlannedPart
from unmask.engine.rules import make_rule
from unmask.engine.sampling import Predictions
from unmask.engine.sequence import SequenceState
from unmask.engine.step_plan import Op, StepPlan, Unit
from unmask.engine.unmasking import Predicted
from unmask.model.geometry import Segment

OPS = {op: (Op.COMPUTE, *(op,) * (LAYERS - 2), Op.COMPUTE) for op in Op}


@torch.inference_mode()
def logits(unit: Unit, fed: range, changed: bool) -> tuple[Tensor, Tensor]:
    """Logits of `fed` at the refresh of the whole block, and at a replay after the input has changed or not."""
    tokens = prompt(BLOCK)
    workspace = engine().workspace(1, BLOCK, BLOCK)
    whole = [Segment(0, range(BLOCK), BLOCK)]
    before = workspace.forward(
        tokens, whole, [PlannedPart(StepPlan(OPS[Op.REFRESH], unit), 1)]
    ).hidden_TD.clone()
    if changed:
        tokens[fed.start + 2] = (tokens[fed.start + 2] + 1) % 60
    rows = [Segment(0, fed, BLOCK)]
    replay = PlannedPart(StepPlan(OPS[Op.REPLAY], unit), 1)
    after = workspace.forward(tokens[fed.start : fed.stop], rows, [replay]).hidden_TD
    head = engine().transformer.logits
    return head(before[fed.start : fed.stop]), head(after)


@pytest.mark.parametrize("fed", [range(BLOCK), range(4, 8)], ids=str)
@pytest.mark.parametrize("unit", [Unit.RESIDUAL, Unit.ATTENTION, Unit.MLP])
def test_logits_move_when_the_input_moves(unit: Unit, fed: range) -> None:
    old, new = logits(unit, fed, changed=True)
    assert ((old - new).abs().amax(dim=-1)[2] > 0.1).all()
    assert ((old - new).abs().amax(dim=-1) > 1e-3).all(), "the last layer attends to the changed row"
    old, same = logits(unit, fed, changed=False)
    assert torch.allclose(old, same, atol=1e-4)


@pytest.mark.parametrize("fed", [range(BLOCK), range(4, 8)], ids=str)
def test_the_output_does_not_move(fed: range) -> None:
    old, new = logits(Unit.OUTPUT, fed, changed=True)
    assert torch.equal(old, new)


@pytest.mark.parametrize("unit", [Unit.OUTPUT, Unit.RESIDUAL, Unit.ATTENTION])
@torch.inference_mode()
def test_a_replayed_attention_writes_no_keys(unit: Unit) -> None:
    tokens = prompt(BLOCK)
    workspace = engine().workspace(1, BLOCK, BLOCK)
    whole = [Segment(0, range(BLOCK), BLOCK)]
    workspace.forward(tokens, whole, [PlannedPart(StepPlan(OPS[Op.REFRESH], unit), 1)])
    keys = [layer.clone() for layer in workspace.cache.keys_LBKCd]
    tokens[3] = (tokens[3] + 1) % 60
    workspace.forward(tokens, whole, [PlannedPart(StepPlan(OPS[Op.REPLAY], unit), 1)])
    same = [torch.equal(old, new) for old, new in zip(keys, workspace.cache.keys_LBKCd, strict=True)]
    outer = unit is Unit.OUTPUT
    assert same == [outer, *[True] * (LAYERS - 2), outer]


class Remembering(Predicted):
    """Keeps the predictions of every step."""

    def __init__(self, threshold: float) -> None:
        super().__init__(make_rule({"kind": "threshold", "threshold": threshold}))
        self.found: list[dict[int, tuple[int, float]]] = []

    def denoised(self, sequence: SequenceState, positions: Any, predictions: Predictions) -> Any:
        read = zip(predictions.tokens, predictions.confidences, strict=True)
        self.found.append(dict(zip(positions, read, strict=True)))
        return super().denoised(sequence, positions, predictions)


@pytest.mark.parametrize("k", [2, 3])
def test_output_replay_is_to_unmask_again_from_the_old_logits(k: int) -> None:
    """For every subset alike; each replay writes one token and runs no layer."""
    answers = []
    for layers in SUBSETS:
        rule = Remembering(1.0)
        found = one(PROMPTS[1], reuse(unit="output", k=k, layers=layers), rule=rule, sub_block_size=8)
        old: dict[int, tuple[int, float]] = {}
        replays = 0
        for (_, event), predicted in zip(found.denoising(), rule.found, strict=True):
            if not event.plan.replays_everything:
                old = predicted
                continue
            replays += 1
            for position, (token, confidence) in predicted.items():
                assert token == old[position][0]
                # The hidden states are the same; a head product of fewer rows may round otherwise.
                assert confidence == pytest.approx(old[position][1], rel=1e-5)
            best = max(predicted, key=lambda position: predicted[position][1])
            assert (event.positions, event.tokens) == ((best,), (predicted[best][0],))
        ledger = found.generation.ledger
        empty = (0,) * LAYERS
        assert replays == sum(
            count for work, count in ledger.entries.items() if (work.attention, work.mlp) == (empty, empty)
        )
        assert replays > 5
        assert ledger.layer_calls() == [sum(ledger.steps().values()) - replays] * LAYERS
        answers.append((found.generation.ids, ledger))
    assert answers[0] == answers[1] == answers[2]
