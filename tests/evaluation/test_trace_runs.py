"""Runs whose policies choose their layers by a trace: the store keeps the trace, and the worker checks it."""

import json
from pathlib import Path

import numpy as np
import pytest

from unmask import lab
from unmask.analysis.likeness import must_agree
from unmask.analysis.stored import own_table
from unmask.errors import UnmaskError
from unmask.evaluation.worker import complete
from unmask.lab.planning import Plan
from unmask.lab.records import write_down
from unmask.store.traces import with_traces

RECIPE = """\
name = "traced"
hypothesis = "Calm layers may be reused."

[model]
checkpoint = "embedded"
dtype = "float32"

[decode]
max_new_tokens = 32

[[tasks]]
name = "unmask_arith"
limit = 1

[[configurations]]
name = "auto"
policy = { kind = "layer_reuse", k = 2, layers = "auto", calibration = "trace.npz", share = 0.25 }

[[configurations]]
name = "named"
policy = { kind = "layer_reuse", k = 2, layers = [0, 1, 2] }

[[configurations]]
name = "both"
policy = { kind = "combine", rows = { kind = "trim" }, layers = { kind = "layer_reuse", k = 2, \
layers = "auto", calibration = "trace.npz", share = 0.25 } }
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan that is written down, after which its recipe and trace are gone."""
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "recipe.toml").write_text(RECIPE)
    errors = np.tile(np.linspace(0, 1, 12, dtype=np.float32)[:, None], (4, 1, 8))
    np.savez_compressed(folder / "trace.npz", error_residual=errors)
    planned = lab.plan(folder, store=tmp_path / "results")
    write_down(planned)
    (folder / "trace.npz").unlink()
    return planned


def test_a_run_needs_nothing_but_the_store(plan: Plan) -> None:
    for run in plan.runs:
        attempt = run.folder.new_attempt()
        with attempt.working():
            assert complete(run.folder, attempt)
    entries = {entry.configuration: entry for entry in own_table(plan.store).entries}
    assert entries["auto"].answers == entries["named"].answers
    assert must_agree(entries["auto"], entries["named"])
    assert not must_agree(entries["auto"], entries["both"])
    assert "recipe" not in json.dumps([run.folder.identity["policy"] for run in plan.runs])


@pytest.mark.parametrize("number", [0, 2], ids=["alone", "combined"])
@pytest.mark.parametrize("how", ["gone", "changed"])
def test_a_worker_refuses_another_trace(plan: Plan, how: str, number: int) -> None:
    (trace,) = (plan.store.root / "traces").iterdir()
    trace.write_bytes(b"another") if how == "changed" else trace.unlink()
    folder = plan.runs[number].folder
    with pytest.raises(UnmaskError, match=r"is not there or was changed; run the recipe again"):
        complete(folder, folder.new_attempt())


def test_a_path_in_an_older_identity_stays_a_path(tmp_path: Path) -> None:
    older = {"kind": "layer_reuse", "layers": "auto", "calibration": "/somewhere/trace.npz", "share": 0.5}
    assert with_traces(tmp_path, older) == older
    outside = {**older, "calibration": f"sha256:../{'a' * 61}"}
    assert with_traces(tmp_path, outside) == outside
    own = {"kind": "custom", "target": "a:B", "options": {"calibration": f"sha256:{'a' * 64}"}}
    assert with_traces(tmp_path, own) == own
