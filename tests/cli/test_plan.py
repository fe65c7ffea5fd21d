"""`unmask plan` before anything ran: without a lock, of tasks where nothing can act, and of other decode settings."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cli_cases import Run, error_line
from planted import TEXT, result_of, runs_of, write_recipe

from unmask import lab
from unmask.analysis.step_counts import StepCounts
from unmask.lab.records import freeze
from unmask.policies.registry import make_policy
from unmask.policies.rehearsal import Script, rehearse
from unmask.store import Store
from unmask.store.result import AccuracyResult

RECIPES = Path(__file__).parents[2] / "recipes"


def planned(run: Run, recipe: Path, *arguments: object) -> dict[str, Any]:
    result = run("plan", recipe, "--json", *arguments)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def said(run: Run, recipe: Path, *arguments: object) -> str:
    result = run("plan", recipe, *arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def write_trace(file: Path, tokens_a_step: int, steps: int) -> Path:
    """What a plan reads of a trace of `unmask probe`."""
    np.savez(file, unmasked=np.full(steps, tokens_a_step), leftmost=np.full(steps, True))
    return file


# Without a lock.


@pytest.fixture
def unlocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The published baseline, without a lock and without a network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "recipes" / "00_baseline"
    shutil.copytree(RECIPES / "00_baseline", folder, ignore=shutil.ignore_patterns("*.lock"))
    return folder


def test_a_published_checkpoint_is_planned_without_lock_or_network(
    run: Run, unlocked: Path, store: Store
) -> None:
    told = planned(run, unlocked)
    assert told["locked"] is False
    assert len(told["runs"]) == 8 * 32 + 3
    assert {(one["id"], one["status"]) for one in told["runs"]} == {(None, None)}
    rows = {one["task"]: one["rows"] for one in told["runs"] if one["kind"] == "accuracy"}
    assert (rows["gsm8k"], rows["mmlu"], rows["minerva_math"], rows["gpqa_main_zeroshot"]) == (
        1319,
        14_042,
        5000,
        448,
    )
    assert told["outlook"]["ceilings"]["k3_middle_residual"]["speedup"] == pytest.approx(1.23, abs=0.01)
    assert ["k1_first", "k1_middle", "k1_last"] in told["outlook"]["equal"]
    assert told["outlook"]["samples_needed"] > 100
    text = said(run, unlocked)
    assert "Not locked yet: this plan goes by the checkpoint's shape" in text
    assert "gsm8k 1,319, mmlu 14,042" in text
    assert sorted(file.name for file in unlocked.iterdir()) == ["proposal.md", "recipe.toml"]
    assert not store.root.exists()


def test_the_published_grid_becomes_three_runs_and_three_twins(run: Run, unlocked: Path) -> None:
    grid = [word for subset in ("first", "middle", "last") for word in ("--config", f"k?_{subset}")]
    told = planned(run, unlocked, "--task", "gsm8k", *grid)
    assert told["if_all_ran"] == {"runs": 9, "twins": 0, "rows": 9 * 1319}
    assert told["as_planned"] == {"runs": 3, "twins": 3, "rows": 3 * 1319 + 3 * 20}
    assert "3 runs and 3 twins." in said(run, unlocked, "--task", "gsm8k", *grid)


def test_what_is_not_locked_has_no_ids_and_is_not_run(run: Run, unlocked: Path, store: Store) -> None:
    dry = run("run", unlocked, "--dry-run", "--task", "gsm8k", "--config", "k1_first")
    assert dry.exit_code == 0
    assert "gsm8k k1_first\n" in dry.stdout
    line = error_line(run("run", unlocked))
    assert "fetch and lock its checkpoint and data with `unmask prepare" in line
    assert not store.root.exists()


def test_a_part_says_nothing_of_other_tasks(run: Run, unlocked: Path) -> None:
    text = said(run, unlocked, "--task", "ifeval", "--limit", 50)
    assert "Rows: ifeval 50." in text
    assert "mmlu" not in text
    assert "To tell a loss" not in text, "the criterion is about another task"


def test_a_limit_above_the_published_rows_takes_all_of_them(run: Run, unlocked: Path) -> None:
    chosen = ("plan", unlocked, "--task", "gpqa_main_zeroshot")
    assert run(*chosen, "--limit", 449).stdout == run(*chosen).stdout
    assert run(*chosen, "--limit", 447).stdout != run(*chosen).stdout


def test_a_folder_with_a_config_is_enough(run: Run, tmp_path: Path, bare_model: Path, store: Store) -> None:
    (tmp_path / "mine").mkdir()
    shutil.copy(bare_model / "config.json", tmp_path / "mine")
    text = TEXT.replace('"embedded"', '"../mine"').replace("unmask_arith", "gsm8k")
    folder = write_recipe(tmp_path / "recipe")
    (folder / "recipe.toml").write_text(text)
    (folder / "recipe.lock").unlink()
    told = planned(run, folder)
    assert (told["locked"], told["runs"][0]["rows"]) == (False, 4)


def test_the_time_is_known_by_earlier_runs_of_a_checkpoint_of_that_name(
    run: Run, unlocked: Path, store: Store
) -> None:
    locked = shutil.copytree(unlocked, unlocked.with_name("locked"))
    write_recipe(locked, (unlocked / "recipe.toml").read_text())
    text = (locked / "recipe.toml").read_text().replace("gpus = 1", "gpus = 0")
    write_recipe(locked, text)
    (unlocked / "recipe.toml").write_text(text)
    plan = lab.plan(locked, tasks="gsm8k", configurations="k1_first", store=store)
    freeze(store, plan.opened, plan.runs)
    (first,) = plan.runs
    assert first.folder.publish(result_of(first.folder, "k1_first"))
    told = planned(run, unlocked, "--task", "gsm8k", "--config", "k1_first")
    assert told["expected_seconds"] is not None
    other = planned(run, unlocked, "--task", "ifeval", "--config", "k1_first")
    assert other["expected_seconds"] is None


# Where nothing can act.

LETTERS = TEXT.replace("unmask_arith", "unmask_choice").replace('["k2_*", "t0.7"]', '["k2_*"]')
TEXTS = LETTERS.replace("unmask_choice", "unmask_choice_text")


def scored_by(estimator: str, text: str) -> str:
    return text.replace("limit = 4", f'limit = 4\nestimator = "{estimator}"')


def test_tokens_a_forward_are_no_criterion_where_tokens_are_given(run: Run, tmp_path: Path) -> None:
    text = TEXTS.replace("speedup", "gain").replace("[success]", '[success]\nby = "tokens_a_forward"')
    said = planned(run, write_recipe(tmp_path / "given", text))["outlook"]["beyond"]
    assert said.startswith(
        "On unmask_choice_text tokens are given and scored, so nothing gains tokens a forward"
    )
    assert 'set success.by to "work" or "speed"' in said


def test_policies_cannot_act_on_single_letters_under_chain(run: Run, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "letters", LETTERS)
    outlook = planned(run, recipe)["outlook"]
    cannot, nothing_new = outlook["idle"]
    assert (cannot["task"], cannot["configurations"]) == ("unmask_choice", ["k2_first", "k2_last"])
    assert cannot["reason"] == "single-token targets take one step, so there is no earlier step to reuse"
    assert nothing_new["configurations"] == ["t0.7"]
    text = said(run, recipe)
    assert "Cannot act on unmask_choice: k2_first, k2_last; single-token targets take one step" in text
    assert "No candidate can gain anything on unmask_choice: single-token targets take one step" in text


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        (scored_by("canvas", LETTERS), False),
        (scored_by("onepass", LETTERS), True),
        (TEXTS, False),
        (scored_by("first_token", TEXTS), True),
        (TEXT, False),
    ],
)
def test_where_policies_can_act_and_where_not(run: Run, tmp_path: Path, text: str, idle: bool) -> None:
    parts = planned(run, write_recipe(tmp_path / "one", text))["outlook"]["idle"]
    assert any(part["fate"] == "Cannot act" for part in parts) == idle


def test_a_threshold_brings_nothing_new_where_tokens_are_given(run: Run, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "texts", TEXTS)
    (part,) = planned(run, recipe)["outlook"]["idle"]
    assert (part["fate"], part["configurations"]) == ("Nothing new", ["t0.7"])
    assert planned(run, write_recipe(tmp_path / "generated"))["outlook"]["idle"] == []


# Other decode settings.


def with_steps(store: Store, recipe: Path, configuration: str, steps: int, **selection: Any) -> None:
    """Publish a result whose answers of 70 tokens took so many steps each."""
    run = store.run(runs_of(recipe, **selection)[configuration].identity)
    result = result_of(run, configuration)
    assert isinstance(result, AccuracyResult)
    effect = result.effect["generation"]
    answers = result.answers.count or 0
    forwards = {**effect.forwards, "block": 2 * answers, "sub": (steps - 2) * answers}
    changed = {"generation": msgspec.structs.replace(effect, forwards=forwards)}
    assert run.publish(msgspec.structs.replace(result, effect=changed))


def test_a_threshold_of_which_nothing_is_known_is_unknown(run: Run, recipe: Path, store: Store) -> None:
    outlook = planned(run, recipe)["outlook"]
    assert outlook["unpriced"] == outlook["other_settings"] == ["t0.7"]
    text = said(run, recipe)
    assert "t0.7 unknown unknown missing" in text
    assert "(t0.7): try `unmask run RECIPE --canary 10`" in text


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_steps_of_earlier_runs_keep_their_share_of_full_block_steps(share: float) -> None:
    tokens, steps = 2250, 1000
    counts = StepCounts.of(tokens, round(share * steps), round((1 - share) * steps), "earlier runs")
    assert counts.mean == pytest.approx(2.25, abs=0.05)
    script = Script(unmasked=counts.unmasked, leftmost=counts.leftmost)
    taken = rehearse(make_policy(None, 3), 3, script).steps()
    lowest = 8 / 2.25  # every sub-block has one full-block step at least
    assert taken["block"] / (taken["block"] + taken["sub"]) == pytest.approx(max(share, 1 / lowest), abs=0.1)


def test_a_threshold_is_priced_by_the_forwards_of_earlier_runs(run: Run, recipe: Path, store: Store) -> None:
    with_steps(store, recipe, "k1_first", 35)
    assert planned(run, recipe)["outlook"]["unpriced"] == ["t0.7"]
    with_steps(store, recipe, "t0.7", 20)
    outlook = planned(run, recipe)["outlook"]
    assert outlook["unpriced"] == []
    assert outlook["tokens_a_step"] == {
        "k1_first": pytest.approx(2.0),
        "k1_last": pytest.approx(2.0),
        "k2_first": pytest.approx(2.0),
        "k2_last": pytest.approx(2.0),
        "t0.7": pytest.approx(3.5),
    }
    assert outlook["ceilings"]["t0.7"]["speedup"] > 1.3
    assert outlook["ceilings"]["t0.7"]["flops_saved"] > 0.1
    text = said(run, recipe)
    assert "Tokens a step are those of earlier runs of unmask_arith." in text
    assert "about 1." in text
    assert "never acts" in text


def test_a_higher_threshold_costs(run: Run, tmp_path: Path, store: Store) -> None:
    recipe = write_recipe(tmp_path / "slow", TEXT.replace("threshold = 0.7", "threshold = 0.99"))
    with_steps(store, recipe, "k1_first", 20)
    with_steps(store, recipe, "t0.7", 35)
    ceiling = planned(run, recipe)["outlook"]["ceilings"]["t0.7"]
    assert ceiling["speedup"] < 1
    assert ceiling["flops_saved"] < 0


def test_a_canary_prices_a_threshold(run: Run, recipe: Path, store: Store) -> None:
    with_steps(store, recipe, "k1_first", 35, limit=2)
    with_steps(store, recipe, "t0.7", 20, limit=2)
    assert planned(run, recipe)["outlook"]["unpriced"] == []


def test_a_canary_tries_every_further_setting(run: Run, tmp_path: Path, store: Store, workers: None) -> None:
    text = TEXT.replace('candidates = ["k2_*", "t0.7"]', 'candidates = ["k2_*"]')
    result = run("run", write_recipe(tmp_path / "thresholds", text), "--canary", 2)
    assert "Canary: 2 rows of k1_first, k1_last, k2_first, t0.7 on unmask_arith." in result.stdout


def test_runs_of_another_checkpoint_price_nothing(run: Run, recipe: Path, store: Store) -> None:
    with_steps(store, recipe, "k1_first", 35)
    with_steps(store, recipe, "t0.7", 20)
    lock = json.loads((recipe / "recipe.lock").read_text())
    lock["files"]["model.safetensors"] = "e" * 64
    (recipe / "recipe.lock").write_text(json.dumps(lock))
    assert planned(run, recipe)["outlook"]["unpriced"] == ["t0.7"]


def test_runs_under_a_policy_do_not_stand_for_the_steps_of_their_settings(
    run: Run, recipe: Path, store: Store
) -> None:
    with_steps(store, recipe, "k2_first", 60)
    assert planned(run, recipe)["outlook"]["tokens_a_step"] == {}


def test_traces_price_a_threshold(run: Run, recipe: Path, tmp_path: Path) -> None:
    slow = write_trace(tmp_path / "slow.npz", 2, 35)
    fast = write_trace(tmp_path / "fast.npz", 4, 18)
    given = ("--trace", f"k1_first={slow}", "--trace", f"t0.7={fast}")
    outlook = planned(run, recipe, *given)["outlook"]
    assert outlook["tokens_a_step"]["k2_last"] == 2.0
    assert outlook["tokens_a_step"]["t0.7"] == 4.0
    assert outlook["unpriced"] == []
    assert f"those of the trace {slow}, the trace {fast}" in said(run, recipe, *given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nothing", "write NAME=FILE"),
        ("=file", "write NAME=FILE"),
        ("unheard_of={file}", "which is no configuration; there are k1_first"),
        ("t0.7=/no/such/file", "is no trace"),
    ],
)
def test_traces_that_fit_nothing_are_refused(
    run: Run, recipe: Path, tmp_path: Path, given: str, words: str
) -> None:
    file = write_trace(tmp_path / "fast.npz", 4, 1)
    assert words in error_line(run("plan", recipe, "--trace", given.format(file=file)))
