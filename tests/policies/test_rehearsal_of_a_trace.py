"""A rehearsal that knows a trace's steps counts what the engine counted, whatever order it unmasked in."""

from dataclasses import replace

import pytest

from checkpoints import small_model
from unmask import DecodeSpec
from unmask.engine.probe import probe
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse
from unmask.spec.family import FAST_DLLM_V2, SDAR


@pytest.mark.parametrize("length", [5, 40, 64])
def test_steps_by_kind_are_those_of_the_recorded_decoding(length: int) -> None:
    engine = small_model(seed=2, num_hidden_layers=3).engine
    prompt = [(7 * index) % 60 for index in range(length)]
    decode = DecodeSpec(max_new_tokens=90, threshold=0.5, stop_tokens=())
    trace = probe(engine, [prompt], decode)
    real = engine.generate([prompt], decode)[0].ledger
    assert not all(trace.leftmost), "some step must leave the first unknown position unknown"
    script = Script(length, 90, unmasked=tuple(trace.unmasked), leftmost=tuple(trace.leftmost))
    assert rehearse(make_policy(None, 3), 3, script).steps() == real.steps()


@pytest.mark.parametrize("length", [5, 40, 64])
def test_other_families_are_rehearsed_by_their_own_rules(length: int) -> None:
    engine = small_model(seed=2, num_hidden_layers=3, model_type="sdar", block_size=16).engine
    prompt = [(7 * index) % 60 for index in range(length)]
    new = 48 - length % 16  # ends with a block, so that the order within the last one does not matter
    decode = DecodeSpec(max_new_tokens=new, threshold=0.5, stop_tokens=())
    trace = probe(engine, [prompt], decode)
    real = engine.generate([prompt], decode)[0].ledger
    script = Script(
        length,
        new,
        16,
        16,
        cache="none",
        unmasked=tuple(trace.unmasked),
        leftmost=tuple(trace.leftmost),
        family=SDAR,
    )
    rehearsed = rehearse(make_policy(None, 3), 3, script)
    assert rehearsed.steps() == real.steps()
    assert rehearsed.entries == real.entries
    as_fast_dllm = rehearse(make_policy(None, 3), 3, replace(script, family=FAST_DLLM_V2))
    assert as_fast_dllm.entries != real.entries
