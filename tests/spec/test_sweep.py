"""Identities: everything that a result depends on changes them, nothing else does; and which runs a call means."""

import json
import math
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe_cases import TEXT, lock_for, recipe
from unmask.errors import UnmaskError
from unmask.spec import AdaptiveSpec, DecodeSpec, LayerReuseSpec, TrimSpec
from unmask.spec.lock import Lock
from unmask.spec.recipe import Recipe, parse_recipe, read_recipe
from unmask.spec.sweep import ENGINE_REVISION, PlannedRun, differences, frozen, revision_change, sweep_of
from unmask.store.store import run_id

FULL = ("limit = 4\n", "")


def planned(found: Recipe | None = None, lock: Lock | None = None, **selection: Any) -> list[PlannedRun]:
    found = found or recipe()
    return sweep_of(found, lock or lock_for(found), **selection)


def ids(*changes: tuple[str, str], **lock: Any) -> dict[str, str]:
    """Ids by task and configuration, with parts of the recipe or of the lock changed."""
    found = recipe(*changes)
    runs = planned(found, lock_for(found, **lock))
    return {f"{run.task} {run.configuration}": run_id(run.identity) for run in runs}


BASE = ids()
ARITH = {name for name in BASE if name.startswith("unmask_arith ")}
OF_A_RUN = "unmask_arith k2_last"


def test_every_run_of_a_sweep_has_an_id_of_its_own() -> None:
    assert len(BASE) == 2 * 8 + 1
    assert len(set(BASE.values())) == len(BASE)


# What is in an identity.


def run_of(name: str, *changes: tuple[str, str]) -> PlannedRun:
    return next(run for run in planned(recipe(*changes)) if run.configuration == name)


def test_defaults_are_frozen_into_the_identity() -> None:
    identity = run_of("k2_last").identity
    resolved = DecodeSpec(threshold=0.9, sub_block_size=8, block_size=32, block_cache=True)
    written = msgspec.to_builtins(resolved)
    assert written.pop("rule") is None, "what came later stays out at its default"
    assert identity["decode"] == written
    assert identity["policy"] == msgspec.to_builtins(LayerReuseSpec(k=2, layers="last", unit="output"))
    assert set(identity["decode"]) == set(DecodeSpec.__struct_fields__) - set(DecodeSpec.later)
    assert set(identity["policy"]) == {"kind", *LayerReuseSpec.__struct_fields__}
    assert identity["task"]["num_fewshot"] is None
    assert identity["task"]["estimator"] == "chain"


def test_an_identity_that_was_written_and_read_has_the_same_id() -> None:
    for run in planned():
        assert run_id(json.loads(json.dumps(run.identity, allow_nan=False))) == run_id(run.identity)


@pytest.mark.parametrize(
    "default",
    [
        "temperature = 0.0",
        "seed = 0",
        "block_cache = true",
        "top_p = 0.95",
        "block_size = 32",
        "sub_block_size = 8",
    ],
)
def test_a_default_that_is_written_out_is_the_same_setting(default: str) -> None:
    written = run_of("k2_last", ("threshold = 0.9", f"threshold = 0.9\n{default}")).identity
    assert written["decode"] == run_of("k2_last").identity["decode"]


def test_a_threshold_is_short_for_the_rule_of_that_name() -> None:
    for rule in ('rule = { kind = "threshold", threshold = 0.9 }', 'rule = { kind = "threshold" }', ""):
        assert run_of("k2_last", ("threshold = 0.9", rule)).identity == run_of("k2_last").identity


def test_another_rule_is_part_of_an_identity() -> None:
    rule = 'rule = { kind = "top_n", steps = 4 }'
    identity = run_of("k2_last", ("threshold = 0.9", rule)).identity
    assert identity["decode"]["threshold"] is None
    assert identity["decode"]["rule"] == {"kind": "top_n", "n": None, "steps": 4, "score": "confidence"}
    quota = run_of("k2_last", ("threshold = 0.9", 'rule = { kind = "threshold", steps = 4 }')).identity
    assert quota["decode"]["rule"] == {"kind": "threshold", "threshold": 0.9, "steps": 4}
    assert len({run_id(each) for each in (identity, quota, run_of("k2_last").identity)}) == 3


