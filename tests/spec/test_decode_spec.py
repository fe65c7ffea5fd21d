"""Decode settings: defaults, plain mappings, and one sentence for every value that cannot be honoured."""

import math
from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec, build
from unmask.spec.family import FAST_DLLM_V2


def refused(values: Any) -> str:
    with pytest.raises(UnmaskError) as caught:
        build(DecodeSpec, values, "Decode settings")
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_defaults_are_the_published_ones() -> None:
    spec = DecodeSpec().resolved(FAST_DLLM_V2, 32)
    assert (spec.threshold, spec.sub_block_size, spec.block_cache, spec.temperature) == (0.9, 8, True, 0.0)
    assert (spec.block_size, spec.stop_tokens, spec.stop_strings) == (32, None, ())


def test_plain_mappings_become_specs() -> None:
    values = {"threshold": 1, "stop_tokens": [1, 2], "stop_strings": ["a"], "block_size": 16}
    spec = build(DecodeSpec, values, "Decode settings")
    expected = DecodeSpec(threshold=1.0, stop_tokens=(1, 2), stop_strings=("a",), block_size=16)
    assert spec == expected
    assert hash(spec) == hash(expected)


def test_text_is_no_number() -> None:
    with pytest.raises(UnmaskError, match=r"Expected `float`, got `str` - at `\$.threshold`"):
        build(DecodeSpec, {"threshold": "0.9"}, "x")


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_new_tokens", 0),
        ("max_new_tokens", -3),
        ("threshold", 0),
        ("threshold", -0.1),
        ("threshold", 1.0001),
        ("threshold", math.nan),
        ("sub_block_size", 0),
        ("block_size", 0),
        ("block_size", -32),
        ("temperature", -1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_p", math.nan),
    ],
)
def test_a_value_out_of_range_is_named_with_its_field(field: str, value: float) -> None:
    sentence = refused({field: value})
    assert f"{field} is {value}" in sentence or f"{field} is {float(value)}" in sentence
    with pytest.raises(UnmaskError):
        DecodeSpec(**{field: value})


def test_an_empty_stop_string_is_refused() -> None:
    assert "stop string is empty" in refused({"stop_strings": ["a", ""]})


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_new_tokens", "many"),
        ("max_new_tokens", 1.5),
        ("threshold", None),
        ("block_cache", "maybe"),
        ("stop_tokens", 5),
        ("stop_tokens", ["a"]),
        ("stop_strings", [1]),
    ],
)
def test_a_value_of_another_type_names_its_field(field: str, value: object) -> None:
    sentence = refused({field: value})
    assert sentence.startswith("Decode settings: ")
    assert field in sentence


@pytest.mark.parametrize("values", [[], 5, "threshold=1"])
def test_settings_must_be_a_mapping(values: object) -> None:
    assert refused(values).startswith("Decode settings: ")


def test_an_unknown_field_lists_the_allowed_ones() -> None:
    sentence = refused({"thresold": 0.5})
    assert "`thresold`" in sentence
    for field in DecodeSpec.__struct_fields__:
        assert field in sentence


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_a_sub_block_that_divides_the_block_is_fine(size: int) -> None:
    assert DecodeSpec(sub_block_size=size).resolved(FAST_DLLM_V2, 32).block_size == 32


def test_the_block_size_given_stands_over_the_checkpoints() -> None:
    assert DecodeSpec(block_size=16).resolved(FAST_DLLM_V2, 32).block_size == 16
    assert DecodeSpec(block_size=16).resolved(FAST_DLLM_V2, None).block_size == 16


def test_block_sizes_that_do_not_fit() -> None:
    with pytest.raises(UnmaskError, match="32 is not a multiple of sub_block_size 5"):
        DecodeSpec(sub_block_size=5).resolved(FAST_DLLM_V2, 32)
    with pytest.raises(UnmaskError, match="8 is not a multiple of sub_block_size 16"):
        DecodeSpec(sub_block_size=16, block_size=8).resolved(FAST_DLLM_V2, 32)
    with pytest.raises(UnmaskError, match="no bd_size"):
        DecodeSpec().resolved(FAST_DLLM_V2, None)


def test_specs_are_frozen() -> None:
    with pytest.raises(AttributeError):
        DecodeSpec().threshold = 0.5  # type: ignore[misc]
