"""What a result says of its policy: that it acted, why it did not, and why it may equal another."""

import pytest

from unmask.cost import Ledger, ModelShape, Work
from unmask.cost.work_sums import WorkSums
from unmask.evaluation.proof import Proof
from unmask.spec import FullSpec, LayerReuseSpec, PolicySpec
from unmask.store.result import Effect

SHAPE = ModelShape(layers=2, hidden=8, ffn=16, heads=2, kv_heads=1, head_dim=4, vocabulary=32)


def told(policy: PolicySpec, *works: Work) -> Effect:
    ledger = Ledger(2)
    for work in works:
        ledger.add(work)
    proof = Proof(2, policy)
    proof.add("task", "generation", WorkSums.of(ledger, SHAPE))
    return proof.of()["generation"]


FULL = Work("sub", 8, 80, 8)
SKIPPED = Work("sub", 8, 80, 8, (0, 0), (0, 0))


@pytest.mark.parametrize("unit, remarked", [("output", True), ("residual", False)])
def test_equal_subsets_are_explained_where_they_are_equal(unit: str, remarked: bool) -> None:
    found = told(LayerReuseSpec(k=2, unit=unit), FULL, SKIPPED)  # type: ignore[arg-type]
    assert found.inactive is None
    assert found.reuse_fraction == 0.5
    assert (found.remark is not None) == remarked


def test_canvas_says_that_all_k_above_1_are_equal() -> None:
    ledger = Ledger(2)
    ledger.add(FULL)
    ledger.add(SKIPPED)
    effect = WorkSums.of(ledger, SHAPE)
    for estimator, path, said in (("canvas", "scoring", True), ("chain", "scoring", False)):
        proof = Proof(2, LayerReuseSpec(k=3, unit="residual"), estimator)
        proof.add("task", path, effect)  # type: ignore[arg-type]
        assert ("every k above 1" in str(proof.of()[path].remark)) == said


def test_a_policy_that_did_nothing_says_so_and_nothing_else() -> None:
    found = told(LayerReuseSpec(k=2, unit="output"), FULL)
    assert "1 sub-block steps" in str(found.inactive)
    assert found.remark is None
    assert told(FullSpec(), FULL).inactive is None
