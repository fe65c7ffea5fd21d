"""Activations that overflow stop the run, and the error names the layer where it began."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from checkpoints import change_weights, load_engine, small_model, write_small
from unmask.engine.decode import Decoder
from unmask.engine.engine import Engine
from unmask.engine.policy import Full
from unmask.engine.sampling import Sampler
from unmask.engine.sequence import BlockSettings, SequenceState
from unmask.engine.unmasking import UnmaskingWriter
from unmask.errors import UnmaskError
from unmask.spec.rule import ThresholdSpec

LAYERS = 4
LENGTHS = {"in the first block": 5, "in a prefill that is read": 64, "in a prefill that is not read": 70}


def planted(folder: Path, dtype: torch.dtype, size: float, *names: str) -> Engine:
    """A checkpoint whose tensors of these names are `size` times too large."""

    def enlarge(weights: dict[str, Tensor]) -> None:
        for name in names:
            weights[name] *= size

    write_small(folder, num_hidden_layers=LAYERS)
    return load_engine(change_weights(folder, enlarge), dtype)


def error_of(engine: Engine, length: int, temperature: float = 0.0) -> str:
    settings = {"max_new_tokens": 40, "temperature": temperature, "stop_tokens": ()}
    with pytest.raises(UnmaskError) as caught:
        engine.generate([[place % 60 for place in range(length)]], settings)
    return str(caught.value)


def mlp_names(layer: int, *parts: str) -> list[str]:
    return [f"model.layers.{layer}.mlp.{part}_proj.weight" for part in parts]


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("layer", [0, 2, LAYERS - 1])
def test_huge_weights_of_an_mlp_in_fp32(tmp_path: Path, layer: int, length: int) -> None:
    engine = planted(tmp_path, torch.float32, 1e30, *mlp_names(layer, "gate", "up"))
    assert f"not finite from the MLP of layer {layer} on (float32)" in error_of(engine, length)


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("layer", [0, 2, LAYERS - 1])
def test_an_overflow_of_fp16(tmp_path: Path, layer: int, length: int) -> None:
    engine = planted(tmp_path, torch.float16, 1e5, *mlp_names(layer, "down"))
    assert f"not finite from the MLP of layer {layer} on (float16)" in error_of(engine, length)


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_numbers_whose_squares_overflow(tmp_path: Path, length: int) -> None:
    """1e30 is a number in fp32 but its square is not: a norm would quietly make zeros of such rows."""
    engine = planted(tmp_path, torch.float32, 1e30, *mlp_names(1, "down"))
    assert "from the MLP of layer 1 on (float32)" in error_of(engine, length)


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_huge_weights_of_an_attention(tmp_path: Path, length: int) -> None:
    engine = planted(tmp_path, torch.float16, 3e4, "model.layers.1.self_attn.o_proj.weight")
    assert "from the attention of layer 1 on" in error_of(engine, length)


def test_a_weight_that_is_no_number(tmp_path: Path) -> None:
    engine = planted(tmp_path, torch.float32, float("nan"), "model.layers.3.mlp.down_proj.weight")
    assert "from the MLP of layer 3 on" in error_of(engine, 5)


def test_a_head_that_overflows(tmp_path: Path) -> None:
    engine = planted(tmp_path, torch.float32, float("inf"), "lm_head.weight")
    assert "from the head on" in error_of(engine, 5)


def test_an_embedding_that_is_no_number(tmp_path: Path) -> None:
    engine = planted(tmp_path, torch.float32, float("inf"), "model.embed_tokens.weight")
    assert "from the embedding on" in error_of(engine, 5)


def overflow_of_token_7(weights: dict[str, Tensor]) -> None:
    """Its row is the same in every channel, which one unit of layer 2's MLP answers with more than fp16 holds."""
    weights["model.embed_tokens.weight"][7] = 60000.0
    for name in mlp_names(2, "gate", "up"):
        weights[name][0] = 1.0
    weights["model.layers.2.mlp.down_proj.weight"][0, 0] = 100.0


def test_one_prompt_token_of_the_first_block_overflows(tmp_path: Path) -> None:
    """Only this token's row overflows, long before the block that is decoded."""
    write_small(tmp_path, num_hidden_layers=LAYERS)
    engine = load_engine(change_weights(tmp_path, overflow_of_token_7), torch.float16)
    settings = {"max_new_tokens": 40, "stop_tokens": ()}
    clean = [20 + place % 30 for place in range(70)]
    assert len(engine.generate([clean], settings)[0].ids) == 40, "other tokens must not overflow"
    with pytest.raises(UnmaskError, match=r"from the MLP of layer 2 on \(float16\)"):
        engine.generate([[7, *clean[1:]]], settings)


def test_the_row_at_fault_is_found_in_a_batch(tmp_path: Path) -> None:
    write_small(tmp_path, num_hidden_layers=LAYERS)
    engine = load_engine(change_weights(tmp_path, overflow_of_token_7), torch.float16)
    rows = [[21] * 40, [22] * 3, [7, *[23] * 40], [24] * 64]
    with pytest.raises(UnmaskError, match="from the MLP of layer 2 on"):
        engine.generate(rows, {"max_new_tokens": 40, "stop_tokens": ()})


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_an_overflow_while_drawing(tmp_path: Path, length: int) -> None:
    engine = planted(tmp_path, torch.float32, 1e30, *mlp_names(2, "gate", "up"))
    assert "from the MLP of layer 2 on" in error_of(engine, length, temperature=0.8)


def test_the_error_is_one_sentence_with_a_way_out(tmp_path: Path) -> None:
    engine = planted(tmp_path, torch.float16, 1e5, *mlp_names(0, "down"))
    assert re.fullmatch(r"[^.]*check the weights, or use a wider dtype[^.]*\.", error_of(engine, 5))


def test_looking_for_a_broken_layer_leaves_the_decoding_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flat draws make the decoder look; what it looks at must not be the row's own keys."""
    engine = small_model(seed=4).engine
    looked: list[int] = []

    def answers() -> list[list[int]]:
        settings = BlockSettings(32, 8, "dual", engine.mask_token, frozenset())
        sequences = [
            SequenceState(index, [1, 2, 3, 4 + index], 60, settings, 2, seed=index) for index in range(3)
        ]
        sampler = Sampler(engine.mask_token, temperature=1e6, top_p=1.0)
        writer = UnmaskingWriter(ThresholdSpec(threshold=0.9))
        with torch.inference_mode():
            events = list(Decoder(engine.workspace(3, 64, 32), Full(), writer, sampler).run(sequences))
        finished = [event for event in events if isinstance(event, SequenceState)]
        return [sequence.answer for sequence in sorted(finished, key=lambda sequence: sequence.index)]

    looking = answers()
    monkeypatch.setattr(Decoder, "_first_bad_layer", lambda _, sequence: looked.append(sequence.index))
    assert answers() == looking
    assert looked