def test_the_checkpoints_own_mask_token_written_out_is_the_same_setting() -> None:
    """What is left to the checkpoint is resolved by the lock, as a block size is."""
    left_out, own = recipe(), recipe(('"embedded"', '"embedded"\nmask_token_id = 257'))
    other = recipe(('"embedded"', '"embedded"\nmask_token_id = 7'))
    masks = [
        {run.identity["mask_token_id"] for run in sweep_of(each, lock_for(each, mask_token_id=257))}
        for each in (left_out, own, other)
    ]
    assert masks == [{257}, {257}, {7}]
    assert {run.identity["mask_token_id"] for run in planned()} == {None}, "a lock of an older version"


def test_an_order_that_the_estimator_does_not_heed_is_no_part_of_it() -> None:
    canvas = ('estimator = "chain"', 'estimator = "canvas"')
    ordered = ('estimator = "chain"', 'estimator = "canvas"\norder = "left_to_right"')
    assert ids(canvas) == ids(ordered)
    assert ids() != ids(('estimator = "chain"', 'estimator = "chain"\norder = "left_to_right"'))


def test_an_estimator_that_the_family_does_not_have_is_refused_before_anything_runs() -> None:
    asked = recipe(('estimator = "chain"', 'estimator = "first_token"'))
    assert sweep_of(asked, lock_for(asked))
    with pytest.raises(
        UnmaskError, match="sdar cannot be scored by first_token; use chain or canvas or onepass"
    ):
        sweep_of(asked, msgspec.structs.replace(lock_for(asked), family="sdar"))


class LaterSettings(msgspec.Struct, frozen=True, kw_only=True, tag="later"):
    """Settings of which one came in a later version."""

    later: ClassVar[tuple[str, ...]] = ("rule", "steps")
    threshold: float = 0.9
    rule: str = "confidence"
    steps: tuple[int, ...] = ()


class OuterSettings(msgspec.Struct, frozen=True, kw_only=True):
    inner: LaterSettings


def test_a_setting_of_a_later_version_stays_out_of_an_identity_while_it_is_at_its_default() -> None:
    assert frozen(LaterSettings()) == {"type": "later", "threshold": 0.9}
    other = {"type": "later", "threshold": 0.9, "rule": "entropy"}
    assert frozen(LaterSettings(rule="entropy")) == other
    assert frozen(OuterSettings(inner=LaterSettings(rule="entropy"))) == {"inner": other}


def test_a_block_that_its_sub_blocks_do_not_fill_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnmaskError, match="The block size 32 is not a multiple of sub_block_size 5"):
        planned(recipe(("threshold = 0.9", "threshold = 0.9\nsub_block_size = 5")))


def test_only_what_a_recipe_gives_wins_over_the_tasks_own_generation() -> None:
    assert run_of("k2_last").identity["generation"] == {}
    given = ("threshold = 0.9", "threshold = 0.9\nmax_new_tokens = 32\ntemperature = 0.5")
    found = run_of("k2_last", given).identity["generation"]
    assert found == {"max_gen_toks": 32, "temperature": 0.5, "do_sample": True}
    greedy = run_of("k2_last", ("threshold = 0.9", "temperature = 0.0")).identity["generation"]
    assert greedy == {"temperature": 0.0, "do_sample": False}
    own = run_of("loose", ("{ threshold = 0.7 }", "{ max_new_tokens = 7 }")).identity["generation"]
    assert own == {"max_gen_toks": 7}


# What an identity does not know.

