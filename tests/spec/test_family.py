"""Which family a config.json belongs to, and what every record promises."""

import pytest

from unmask.spec.family import AUTOREGRESSIVE, FAMILIES, FAST_DLLM_V2, MODEL_TYPES, SDAR, Family, family_of


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"model_type": "Fast_dLLM_Qwen", "bd_size": 32}, FAST_DLLM_V2),
        ({"model_type": "qwen2", "bd_size": 32}, FAST_DLLM_V2),
        ({"model_type": "qwen2"}, AUTOREGRESSIVE),
        ({"model_type": "qwen2", "bd_size": None}, AUTOREGRESSIVE),
        ({"model_type": "qwen3"}, AUTOREGRESSIVE),
        ({"model_type": "llama"}, AUTOREGRESSIVE),
        ({"model_type": "sdar", "block_size": 8}, SDAR),
        ({"model_type": "sdar"}, SDAR),
        ({"model_type": "gpt2"}, None),
        ({"model_type": ["sdar"]}, None),
        ({}, None),
    ],
)
def test_the_family_of_a_config(config: dict[str, object], family: Family | None) -> None:
    assert family_of(config) is family


def test_every_record_can_be_found_and_makes_sense() -> None:
    assert set(MODEL_TYPES.values()) == set(FAMILIES.values())
    for name, family in FAMILIES.items():
        assert family.name == name
        assert family.caches
        assert family.has_mask or family.block_size == 1
