"""A sweep of two checkpoints with real workers: an autoregressive control beside the embedded model."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from unmask import lab
from unmask.analysis.guards import run_guards
from unmask.analysis.stored import own_table
from unmask.cli import app
from unmask.loading import load
from unmask.model.hub import find_checkpoint
from unmask.spec.lock import read_lock
from unmask.store import Store
from unmask.store.result import AccuracyResult, TimingResult

RECIPE = """\
name = "two"
hypothesis = "Several tokens a forward beat one."

[model]
checkpoint = "embedded"

[decode]
max_new_tokens = 64

[[tasks]]
name = "unmask_arith"
limit = 2

[[configurations]]
name = "autoregressive"
model = { checkpoint = "../causal" }

[[configurations]]
name = "t0.9"

[[timing]]
task = "unmask_arith"
prompts = 1
repeats = 1
"""


def write_causal(folder: Path) -> Path:
    """The embedded weights as an autoregressive checkpoint: a Qwen2 without a block size."""
    shutil.copytree(find_checkpoint("embedded"), folder)
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in ("bd_size", "mask_token_id")}
    named = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(kept | named))
    return folder


def test_blocks_of_one_are_autoregressive_decoding(tmp_path: Path) -> None:
    """The same weights as two families: the same tokens by the same forwards."""
    causal, diffusion = load(write_causal(tmp_path / "causal")), load("embedded")
    prompts = [
        f"Question: Ann has {count} apples and buys 3. How many has she?\nAnswer:" for count in (2, 17)
    ]
    settings = {"max_new_tokens": 40, "stop_tokens": ()}
    blocks_of_one = {**settings, "block_size": 1, "sub_block_size": 1}
    for one, other in zip(
        causal.generate(prompts, settings), diffusion.generate(prompts, blocks_of_one), strict=True
    ):
        assert one.ids == other.ids
        assert one.ledger.steps() == other.ledger.steps()


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Store]:
    place = tmp_path_factory.mktemp("two")
    write_causal(place / "causal")
    recipe = place / "recipe" / "recipe.toml"
    recipe.parent.mkdir()
    recipe.write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        ran = CliRunner().invoke(app, ["run", str(recipe), "--store", str(place / "store")])
    assert ran.exit_code == 0, ran.output
    return recipe, Store(place / "store")


def test_each_run_has_the_weights_of_its_checkpoint(swept: tuple[Path, Store]) -> None:
    recipe, store = swept
    lock = read_lock(recipe.with_suffix(".lock"))
    other = lock.others["../causal"]
    assert (other.family, other.block_size, other.mask_token_id) == ("autoregressive", 1, None)
    assert other.model == str(recipe.parents[1] / "causal")
    runs = {run.label: run for run in lab.plan(recipe, store=store.root).runs}
    control, candidate, timing = (run.folder.result() for run in runs.values())
    assert isinstance(control, AccuracyResult)
    assert isinstance(candidate, AccuracyResult)
    assert isinstance(timing, TimingResult)
    assert control.identity["weights"] == other.weights
    assert candidate.identity["weights"] == timing.identity["weights"] == lock.weights
    steps = control.effect["generation"].forwards
    assert (steps.get("block", 0), steps.get("sub", 0)) == (0, 0)
    assert steps["commit"] > candidate.effect["generation"].forwards["commit"]
    assert timing.configurations["autoregressive"].tokens > 0


def test_the_report_knows_that_there_are_two(swept: tuple[Path, Store]) -> None:
    _, store = swept
    table = own_table(store)
    assert {entry.configuration: entry.model for entry in (*table.entries, *table.timings)} == {
        "autoregressive": "../causal",
        "t0.9": None,
    }
    findings = {finding.guard: finding for finding in run_guards(table)}
    assert (
        "t0.9 runs the checkpoint of the recipe, the control ../causal"
        in findings["other-checkpoint"].sentence
    )
    assert findings.get("mixed-provenance") is None or findings["mixed-provenance"].severity != "invalid"


def test_a_checkpoint_that_changed_is_not_run(swept: tuple[Path, Store]) -> None:
    recipe, store = swept
    config = recipe.parents[1] / "causal" / "generation_config.json"
    before = config.read_text()
    config.write_text(before + " ")
    try:
        arguments = ["run", str(recipe), "--store", str(store.root), "--force", "autoregressive"]
        ran = CliRunner().invoke(app, arguments)
    finally:
        config.write_text(before)
    assert ran.exit_code != 0
    assert "is not the file that was locked" in " ".join(ran.output.split())