SAME = {
    "resources": ("gpus = 1\nminutes = 30", "cpus = 64\nminutes = 9\npartition = 'gpu'"),
    "batch": ("batch_size = 8", "batch_size = 32"),
    "device": ("batch_size = 8", 'device = "cuda:3"'),
    "place of the data": ("batch_size = 8", 'data = "/elsewhere"'),
    "leave to run code": ("batch_size = 8", "allow_code = true"),
    "leave to run code without isolation": ("batch_size = 8", "allow_code = true\nallow_unsafe_code = true"),
    "name of the recipe": ('name = "tiny"', 'name = "other"'),
    "words": ("Something is faster.", "Nothing is."),
    "criteria": ("speedup = 1.2", "speedup = 9.9"),
    "order of keys": ('unit = "output" }', 'warmup = 1, unit = "output" }'),
    "order of fields": ('policy = { kind = "trim", keep = 0.25 }', 'policy = { keep = 0.25, kind = "trim" }'),
    "spelling of a number": ("keep = 0.25", "keep = 25e-2"),
}


@pytest.mark.parametrize("case", SAME)
def test_where_and_how_it_runs_and_what_it_is_called_is_no_part_of_it(case: str) -> None:
    assert ids(SAME[case]) == BASE


def test_the_name_of_a_configuration_is_no_part_of_it() -> None:
    renamed = ids(('"trimmed"', '"rows"'))
    assert renamed["unmask_arith rows"] == BASE["unmask_arith trimmed"]


def test_the_order_of_tasks_and_of_the_locks_keys_is_no_part_of_it() -> None:
    first, second = TEXT.index("[[tasks]]"), TEXT.index("[[tasks]]", TEXT.index("[[tasks]]") + 1)
    end = TEXT.index("[[grid]]")
    turned = parse_recipe(TEXT[:first] + TEXT[second:end] + TEXT[first:second] + TEXT[end:], "x")
    lock = lock_for(turned, files={"model.safetensors": "d" * 64, "config.json": "c" * 64})
    found = {f"{run.task} {run.configuration}": run_id(run.identity) for run in planned(turned, lock)}
    assert found == BASE


# What an identity depends on.

OTHER = {
    "decode": (("threshold = 0.9", "threshold = 0.9\nblock_cache = false"), set(BASE)),
    "seed": (("threshold = 0.9", "threshold = 0.9\nseed = 1"), set(BASE)),
    "length": (("threshold = 0.9", "threshold = 0.9\nmax_new_tokens = 512"), set(BASE)),
    "own decode": (
        ("threshold = 0.7", "threshold = 0.8"),
        {"unmask_arith loose", "unmask_choice_text loose"},
    ),
    "policy": (("keep = 0.25", "keep = 0.5"), {"unmask_arith trimmed", "unmask_choice_text trimmed"}),
    "limit": (("limit = 4", "limit = 5"), ARITH - {"unmask_arith timing"}),
    "no limit": (FULL, ARITH - {"unmask_arith timing"}),
    "examples": (("limit = 4", "limit = 4\nnum_fewshot = 0"), ARITH),
    "estimator": (('"chain"', '"onepass"'), set(BASE) - ARITH),
    "order": (('"chain"', '"chain"\norder = "left_to_right"'), set(BASE) - ARITH),
    "metric": (("limit = 4", 'limit = 4\nmetric = "exact_match,none"'), ARITH),
    "chat": (("batch_size = 8", "chat = true"), set(BASE)),
    "system": (("batch_size = 8", 'system_instruction = "Be brief."'), set(BASE)),
    "dtype": (('"embedded"', '"embedded"\ndtype = "float16"'), set(BASE)),
    "mask": (('"embedded"', '"embedded"\nmask_token_id = 5'), set(BASE)),
    "prompts": (("prompts = 2", "prompts = 3"), {"unmask_arith timing"}),
    "rounds": (("repeats = 3", "repeats = 4"), {"unmask_arith timing"}),
    "batch of a timing": (("repeats = 3", "repeats = 3\nbatch_size = 2"), {"unmask_arith timing"}),
    "control of a timing": (("repeats = 3", 'repeats = 3\ncontrol = "k1_last"'), {"unmask_arith timing"}),
    "timed ones": (('"k2_last"]', '"k2_*"]'), {"unmask_arith timing"}),
}


@pytest.mark.parametrize("case", OTHER)
def test_what_a_result_depends_on_changes_the_ids_it_should(case: str) -> None:
    change, expected = OTHER[case]
    found = ids(change)
    assert {name for name in BASE if found[name] != BASE[name]} == expected


