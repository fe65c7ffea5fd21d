"""The recipes that ship: each can be planned, says what it asks, and keeps the promises of its proposal."""

import re
from functools import cache
from pathlib import Path

import pytest

from recipe_cases import lock_for
from unmask.analysis.ceilings import Outlook, outlook
from unmask.spec.recipe import Recipe, read_recipe
from unmask.spec.sweep import sweep_of
from unmask.store.store import run_id

FOLDER = Path(__file__).parents[2] / "recipes"
SUBSETS = ("first", "middle", "last")
HEADINGS = (
    "Hypothesis",
    "Background",
    "Method",
    "Variables",
    "Evaluation",
    "Success criteria",
    "Limitations",
)


def grid(ks: tuple[int, ...], ending: str = "", beginning: str = "") -> list[str]:
    return [f"{beginning}k{k}_{layers}{ending}" for k in ks for layers in SUBSETS]


def alike(ks: tuple[int, ...], ending: str = "") -> list[list[str]]:
    return [grid((k,), ending) for k in ks]


NAMES = {
    "00_baseline": [
        *grid((1, 2, 3)),
        *grid((1, 2, 3), "_t0.95"),
        *grid((2, 3), "_residual"),
        *grid((2, 3), "_residual_t0.95"),
        *("t0.8", "t0.7"),
    ],
    "00_baseline_embedded": [*grid((1, 2, 3)), "t0.7"],
    "01_residual": [
        *(
            name
            for ending in ("", "_sub")
            for unit in ("residual", "attention", "mlp")
            for name in grid((2, 3), ending, beginning=f"{unit}_")
        ),
        *("output_k2_sub", "output_k3_sub", "output_k2", "output_k3"),
        *("baseline", "residual_k1", "t0.8", "t0.7"),
    ],
    "02_trim": [
        *("keep0.0", "keep0.25", "keep0.5", "keep1.0"),
        *("keep0.0_every2", "keep0.0_every3", "keep0.25_every2", "keep0.25_every3"),
        *("t0.5", "t0.6", "t0.7", "t0.8", "baseline"),
    ],
    "03_adaptive": [
        *(f"d{drift}_b{budget}" for drift in (0.05, 0.1, 0.2) for budget in (0.15, 0.3, 0.5)),
        *("attention_d0.1_b0.3", "attention_d0.1_b0.5", "mlp_d0.1_b0.3", "mlp_d0.1_b0.5"),
        *("baseline", "b0", "d0.1_b0.3_cap1", "t0.8", "t0.7"),
    ],
    "04_threshold": [
        *(f"t{threshold}_s8" for threshold in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)),
        *("t0.9_s4", "t0.9_s16", "t0.9_s32", "t0.9_s8_k1"),
    ],
    "05_autoregressive": [
        *("t0.95", "t0.9", "t0.8", "t0.7", "autoregressive"),
        *("top2", "factor1", "k2_residual", "keep0.25"),
    ],
    "05_autoregressive_embedded": [
        *("autoregressive", "t0.9", "t0.7", "top2", "entropy0.35", "factor1"),
        *("k2_residual", "keep0.25"),
    ],
    "06_canvas_embedded": [
        *(f"t{threshold}_{cache}" for threshold in (0.9, 0.7) for cache in ("none", "prefix", "dual")),
        *("trim_t0.9_none", "trim_t0.9_prefix", "trim_t0.9_dual", "t0.9_dual_r2"),
        *("residual_t0.9_dual", "output_t0.9_dual", "residual_t0.9_none", "output_t0.9_none"),
        *("top2_none", "top2_dual", "factor1_none", "factor1_dual"),
        *("t0.5_dual", "t1.0_dual", "t0.9_dual_s16", "t0.9_dual_s32"),
    ],
}
EQUAL = {
    "00_baseline": [*alike((1, 2, 3)), *alike((1, 2, 3), "_t0.95")],
    "00_baseline_embedded": alike((1, 2, 3)),
    "01_residual": [["baseline", "residual_k1"]],
    "02_trim": [["keep1.0", "baseline"]],
    "03_adaptive": [["baseline", "b0"]],
    "04_threshold": [["t0.9_s8", "t0.9_s8_k1"]],
    "05_autoregressive": [],
    "05_autoregressive_embedded": [],
    "06_canvas_embedded": [],
}
every = pytest.mark.parametrize("name", sorted(NAMES))


@cache
def shipped(name: str) -> Recipe:
    return read_recipe(FOLDER / name)


@cache
def outlook_of(name: str, device: str | None = None) -> Outlook:
    return outlook(shipped(name), lock_for(shipped(name)), device)


def test_every_recipe_is_listed_here() -> None:
    assert sorted(file.parent.name for file in FOLDER.glob("*/recipe.toml")) == sorted(NAMES)


