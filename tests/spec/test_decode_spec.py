"""Decode settings: defaults, plain mappings, and one sentence for every value that cannot be honoured."""

import math
from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec, build
from unmask.spec.decode import joined
from unmask.spec.family import AUTOREGRESSIVE, FAST_DLLM_V2, SDAR, Family
from unmask.spec.rule import SequentialSpec, ThresholdSpec


def refused(values: Any) -> str:
    with pytest.raises(UnmaskError) as caught:
        build(DecodeSpec, values, "Decode settings")
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_defaults_are_the_published_ones() -> None:
    spec = DecodeSpec().resolved(FAST_DLLM_V2, 32)
    assert (spec.threshold, spec.sub_block_size, spec.cache, spec.temperature) == (0.9, 8, "dual", 0.0)
    assert (spec.block_size, spec.stop_tokens, spec.stop_strings) == (32, None, ())


def test_plain_mappings_become_specs() -> None:
    values = {"threshold": 1, "stop_tokens": [1, 2], "stop_strings": ["a"], "block_size": 16}
    spec = build(DecodeSpec, values, "Decode settings")
    expected = DecodeSpec(threshold=1.0, stop_tokens=(1, 2), stop_strings=("a",), block_size=16)
    assert spec == expected
    assert hash(spec) == hash(expected)


def test_text_is_no_number() -> None:
    with pytest.raises(UnmaskError, match=r"Expected `float \| null`, got `str` - at `\$.threshold`"):
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
        ("threshold", "high"),
        ("cache", "maybe"),
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


# Settings that a family fills in.


def test_what_is_left_open_is_filled_in_by_the_family() -> None:
    def filled(family: Family, block_size: int | None = None) -> tuple[object, ...]:
        spec = DecodeSpec().resolved(family, block_size)
        return spec.block_size, spec.sub_block_size, spec.cache, spec.unmasking

    assert filled(FAST_DLLM_V2, 32) == (32, 8, "dual", ThresholdSpec(threshold=0.9))
    assert filled(SDAR) == (4, 4, "none", ThresholdSpec(threshold=0.85))
    assert filled(SDAR, 16) == (16, 16, "none", ThresholdSpec(threshold=0.85))
    assert filled(AUTOREGRESSIVE) == (1, 1, "none", SequentialSpec(n=1))


@pytest.mark.parametrize("family", [FAST_DLLM_V2, SDAR, AUTOREGRESSIVE], ids=lambda family: family.name)
def test_to_resolve_twice_changes_nothing(family: Family) -> None:
    once = DecodeSpec(max_new_tokens=9, block_size=family.block_size or 16).resolved(family, None)
    assert once.resolved(family, 8) == once


def test_a_plain_threshold_is_written_short_however_it_was_given() -> None:
    short = DecodeSpec(threshold=0.7).resolved(SDAR, None)
    assert DecodeSpec(rule=ThresholdSpec(threshold=0.7)).resolved(SDAR, None) == short
    assert (short.threshold, short.rule) == (0.7, None)
    quota = DecodeSpec(rule=ThresholdSpec(threshold=0.7, steps=4)).resolved(SDAR, None)
    assert (quota.threshold, quota.rule) == (None, ThresholdSpec(threshold=0.7, steps=4))


@pytest.mark.parametrize(
    ("family", "values", "words"),
    [
        (SDAR, {"cache": "dual"}, "sdar cannot use the cache dual"),
        (SDAR, {"block_size": 8, "sub_block_size": 3}, "8 is not a multiple of sub_block_size 3"),
        (AUTOREGRESSIVE, {"block_size": 4}, "blocks of 1; leave it out"),
        (AUTOREGRESSIVE, {"threshold": 0.9}, "predict one token at a time"),
        (AUTOREGRESSIVE, {"rule": {"kind": "factor"}}, "predict one token at a time"),
        (FAST_DLLM_V2, {}, "config.json has no bd_size; give block_size"),
    ],
)
def test_what_a_family_cannot_serve_is_refused(family: Family, values: dict[str, Any], words: str) -> None:
    with pytest.raises(UnmaskError) as caught:
        build(DecodeSpec, values, "x").resolved(family, None)
    assert words in str(caught.value)


def test_a_threshold_beside_a_rule_is_one_rule_too_many() -> None:
    assert "leave one out" in refused({"threshold": 0.9, "rule": {"kind": "factor"}})


def test_a_rule_put_over_a_threshold_takes_its_place() -> None:
    rule = {"kind": "factor"}
    assert joined({"threshold": 0.9, "seed": 1}, {"rule": rule}) == {"seed": 1, "rule": rule}
    assert joined({"rule": rule, "seed": 1}, {"threshold": 0.9}) == {"seed": 1, "threshold": 0.9}
    assert joined({"rule": rule, "seed": 1}, {"seed": 2}) == {"seed": 2, "rule": rule}