def test_a_policys_change_reaches_the_timing_runs_that_hold_it() -> None:
    found = ids(('unit = "output"', 'unit = "mlp"'))
    changed = {name for name in BASE if found[name] != BASE[name]}
    assert changed == {"unmask_arith timing", *(name for name in BASE if " k" in name)}


LOCKED = {
    "weights": ({"files": {"config.json": "c" * 64, "model.safetensors": "e" * 64}}, set(BASE)),
    "a file more": ({"files": {"config.json": "c", "model.safetensors": "d", "chat.jinja": "f"}}, set(BASE)),
    "lm-eval": ({"lm_eval": "0.4.14"}, set(BASE)),
    "rows": ({"tasks": {"unmask_arith": "new", "unmask_choice_text": "rows of unmask_choice_text"}}, ARITH),
    "version": ({"versions": {"unmask_arith": "1.1", "unmask_choice_text": "1.0"}}, ARITH),
    "block size": ({"block_size": 16}, set(BASE)),
    "shape": ({"shape": {}}, set()),
    "revision": ({"revision": "0" * 40}, set()),
}


@pytest.mark.parametrize("case", LOCKED)
def test_what_was_locked_changes_the_ids_it_should(case: str) -> None:
    lock, expected = LOCKED[case]
    found = ids(**lock)
    assert {name for name in BASE if found[name] != BASE[name]} == expected


def test_another_revision_of_the_engine_changes_every_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.spec.sweep.ENGINE_REVISION", ENGINE_REVISION + 1)
    assert not set(ids().values()) & set(BASE.values())


def test_the_part_that_differs_is_named() -> None:
    before = run_of("k2_last").identity

    def named(*changes: tuple[str, str]) -> list[str]:
        now = run_of("k2_last", *changes).identity
        return differences(json.loads(json.dumps(before)), now)

    assert named() == []
    assert named(("threshold = 0.9", "threshold = 0.7")) == ["decode.threshold 0.9 -> 0.7"]
    assert named(('"embedded"', '"embedded"\ndtype = "float16"')) == ["dtype not set -> float16"]
    assert named(("limit = 4", "")) == ["task.limit 4 -> not set"]
    stops = ("threshold = 0.9", 'threshold = 0.9\nstop_strings = ["a stop string that is too long to show"]')
    assert named(stops) == ["decode.stop_strings"]
    lock = lock_for(recipe(), files={"model.safetensors": "f" * 64})
    other = next(run for run in planned(lock=lock) if run.configuration == "k2_last")
    assert differences(before, other.identity) == ["weights"]


def test_of_another_schema_only_parts_that_both_hold_are_compared() -> None:
    now = run_of("k2_last").identity
    before = {**now, "schema": 1, "engine": 2, "decode": {**now["decode"], "block_size": None}, "extra": 5}
    del before["generation"]
    revisions = ["form of identities 1 -> 2", f"engine revision 2 -> {ENGINE_REVISION}"]
    assert differences(before, now) == revisions
    assert revision_change(before) == ", ".join(revisions)
    assert revision_change(now) is None
    assert revision_change({"schema": now["schema"]}) == f"engine revision not set -> {ENGINE_REVISION}"


def test_the_members_of_a_group_count() -> None:
    members = {"unmask_arith": ("a", "b"), "unmask_choice_text": ("unmask_choice_text",)}
    known = {
        "members": members,
        "sizes": {"a": 7, "b": 9, "unmask_choice_text": 600},
        "versions": dict.fromkeys(["a", "b", "unmask_choice_text"], "1.0"),
    }
    rows = {"a": "1", "b": "2", "unmask_choice_text": "rows of unmask_choice_text"}
    first, second = ids(**known, tasks=rows), ids(**known, tasks={**rows, "b": "3"})
    assert {name for name in BASE if first[name] != second[name]} == ARITH


def test_a_limited_run_is_never_the_full_one() -> None:
    full = run_of("k2_last", FULL)
    every = next(run for run in planned(recipe(FULL), limit=599) if run.configuration == "k2_last")
    assert full.identity["task"]["rows"] == {"unmask_arith": 600}
    assert run_id(full.identity) != run_id(every.identity)
    assert (full.label, every.label) == ("unmask_arith k2_last", "unmask_arith_limit_599 k2_last")


