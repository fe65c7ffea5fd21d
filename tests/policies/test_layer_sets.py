"""Which layers a spec means, and which specs mean nothing."""

from typing import Any

import pytest

from policy_cases import adaptive, reuse, trim
from unmask.errors import UnmaskError
from unmask.policies.registry import make_policy, policy_spec
from unmask.policies.subsets import default_size, listed_layers, named_subset


def test_the_published_subsets_of_28_layers() -> None:
    assert named_subset("first", None, 28) == tuple(range(1, 13))
    assert named_subset("middle", None, 28) == tuple(range(8, 20))
    assert named_subset("last", None, 28) == tuple(range(16, 28))


def test_subsets_of_12_layers_are_a_third() -> None:
    assert default_size(12) == 4
    assert named_subset("first", None, 12) == (1, 2, 3, 4)
    assert named_subset("middle", None, 12) == (4, 5, 6, 7)
    assert named_subset("last", None, 12) == (8, 9, 10, 11)


@pytest.mark.parametrize("layers", [2, 3, 5, 12, 13, 24, 28, 36])
def test_the_three_subsets_have_equal_size_and_first_leaves_layer_0(layers: int) -> None:
    subsets = [named_subset(name, None, layers) for name in ("first", "middle", "last")]
    assert {len(subset) for subset in subsets} == {default_size(layers)}
    assert subsets[0][0] == 1
    assert subsets[2][-1] == layers - 1


def test_indices_and_ranges() -> None:
    assert listed_layers([0, "4-6", "9", 5], 10) == (0, 4, 5, 6, 9)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (reuse(layers=[6]), "layers names 6; this model has layers 0 to 5"),
        (reuse(layers=[-1]), "layers names"),
        (reuse(layers=[]), "number of layers is 0; it must be at least 1"),
        (reuse(layers=[1, "5-3"]), "write an index"),
        (reuse(layers=["a-b"]), "write an index"),
        (reuse(layers=["1-"]), "write an index"),
        (reuse(layers=["\u00b2"]), "write an index"),
        (reuse(layers=["\u0663"]), "write an index"),
        (reuse(layers="upper"), "use first, middle, last, auto"),
        (reuse(size=6), "between 1 and 5"),
        (reuse(size=0), "size is 0; it must be at least 1"),
        (reuse(layers=[1], size=1), "size goes with"),
        (reuse(layers="auto", calibration="x", share=0.5, size=2), "size goes with"),
        (reuse(layers="auto"), "needs calibration"),
        (reuse(layers="auto", share=0.5), "needs calibration"),
        (reuse(layers="auto", calibration="x"), "needs calibration"),
        (reuse(calibration="x"), "and only it"),
        (reuse(share=0.5), "and only it"),
        (reuse(calibration="x", share=0.5), "and only it"),
        (reuse(layers="auto", calibration="x", share=1), "share is 1"),
        (reuse(k=0), "k is 0"),
        (reuse(warmup=0), "warmup is 0"),
        (reuse(on=[]), "on is empty"),
        (reuse(unit="keys"), "unit"),
        (reuse(period=3), "unknown field .period."),
        (trim(keep=1.5), "keep is 1.5"),
        (trim(keep=-0.1), "keep is -0.1"),
        (trim(every=0), "every is 0"),
        (trim(probe_layer=0), "probe_layer is 0"),
        (adaptive(on=[]), "on is empty"),
        (adaptive(max_drift=-1), "max_drift is -1"),
        (adaptive(max_drift=float("nan")), "max_drift is nan"),
        (adaptive(budget=2), "budget is 2"),
        (adaptive(cap=-1), "cap is -1"),
        (adaptive(unit="output"), "output"),
        ({"kind": "sometimes"}, "sometimes"),
        ({"k": 2}, "kind"),
    ],
)
def test_values_without_meaning_are_refused(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UnmaskError, match=sentence):
        make_policy(spec, 6)


def test_defaults_make_a_policy() -> None:
    for kind in ("full", "layer_reuse", "trim", "adaptive"):
        assert make_policy({"kind": kind}, 6)
    with pytest.raises(UnmaskError, match="Expected `int`, got `str`"):
        policy_spec({"kind": "layer_reuse", "k": "3"})


@pytest.mark.parametrize("policy", ["layer_reuse", 3, ["trim"], dict], ids=str)
def test_something_that_is_no_policy(policy: Any) -> None:
    with pytest.raises(UnmaskError, match="is no policy"):
        make_policy(policy, 6)