@every
def test_it_expands_to_its_names(name: str) -> None:
    assert [point.name for point in shipped(name).expanded()] == NAMES[name]
    assert shipped(name).name == name


@every
def test_it_can_be_planned(name: str) -> None:
    recipe = shipped(name)
    runs = sweep_of(recipe, lock_for(recipe))
    assert len(runs) == len(recipe.tasks) * len(NAMES[name]) + len(recipe.timing)
    assert len({run_id(run.identity) for run in runs}) == len(runs)
    assert {run.task for run in runs} == {task.name for task in recipe.tasks}


@every
def test_what_cannot_differ_is_there_as_a_control(name: str) -> None:
    assert outlook_of(name).equal == EQUAL[name]


@every
def test_its_criterion_can_be_met_and_its_policies_act(name: str) -> None:
    found = outlook_of(name)
    assert found.beyond is None
    assert found.samples_needed
    controls = {one for group in EQUAL[name] for one in group if found.ceilings[one].dead}
    plain = {
        one for one in NAMES[name] if re.fullmatch(r"baseline|autoregressive|(t|top|entropy|factor)\d.*", one)
    }
    assert {one for one, ceiling in found.ceilings.items() if ceiling.dead} == controls | plain


@every
def test_the_control_is_timed_with_the_candidates_or_work_is_counted(name: str) -> None:
    recipe = shipped(name)
    assert recipe.success is not None
    if recipe.success.by == "work":
        assert not recipe.timing
        return
    timed = next(run.identity for run in sweep_of(recipe, lock_for(recipe)) if run.kind == "timing")
    assert timed["control"] == recipe.success.control
    assert timed["repeats"] >= 5


@every
def test_it_opens_with_what_is_asked_and_the_command(name: str) -> None:
    text = (FOLDER / name / "recipe.toml").read_text()
    header = text[: text.index("name =")].splitlines()
    assert all(line.startswith("#") for line in header)
    assert f"#   unmask run recipes/{name} " in "\n".join(header)
    assert re.search(r"\b(minutes|hours|hour)\b", " ".join(header))
    assert "Expected" in " ".join(header)
    assert shipped(name).expected


@every
def test_it_has_a_proposal(name: str) -> None:
    text = (FOLDER / name / "proposal.md").read_text()
    assert text.startswith(f"# Proposal: {name}, ")
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert [heading for heading in HEADINGS if heading not in found] == []
    assert "**Confirm if**" in text
    assert "**Reject if**" in text


# The baseline's promises.


def test_the_baseline_asks_as_the_first_experiment_did() -> None:
    recipe = shipped("00_baseline")
    assert (recipe.evaluation.chat, recipe.evaluation.batch_size, recipe.evaluation.allow_code) == (
        True,
        1,
        True,
    )
    assert {task.num_fewshot for task in recipe.tasks} == {0}
    tasks = {task.name: task for task in recipe.tasks}
    assert tasks["gsm8k"].metric == "exact_match,strict-match"
    assert tasks["mmlu"].estimator == "canvas"
    for point in recipe.expanded():
        decode = recipe.decode_of(point)
        assert (decode.max_new_tokens, decode.cache, decode.temperature) == (2048, "dual", 0.0)
        expected = 0.95 if point.name.endswith("_t0.95") else 0.9
        assert decode.threshold == (float(point.name[1:]) if point.name.startswith("t") else expected)
        assert point.policy.get("unit") == (
            None if point.name.startswith("t") else "residual" if "residual" in point.name else "output"
        )
    assert (recipe.resources.gpus, recipe.resources.gpu_type, recipe.resources.memory_gb) == (
        1,
        "rtx_6000",
        64,
    )


def test_the_baselines_subsets_are_those_of_28_layers() -> None:
    from unmask.policies.subsets import named_subset

    text = (FOLDER / "00_baseline" / "proposal.md").read_text()
    for subset in SUBSETS:
        layers = named_subset(subset, 12, 28)
        assert f"{subset} {layers[0]} to {layers[-1]}" in text


def test_the_ceilings_that_proposals_name_are_those_of_a_plan() -> None:
    ceilings = outlook_of("00_baseline").ceilings
    text = (FOLDER / "00_baseline" / "proposal.md").read_text()
    names = ("k2_middle_residual", "k3_middle_residual", "k2_middle", "k3_middle")
    told = [f"{ceilings[name].speedup:.2f}" for name in names]
    assert re.findall(r"1\.\d\d", text[text.index("What is known beforehand") :]) == told
    saved = outlook_of("01_residual").ceilings
    most = {
        unit: f"{saved[f'{unit}_k3_middle'].flops_saved:.0%}" for unit in ("attention", "mlp", "residual")
    }
    assert most == {"attention": "8%", "mlp": "10%", "residual": "18%"}