policies = st.one_of(
    st.builds(
        LayerReuseSpec,
        k=st.integers(1, 4),
        layers=st.sampled_from(["first", "middle", "last"]),
        unit=st.sampled_from(["output", "residual", "attention", "mlp"]),
        warmup=st.integers(1, 3),
    ),
    st.builds(TrimSpec, keep=st.sampled_from([0.0, 0.5, 1.0]), every=st.sampled_from([None, 1, 2])),
    st.builds(AdaptiveSpec, budget=st.sampled_from([0.0, 0.5]), cap=st.integers(0, 2)),
)
decodes = st.builds(
    DecodeSpec,
    threshold=st.sampled_from([0.5, 0.9, 1.0]),
    sub_block_size=st.sampled_from([4, 8]),
    block_cache=st.booleans(),
    max_new_tokens=st.sampled_from([16, 512]),
    stop_strings=st.sampled_from([(), ("Q:",)]),
)
points = st.tuples(policies, decodes)


@given(points, points, st.booleans())
def test_two_configurations_share_an_id_exactly_when_all_their_settings_are_equal(
    one: Any, other: Any, twice: bool
) -> None:
    other = one if twice else other  # two draws are hardly ever equal by themselves
    found = recipe()
    lock = lock_for(found)

    def identity(point: Any, name: str) -> str:
        policy, decode = (msgspec.to_builtins(part) for part in point)
        given = {key: value for key, value in decode.items() if value is not None}
        single = {"name": name, "policy": policy, "decode": given}
        values = {**msgspec.to_builtins(found), "configurations": [single], "grid": []}
        values |= {"timing": [], "success": None}
        (run, _) = sweep_of(msgspec.convert(values, Recipe), lock)
        return run_id(run.identity)

    assert (identity(one, "one") == identity(other, "other")) == (one == other)


def test_a_setting_that_is_no_number_is_refused() -> None:
    with pytest.raises(UnmaskError, match="max_drift is inf"):
        run_of("trimmed", ('kind = "trim", keep = 0.25', 'kind = "adaptive", max_drift = inf'))
    identity = run_of("trimmed").identity
    with pytest.raises(UnmaskError, match="must be plain, finite JSON"):
        run_id({**identity, "seed": math.inf})


def test_the_revision_of_a_checkpoint_is_no_part_of_it() -> None:
    hub = 'checkpoint = "Efficient-Large-Model/Fast_dLLM_v2_7B"'
    pinned = run_of("trimmed", ('checkpoint = "embedded"', f'{hub}\nrevision = "main"'))
    assert pinned == run_of("trimmed", ('checkpoint = "embedded"', hub))


HUB = "Efficient-Large-Model/Fast_dLLM_v2_7B"
OWN_MODEL = (
    'name = "loose"',
    f'name = "loose"\nmodel = {{ checkpoint = "{HUB}", dtype = "bfloat16", mask_token_id = 7 }}',
)


def test_a_configuration_with_a_checkpoint_of_its_own_is_the_run_of_a_recipe_with_that_checkpoint() -> None:
    beside = run_of("loose", OWN_MODEL)
    assert (beside.model, run_of("loose").model) == (HUB, None)
    alone = recipe(
        ('checkpoint = "embedded"', f'checkpoint = "{HUB}"\ndtype = "bfloat16"\nmask_token_id = 7')
    )
    lock = lock_for(recipe(OWN_MODEL)).with_checkpoint(HUB)
    found = next(run for run in sweep_of(alone, lock) if run.configuration == "loose")
    assert found.identity == beside.identity
    assert beside.identity["weights"] != run_of("trimmed", OWN_MODEL).identity["weights"]
    assert run_of("trimmed", OWN_MODEL) == run_of("trimmed"), "the others are the runs that they were"


