"""config.json and generation_config.json as published, and what is refused in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import change_config, small_config, write_small
from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint
from unmask.model.config import ModelConfig, parse_config
from unmask.model.network import NETWORKS
from unmask.spec.family import AUTOREGRESSIVE, FAST_DLLM_V2, MODEL_TYPES, SDAR, Family

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
    assert "use_sliding_window is True" in refused(use_sliding_window=True)
    assert "'gelu'" in refused(hidden_act="gelu")
    for kind in ("llama", "qwen3", "sdar"):
        assert "attention_bias is True" in refused(model_type=kind, attention_bias=True)
    assert "mlp_bias is True" in refused(model_type="llama", mlp_bias=True)
    assert "rope_interleaved is True" in refused(model_type="llama", rope_interleaved=True)
    assert "rope type 'llama3'" in refused(
        model_type="llama", rope_scaling={"rope_type": "llama3", "factor": 8}
    )


@pytest.mark.parametrize("kind", ["absent", "mistral", "gemma3", 7, ["qwen2"]])
def test_unknown_architectures_are_refused_with_a_list_of_the_known(kind: Any) -> None:
    sentence = refused(model_type=kind)
    assert "cannot be run; this engine runs the dense architectures" in sentence
    assert all(name in sentence for name in NETWORKS)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "sdar_moe", "num_experts": 128},
        {"model_type": "qwen3", "num_experts": 8, "num_experts_per_tok": 2},
        {"model_type": "mixtral", "num_local_experts": 8},
        {"model_type": "deepseek_v3", "n_routed_experts": 64},
    ],
)
def test_mixtures_of_experts_are_refused(changes: dict[str, Any]) -> None:
    sentence = refused(**changes)
    assert "is a mixture of experts and cannot be run" in sentence
    assert "Dream, Fast_dLLM_Qwen, llada, llama, qwen2, qwen3, sdar." in sentence
    assert parsed(num_experts=0).num_layers == 2


@pytest.mark.parametrize(
    ("changes", "family", "block_size"),
    [
        ({}, FAST_DLLM_V2, 32),
        ({"bd_size": "absent"}, FAST_DLLM_V2, None),
        ({"model_type": "qwen2"}, FAST_DLLM_V2, 32),
        ({"model_type": "qwen2", "bd_size": "absent"}, AUTOREGRESSIVE, 1),
        ({"model_type": "qwen3", "bd_size": 32, "block_size": 8}, AUTOREGRESSIVE, 1),
        ({"model_type": "llama"}, AUTOREGRESSIVE, 1),
        ({"model_type": "sdar"}, SDAR, 4),
        ({"model_type": "sdar", "block_size": 16, "bd_size": 32}, SDAR, 16),
    ],
)
def test_the_model_type_says_the_family_and_the_family_the_block(
    changes: dict[str, Any], family: Family, block_size: int | None
) -> None:
    config = parsed(**changes)
    assert (config.family, config.block_size) == (family, block_size)


def test_every_family_has_a_network_and_every_network_a_family() -> None:
    assert NETWORKS.keys() == MODEL_TYPES.keys()


def test_heads_may_be_wider_than_the_hidden_size_divides() -> None:
    config = parsed(model_type="qwen3", num_attention_heads=5, num_key_value_heads=5, head_dim=24)
    assert config.tensor_shapes()["model.layers.0.self_attn.q_proj.weight"] == (120, 32)
    assert config.tensor_shapes()["model.layers.1.self_attn.o_proj.weight"] == (32, 120)
    assert config.tensor_shapes()["model.layers.1.self_attn.k_norm.weight"] == (24,)
    assert config.shape.attention_weights == 4 * 120 * 32


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
    "changes", [{"num_attention_heads": 5}, {"num_key_value_heads": 3}, {"head_dim": 15}, {"hidden_size": 36}]
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
