"""config.json and generation_config.json as published, and what is refused in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import change_config, small_config, write_small
from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint
from unmask.model.config import ModelConfig, parse_config

PUBLISHED = {
    "architectures": ["Fast_dLLM_QwenForCausalLM"],
    "bd_size": 32,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "Fast_dLLM_Qwen",
    "num_attention_heads": 12,
    "num_hidden_layers": 28,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def parsed(generation: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    raw = small_config(**changes)
    return parse_config(
        {name: value for name, value in raw.items() if value != "absent"}, generation or {}, "c"
    )


def refused(**changes: Any) -> str:
    with pytest.raises(UnmaskError) as caught:
        parsed(**changes)
    sentence = str(caught.value)
    assert sentence.startswith("c: ")
    assert sentence.endswith(".")
    return sentence


def test_the_published_1_5b_config() -> None:
    config = parse_config(PUBLISHED, {"eos_token_id": [151645, 151643]}, "published")
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (28, 12, 2, 128)
    assert (config.block_size, config.mask_token_id, config.tied_head) == (32, None, True)
    assert config.stop_tokens == (151645, 151643)
    assert config.stored_dtype == "bfloat16"
    assert len(config.tensor_shapes()) == 338
    assert config.parameters == 1_543_714_304


def test_stop_tokens_come_from_generation_config_first() -> None:
    assert parsed({"eos_token_id": [4, 5]}, eos_token_id=6).stop_tokens == (4, 5)
    assert parsed({"eos_token_id": 4}, eos_token_id=6).stop_tokens == (4,)
    assert parsed({}, eos_token_id=6).stop_tokens == (6,)
    assert parsed({}, eos_token_id=[6, 7]).stop_tokens == (6, 7)
    assert parsed({"eos_token_id": None}, eos_token_id=0).stop_tokens == (0,)
    assert parsed({}, eos_token_id=None).stop_tokens == ()


def test_generation_config_is_read_beside_the_config(tmp_path: Path) -> None:
    write_small(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    assert open_checkpoint(tmp_path).config.stop_tokens == (1, 2)


def test_rope_as_transformers_4_and_5_write_it() -> None:
    assert parsed(rope_theta=5e5).rope_theta == 5e5
    five = {"rope_theta": 7e5, "rope_type": "default"}
    assert parsed(rope_theta="absent", rope_parameters=five).rope_theta == 7e5
    assert parsed(rope_theta="absent").rope_theta == 10_000.0
    assert parsed(rope_theta=5e5, rope_scaling={"type": "default"}).rope_theta == 5e5


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e6}},
    ],
)
def test_scaled_rope_is_refused(scaling: dict[str, Any]) -> None:
    assert "rope type" in refused(**scaling)


def test_what_the_network_cannot_run_is_refused() -> None:
    assert "sliding-window" in refused(use_sliding_window=True)
    assert "'gelu'" in refused(hidden_act="gelu")
    assert "'llama'" in refused(model_type="llama")
    assert "None cannot be run" in refused(model_type="absent")


def test_plain_qwen2_is_accepted() -> None:
    assert parsed(model_type="qwen2").num_layers == 2


@pytest.mark.parametrize(
    "field",
    [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
    ],
)
@pytest.mark.parametrize("value", ["absent", 0, -1, "8", 1.5, None])
def test_sizes_must_be_positive_integers(field: str, value: Any) -> None:
    assert field in refused(**{field: value})


@pytest.mark.parametrize("field", ["num_key_value_heads", "head_dim", "bd_size"])
@pytest.mark.parametrize("value", [0, -2, "2", 1.5])
def test_sizes_that_may_be_left_out_must_be_positive_integers_too(field: str, value: Any) -> None:
    assert field in refused(**{field: value})


@pytest.mark.parametrize("value", ["63", 1.5])
def test_a_mask_token_is_an_integer(value: Any) -> None:
    assert "mask_token_id" in refused(mask_token_id=value)


@pytest.mark.parametrize("value", ["5", 1.5, ["5"], {"a": 1}])
def test_stop_tokens_are_integers(value: Any) -> None:
    assert "eos_token_id" in refused(eos_token_id=value)


@pytest.mark.parametrize(
    "changes", [{"num_attention_heads": 5}, {"num_key_value_heads": 3}, {"head_dim": 16}, {"hidden_size": 36}]
)
def test_heads_must_divide(changes: dict[str, int]) -> None:
    assert "do not fit each other" in refused(**changes)


def test_key_heads_default_to_all_heads() -> None:
    assert parsed(num_key_value_heads="absent").num_kv_heads == 4
    assert parsed(num_key_value_heads="absent").queries_per_kv == 1


def test_other_fields_may_be_missing(tmp_path: Path) -> None:
    write_small(tmp_path)
    change_config(tmp_path, bd_size=None, mask_token_id=None, eos_token_id=None, torch_dtype=None)
    config = open_checkpoint(tmp_path).config
    assert (config.block_size, config.mask_token_id, config.stop_tokens, config.stored_dtype) == (
        None,
        None,
        (),
        None,
    )