def test_a_timing_run_names_the_checkpoints_that_are_not_the_recipes() -> None:
    every = ('configurations = ["k1_*", "k2_last"]', 'configurations = ["*"]')
    (timing,) = (run for run in planned(recipe(OWN_MODEL, every)) if run.kind == "timing")
    settings = timing.identity["configurations"]
    assert [name for name, each in settings.items() if "weights" in each] == ["loose"]
    own = {key: settings["loose"][key] for key in ("weights", "dtype", "mask_token_id")}
    assert own == {key: run_of("loose", OWN_MODEL).identity[key] for key in own}
    assert timing.identity["weights"] == lock_for(recipe()).weights


def test_a_grid_can_have_a_checkpoint_of_its_own_too() -> None:
    grid = (
        'name = "t{threshold}_s{sub_block_size}"',
        OWN_MODEL[1].replace("loose", "t{threshold}_s{sub_block_size}"),
    )
    assert {run.model for run in planned(recipe(grid)) if run.configuration.startswith("t0.5")} == {HUB}


def test_a_lock_without_a_checkpoint_of_the_recipe_is_refused() -> None:
    lock = lock_for(recipe())
    assert lock.with_weights("e" * 64) is None
    with pytest.raises(UnmaskError, match=rf"{HUB} is not in the lock; run `unmask prepare`"):
        sweep_of(recipe(OWN_MODEL), lock)
    with pytest.raises(UnmaskError, match="mask_token_id is 999999, which is outside"):
        planned(recipe((OWN_MODEL[0], OWN_MODEL[1].replace("= 7", "= 999999"))))


def test_a_mask_token_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(UnmaskError, match="outside the vocabulary of 400 tokens"):
        run_of("trimmed", ('checkpoint = "embedded"', 'checkpoint = "embedded"\nmask_token_id = 1000000000'))


# Which runs a call means.


def test_a_timing_run_holds_the_settings_of_its_configurations() -> None:
    (timing,) = [run for run in planned() if run.kind == "timing"]
    identity = timing.identity
    assert list(identity["configurations"]) == ["k1_first", "k1_last", "k2_last"]
    assert (identity["control"], identity["prompts"], identity["repeats"]) == ("k1_first", 2, 3)
    accuracy = run_of("k2_last").identity
    settings = identity["configurations"]["k2_last"]
    assert (settings["decode"], settings["policy"]) == (accuracy["decode"], accuracy["policy"])
    assert "decode" not in identity
    assert timing.label == "unmask_arith_limit_2 timing"


def test_the_control_is_timed_whether_named_or_not() -> None:
    found = recipe(('["k1_*", "k2_last"]', '["k2_last"]'), ("repeats = 3", 'control = "loose"'))
    (timing,) = [run for run in planned(found) if run.kind == "timing"]
    assert list(timing.identity["configurations"]) == ["k2_last", "loose"]


def test_two_timing_runs_of_a_task_are_told_apart_by_name() -> None:
    more = '[[timing]]\ntask = "unmask_arith"\nname = "loose_ones"\nprompts = 2\n[success]'
    runs = [run for run in planned(recipe(("[success]", more))) if run.kind == "timing"]
    assert [run.configuration for run in runs] == ["timing", "loose_ones"]


def test_patterns_choose_tasks_and_configurations() -> None:
    some = planned(tasks=["*arith"], configurations=["k2_*", "loose"])
    assert [run.label for run in some] == [
        f"unmask_arith_limit_4 {name}" for name in ("k2_first", "k2_last", "loose")
    ]
    assert {run.kind for run in planned(tasks=["unmask_choice_text"])} == {"accuracy"}
    assert {run.kind for run in planned(tasks=["unmask_arith"])} == {"accuracy", "timing"}


@pytest.mark.parametrize(
    "selection, words",
    [
        ({"tasks": ["gsm8k"]}, "No task is called gsm8k; there are unmask_arith, unmask_choice_text."),
        ({"configurations": ["k9"]}, "No configuration is called k9; there are k1_first, k1_last,"),
    ],
)
def test_what_is_not_there_is_refused(selection: dict[str, Any], words: str) -> None:
    with pytest.raises(UnmaskError) as caught:
        planned(**selection)
    assert words in str(caught.value)


def test_a_limit_holds_for_every_task_and_for_the_prompts_of_a_timing_run() -> None:
    assert {(run.kind, run.limit) for run in planned(limit=3)} == {("accuracy", 3), ("timing", 2)}
    assert {(run.kind, run.limit) for run in planned(limit=1)} == {("accuracy", 1), ("timing", 1)}


@pytest.mark.parametrize("limit", [600, 601, 1_000_000])
def test_a_limit_that_leaves_no_row_out_is_the_full_run(limit: int) -> None:
    limited = {run.label: run_id(run.identity) for run in planned(limit=limit) if run.kind == "accuracy"}
    full = {run.label: run_id(run.identity) for run in planned(recipe(FULL)) if run.kind == "accuracy"}
    assert limited == full
    assert {run.limit for run in planned(limit=599) if run.kind == "accuracy"} == {599}


def test_a_limit_of_a_group_leaves_rows_out_as_long_as_one_member_has_more() -> None:
    group = {"members": {"unmask_arith": ("a", "b"), "unmask_choice_text": ("unmask_choice_text",)}}
    sizes = {"a": 5, "b": 9, "unmask_choice_text": 9}
    known = {"tasks": dict.fromkeys(sizes, "x"), "versions": dict.fromkeys(sizes, "1"), "sizes": sizes}
    found = recipe(FULL)
    for limit, expected in ((4, 4), (8, 8), (9, None)):
        runs = sweep_of(found, lock_for(found, **group, **known), limit=limit)
        assert {run.limit for run in runs if run.kind == "accuracy"} == {expected}


def test_a_timing_run_asks_no_more_prompts_than_there_are() -> None:
    more = recipe(("prompts = 2", "prompts = 601"))
    with pytest.raises(UnmaskError, match="asks 601 prompts but unmask_arith has 600 rows"):
        planned(more)


def test_a_task_that_was_not_locked_is_refused() -> None:
    lock = lock_for(recipe(), members={"unmask_choice_text": ("unmask_choice_text",)})
    with pytest.raises(UnmaskError, match="unmask_arith is not in the lock; run `unmask prepare`"):
        planned(lock=lock)


# Traces of policies that choose their layers.

AUTO = """
[[configurations]]
name = "auto"
policy = POLICY
"""
CHOOSING = '{ kind = "layer_reuse", layers = "auto", calibration = "trace.npz", share = 0.3 }'
COMBINED = f'{{ kind = "combine", rows = {{ kind = "trim" }}, layers = {CHOOSING} }}'


def auto_run(folder: Path, policy: str = CHOOSING) -> PlannedRun:
    file = folder / "recipe.toml"
    file.write_text(TEXT + AUTO.replace("POLICY", policy), encoding="utf-8")
    found = read_recipe(file)
    return next(run for run in planned(found) if run.configuration == "auto")


@pytest.mark.parametrize("policy", [CHOOSING, COMBINED], ids=["alone", "combined"])
def test_another_trace_under_the_same_name_is_another_run(tmp_path: Path, policy: str) -> None:
    (tmp_path / "trace.npz").write_bytes(b"one")
    first = auto_run(tmp_path, policy)
    assert run_id(auto_run(tmp_path, policy).identity) == run_id(first.identity)
    chosen = first.identity["policy"]
    named = chosen["layers"] if policy is COMBINED else chosen
    assert named["calibration"] == f"sha256:{sha256(b'one').hexdigest()}"
    (tmp_path / "trace.npz").write_bytes(b"two")
    assert run_id(auto_run(tmp_path, policy).identity) != run_id(first.identity)


@pytest.mark.parametrize("policy", [CHOOSING, COMBINED], ids=["alone", "combined"])
def test_the_same_trace_in_another_folder_is_the_same_run(tmp_path: Path, policy: str) -> None:
    ids = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trace.npz").write_bytes(b"one")
        ids.append(run_id(auto_run(tmp_path / name, policy).identity))
    assert ids[0] == ids[1]


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=r"trace.npz cannot be read .*unmask probe"):
        auto_run(tmp_path)
