"""Recipes: what a good one expands to, and one sentence for everything that cannot be meant.

A sentence names the file, the key, and what is allowed there.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe_cases import FILE, TEXT, recipe
from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec, FullSpec, LayerReuseSpec, TrimSpec
from unmask.spec.recipe import parse_recipe, read_recipe, recipe_file
from unmask.spec.rule import FactorSpec, ThresholdSpec, TopNSpec

DOCUMENT = Path(__file__).parents[2] / "docs" / "experiments.md"


def refused(*changes: tuple[str, str]) -> str:
    """The sentence for a recipe with parts of its text replaced."""
    with pytest.raises(UnmaskError) as caught:
        recipe(*changes)
    sentence = str(caught.value)
    assert sentence.startswith(FILE)
    assert sentence.endswith(".")
    assert not sentence.endswith("..")
    assert "\n" not in sentence
    return sentence


# What is refused, by its kind: the change, what the sentence must hold, and the table that the key stands in.

UNKNOWN = {
    "top": (("hypothesis =", "hypotesis ="), "`hypotesis`", ""),
    "table": (("[success]", "[succes]"), "`succes`", ""),
    "model": (('checkpoint = "embedded"', 'chekpoint = "embedded"'), "`chekpoint`", "$.model"),
    "evaluation": (("batch_size = 8", "batchsize = 8"), "`batchsize`", "$.evaluation"),
    "first task": (("limit = 4", "limits = 4"), "`limits`", "$.tasks[0]"),
    "second task": (('estimator = "chain"', 'estimater = "chain"'), "`estimater`", "$.tasks[1]"),
    "timing": (("prompts = 2", "prompt = 2"), "`prompt`", "$.timing[0]"),
    "grid": (('[[grid]]\nname = "t', '[[grid]]\nnames = 1\nname = "t'), "`names`", "$.grid[1]"),
    "bounds": (
        ("confirm = { speedup = 1.2, drop", "confirm = { speedup = 1.2, dropp"),
        "`dropp`",
        "$.success.confirm",
    ),
    "resources": (("gpus = 1", "gpu = 1"), "`gpu`", "$.resources"),
    "decode": (("threshold = 0.9", "treshold = 0.9"), "`treshold`", "decode: "),
    "decode of a configuration": (
        ("{ threshold = 0.7 }", "{ treshold = 0.7 }"),
        "`treshold`",
        "configuration loose, decode: ",
    ),
    "decode axis": (
        ("[4, 8]", '[4, 8]\n"decode.treshold" = [1]'),
        "`treshold`",
        "configuration t0.5_s4, decode: ",
    ),
    "policy of a grid": (('unit = "output"', 'unt = "output"'), "`unt`", "configuration k1_first, policy: "),
    "policy of a configuration": (
        ("keep = 0.25", "kept = 0.25"),
        "`kept`",
        "configuration trimmed, policy: ",
    ),
    "policy axis": (("k = [1, 2]", "k = [1, 2]\nwarm = [1]"), "`warm`", "configuration k1_first, policy: "),
}
ALLOWED = {
    "top": "Allowed fields: name, hypothesis, model, tasks,",
    "table": "Allowed fields: name, hypothesis, model, tasks,",
    "model": "Allowed fields: checkpoint, revision, dtype, mask_token_id.",
    "first task": "Allowed fields: name, limit, num_fewshot, estimator, order, metric.",
    "bounds": "Allowed fields: gain, speedup, drop.",
    "resources": "Allowed fields: gpus, gpu_type, cpus,",
    "decode": "Allowed fields: max_new_tokens, threshold,",
    "policy of a grid": "Allowed fields: k, layers, size, unit, on, warmup, calibration, share.",
    "policy of a configuration": "Allowed fields: keep, every, probe_layer, inside.",
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_field_is_named_with_its_table_and_the_allowed_ones(case: str) -> None:
    change, named, table = UNKNOWN[case]
    sentence = refused(change)
    assert named in sentence
    assert table in sentence
    assert ALLOWED.get(case, "Allowed fields: ") in sentence


TYPES = {
    "limit": (("limit = 4", 'limit = "4"'), "Expected `int | null`, got `str`", "$.tasks[0].limit"),
    "batch": (
        ("batch_size = 8", "batch_size = 8.5"),
        "Expected `int`, got `float`",
        "$.evaluation.batch_size",
    ),
    "candidates": (('["k2_*"]', '"k2_*"'), "Expected `array`, got `str`", "$.success.candidates"),
    "sbatch": (('[resources.sbatch]\nexclude = "node17"', "sbatch = 1"), "got `int`", "$.resources.sbatch"),
    "a table for a list": (("[[timing]]", "[timing]"), "Expected `array`, got `object`", "$.timing"),
    "an axis": (("k = [1, 2]", "k = 2"), "Expected `array`, got `int`", "$.grid[0].axes"),
    "decode": (("threshold = 0.7", 'threshold = "low"'), "Expected `float | null`, got `str`", "$.threshold"),
    "rule": (("threshold = 0.7", 'rule = { kind = "topn" }'), "Kinds: custom, entropy_bound", "$.rule"),
    "rule field": (
        ("threshold = 0.7", 'rule = { kind = "factor", n = 1 }'),
        "Allowed fields: factor",
        "decode: ",
    ),
    "policy": (("keep = 0.25", 'keep = "some"'), "Expected `float`, got `str`", "$.keep"),
}


@pytest.mark.parametrize("case", TYPES)
def test_a_value_of_another_type_names_its_key(case: str) -> None:
    change, expected, key = TYPES[case]
    sentence = refused(change)
    assert expected in sentence
    assert key in sentence


RANGES = {
    "limit": (("limit = 4", "limit = 0"), "Expected `int` >= 1", "$.tasks[0].limit"),
    "gpus": (("gpus = 1", "gpus = -1"), "Expected `int` >= 0", "$.resources.gpus"),
    "drop": (("1.2, drop = 0.05", "1.2, drop = 5"), "Expected `float` <= 1.0", "$.success.confirm.drop"),
    "speedup": (("speedup = 1.2", "speedup = 0"), "Expected `float` > 0.0", "$.success.confirm.speedup"),
    "threshold": (("threshold = 0.9", "threshold = 1.9"), "must lie in (0, 1]", "decode: threshold"),
    "own threshold": (
        ("threshold = 0.7", "threshold = 7"),
        "must lie in (0, 1]",
        "configuration loose, decode: threshold",
    ),
    "k": (("k = [1, 2]", "k = [1, 0]"), "k is 0; it must be at least 1", "configuration k0_first, policy: k"),
    "keep": (
        ("keep = 0.25", "keep = 2"),
        "keep is 2.0; it must lie in [0, 1]",
        "configuration trimmed, policy: keep",
    ),
}


@pytest.mark.parametrize("case", RANGES)
def test_a_value_out_of_range_names_its_key_and_says_what_is_allowed(case: str) -> None:
    change, allowed, key = RANGES[case]
    sentence = refused(change)
    assert allowed in sentence
    assert key in sentence


WORDS = {
    "estimator": (('"chain"', '"magic"'), "Allowed: chain, canvas, first_token, onepass, monte_carlo."),
    "dtype": (('"embedded"', '"embedded"\ndtype = "int8"'), "Allowed: float32, float16, bfloat16."),
    "unit": (('unit = "output"', 'unit = "layer"'), "Allowed: output, residual, attention, mlp."),
    "steps": (('unit = "output"', 'on = ["all"]'), "Allowed: sub, block, tail."),
    "kind": (('"layer_reuse"', '"layer_skip"'), "Kinds: adaptive, combine, custom, full, layer_reuse, trim."),
    "gained": (
        ('candidates = ["k2_*"]', 'candidates = ["k2_*"]\nby = "time"'),
        "Allowed: speed, work, tokens_a_forward, predicted:rtx6000, predicted:a100, predicted:l40s, predicted:h100.",
    ),
    "no kind": (('kind = "layer_reuse", ', ""), "Kinds: adaptive, combine,"),
    "layers": (('["first", "last"]', '["first", "lost"]'), "use first, middle, last, auto or a list"),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_word_that_does_not_exist_is_answered_with_those_that_do(case: str) -> None:
    change, allowed = WORDS[case]
    assert allowed in refused(change)


def test_errors_of_a_configuration_name_it() -> None:
    assert "configuration loose, decode: threshold is 7" in refused(("threshold = 0.7", "threshold = 7"))
    assert "configuration k0_first, policy: k is 0" in refused(("k = [1, 2]", "k = [0]"))


NAMES = {
    "twice in a grid": (("k{k}_{layers}", "k{k}"), "2 configurations are called k1"),
    "twice in all": (('"loose"', '"k2_last"'), "2 configurations are called k2_last"),
    "tasks": (('"unmask_choice_text"', '"unmask_arith"'), "2 tasks are called unmask_arith"),
    "timings": (
        ("[success]", '[[timing]]\ntask = "unmask_arith"\n[success]'),
        "2 timing runs are called timing of unmask_arith; give each a name",
    ),
    "a folder": (('"loose"', '"../loose"'), "A configuration's name is '../loose'"),
    "spaces": (('name = "tiny"', 'name = "my recipe"'), "name is 'my recipe'; use letters, digits"),
    "a plus": (('name = "tiny"', 'name = "tiny+small"'), "name is 'tiny+small'; use letters, digits"),
    "nothing": (('name = "tiny"', 'name = ""'), "name is ''"),
    "a grid's": (("k{k}_{layers}", "{k}/{layers}"), "A configuration's name is '1/first'"),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_are_different_and_can_name_files(case: str) -> None:
    change, words = NAMES[case]
    assert words in refused(change)


@pytest.mark.parametrize(
    "template", ["k{k}_{layer}", "k{", "k{}", "k{k.real}_{layers.x}", "k{k[0]}", "{k!z}"]
)
def test_a_bad_template_is_refused_with_what_it_may_use(template: str) -> None:
    sentence = refused(("k{k}_{layers}", template))
    assert f"The grid's name {template!r} cannot be filled in" in sentence
    assert "it may use k, layers" in sentence


@pytest.mark.parametrize("axes", ["k = []\nlayers = ['first']", ""])
def test_an_axis_without_values_is_refused(axes: str) -> None:
    assert "has no axes, or an empty one" in refused(('k = [1, 2]\nlayers = ["first", "last"]', axes))


EMPTY = {
    "no tasks": (TEXT.index("[[tasks]]"), TEXT.index("[[grid]]"), "", "missing required field `tasks`"),
    "tasks": (0, TEXT.index("[[grid]]"), 'name = "x"\nhypothesis = "x"\ntasks = []\n', "tasks is empty"),
    "points": (TEXT.index("[[grid]]"), TEXT.index("[resources]"), "", "There is no configuration"),
}


@pytest.mark.parametrize("case", EMPTY)
def test_a_recipe_without_tasks_or_configurations_is_refused(case: str) -> None:
    start, end, instead, words = EMPTY[case]
    text = TEXT[:start] + instead + TEXT[end:]
    if case == "tasks":
        text = text.replace("[[grid]]", '[model]\ncheckpoint = "embedded"\n[[grid]]', 1)
    with pytest.raises(UnmaskError, match=re.escape(words)):
        parse_recipe(text, FILE)


REFERENCES = {
    "timing's task": ((']]\ntask = "unmask_arith"', ']]\ntask = "gsm8k"'), "timing[0].task is 'gsm8k'"),
    "timing's control": (("repeats = 3", 'control = "k9"'), "timing[0].control is 'k9'"),
    "timing's patterns": (('"k2_last"]', '"k3_*"]'), "timing[0].configurations is 'k3_*', which fits none"),
    "criterion's task": (
        (']\ntask = "unmask_arith"\ncon', ']\ntask = "mmlu"\ncon'),
        "success.task is 'mmlu'",
    ),
    "criterion's control": (('control = "k1_first"', 'control = "k1"'), "success.control is 'k1'"),
    "candidates": (('["k2_*"]', '["k2_*", "k3_*"]'), "success.candidates is 'k3_*', which fits none"),
    "no candidates": (('["k2_*"]', "[]"), "success.candidates is empty"),
}


@pytest.mark.parametrize("case", REFERENCES)
def test_references_lead_somewhere(case: str) -> None:
    change, words = REFERENCES[case]
    sentence = refused(change)
    assert words in sentence
    if "empty" not in words:
        assert (
            ": k1_first, k1_last, k2_first," in sentence or ": unmask_arith, unmask_choice_text." in sentence
        )


CRITERIA = {
    "both names": (
        [("confirm = { speedup = 1.2", "confirm = { gain = 1.2, speedup = 1.2")],
        "success.confirm has both gain and speedup, which are the same; leave out speedup.",
    ),
    "no gain": (
        [("reject = { speedup = 1.0, ", "reject = { ")],
        "success.reject does not say what is to be gained; give it gain, as in gain = 1.2.",
    ),
    "a speed-up of work": (
        [('candidates = ["k2_*"]', 'candidates = ["k2_*"]\nby = "work"')],
        'success.confirm.speedup is about speed, but success.by is "work"; call it gain, as in gain = 1.2.',
    ),
    "both confirmed and rejected": (
        [("reject = { speedup = 1.0", "reject = { gain = 1.5")],
        "success.reject.gain (1.5) is above success.confirm.speedup (1.2), so one candidate could be confirmed and",
    ),
    "endless": (
        [("confirm = { speedup = 1.2", "confirm = { gain = inf")],
        "success.confirm.gain is not finite; name a gain that a run can reach.",
    ),
}


@pytest.mark.parametrize("case", CRITERIA)
def test_criteria_that_say_two_things_or_nothing_are_refused(case: str) -> None:
    changes, words = CRITERIA[case]
    assert words in refused(*changes)


def test_text_that_is_no_toml_names_the_line() -> None:
    sentence = refused(("gpus = 1", "gpus = "))
    line = TEXT[: TEXT.index("gpus = 1")].count("\n") + 1
    assert sentence == f"{FILE} is no valid TOML: Invalid value (at line {line}, column 8)."
    assert "is no valid TOML" in refused(("gpus = 1", "gpus = 1\ngpus = 2"))


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="no such recipe; make one with `unmask new NAME`"):
        read_recipe(tmp_path)
    (tmp_path / "recipe.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(UnmaskError, match=r"recipe\.toml is no UTF-8 text"):
        read_recipe(tmp_path)


def test_a_recipe_is_found_by_its_folder_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(TEXT)
    assert recipe_file(tmp_path) == tmp_path / "recipe.toml"
    assert read_recipe(tmp_path) == read_recipe(tmp_path / "recipe.toml") == recipe()


# What is accepted.


def test_grids_are_multiplied_out_in_their_order_and_single_ones_follow() -> None:
    names = [configuration.name for configuration in recipe().expanded()]
    grids = ["k1_first", "k1_last", "k2_first", "k2_last", "t0.5_s4", "t0.5_s8"]
    assert names == [*grids, "loose", "trimmed"]


def test_axes_reach_the_policy_and_the_decode_settings() -> None:
    found = recipe()
    points = {configuration.name: configuration for configuration in found.expanded()}
    assert found.policy_of(points["k2_last"]) == LayerReuseSpec(k=2, layers="last", unit="output")
    assert found.decode_of(points["k2_last"]) == DecodeSpec(threshold=0.9)
    assert found.policy_of(points["t0.5_s4"]) == FullSpec()
    assert found.decode_of(points["t0.5_s4"]) == DecodeSpec(threshold=0.5, sub_block_size=4)
    assert found.decode_of(points["loose"]) == DecodeSpec(threshold=0.7)
    assert found.policy_of(points["trimmed"]) == TrimSpec(keep=0.25)


def test_rules_are_an_axis_and_replace_the_threshold() -> None:
    rules = (
        '{ kind = "top_n", steps = 4, score = "entropy" }, { kind = "threshold", threshold = 0.5, steps = 2 }'
    )
    axes = ('"decode.threshold" = [0.5]', f'"decode.rule" = [{rules}]')
    found = recipe(axes, ("t{threshold}_s{sub_block_size}", "{rule}_s{sub_block_size}"))
    points = {configuration.name: configuration for configuration in found.expanded()}
    decode = found.decode_of(points["top_n_4_entropy_s8"])
    assert decode == DecodeSpec(rule=TopNSpec(steps=4, score="entropy"), sub_block_size=8)
    decode = found.decode_of(points["threshold_0.5_2_s4"])
    assert decode == DecodeSpec(rule=ThresholdSpec(threshold=0.5, steps=2), sub_block_size=4)


def test_a_rule_may_stand_beside_the_recipes_threshold() -> None:
    found = recipe(("decode = { threshold = 0.7 }", 'decode = { rule = { kind = "factor" } }'))
    (loose,) = (each for each in found.expanded() if each.name == "loose")
    assert found.decode_of(loose) == DecodeSpec(rule=FactorSpec())


def test_a_grids_own_settings_stand_under_its_axes() -> None:
    changes = [('kind = "layer_reuse", unit = "output" }', 'kind = "layer_reuse", k = 9, size = 5 }')]
    found = recipe(*changes, ('"k2_last"]', '"k2_*"]'))
    for point in found.expanded()[:4]:
        policy = found.policy_of(point)
        assert isinstance(policy, LayerReuseSpec)
        assert (policy.k, policy.size) == (int(point.name[1]), 5)


def test_a_gain_has_one_meaning_under_both_names() -> None:
    older = recipe().success
    newer = recipe(
        ("confirm = { speedup", "confirm = { gain"), ("reject = { speedup", "reject = { gain")
    ).success
    assert older is not None
    assert newer is not None
    assert older.by == newer.by == "speed"
    assert older.confirm.least_gain == newer.confirm.least_gain == 1.2
    counted = recipe(
        ("confirm = { speedup", "confirm = { gain"),
        ("reject = { speedup = 1.0", 'by = "tokens_a_forward"\nreject = { gain = 1.1'),
    ).success
    assert counted is not None
    assert (counted.by, counted.reject and counted.reject.least_gain) == ("tokens_a_forward", 1.1)


def test_the_control_is_that_of_the_criteria_or_the_first() -> None:
    assert recipe(('control = "k1_first"', 'control = "loose"')).control == "loose"
    start, end = TEXT.index("[success]"), TEXT.index("[resources]")
    assert parse_recipe(TEXT[:start] + TEXT[end:], FILE).control == "k1_first"


@given(
    ks=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3, unique=True),
    thresholds=st.lists(st.sampled_from([0.5, 0.7, 0.9, 1.0]), min_size=1, max_size=3, unique=True),
)
def test_a_grid_has_every_combination_once(ks: list[int], sizes: list[int], thresholds: list[float]) -> None:
    axes = f'k = {ks}\nsize = {sizes}\n"decode.threshold" = {thresholds}'
    text = f"""
name = "x"
hypothesis = "x"
model = {{ checkpoint = "embedded" }}
tasks = [{{ name = "unmask_arith" }}]
[[grid]]
name = "k{{k}}_{{size}}_t{{threshold}}"
policy = {{ kind = "layer_reuse" }}
[grid.axes]
{axes}
"""
    found = parse_recipe(text, FILE)
    seen = set()
    for point in found.expanded():
        policy = found.policy_of(point)
        assert isinstance(policy, LayerReuseSpec)
        seen.add((policy.k, policy.size, found.decode_of(point).threshold))
    assert seen == {(k, size, threshold) for k in ks for size in sizes for threshold in thresholds}
    assert len(found.expanded()) == len(ks) * len(sizes) * len(thresholds)


def test_the_recipe_of_the_documentation_is_one() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert parse_recipe(text, str(DOCUMENT)).name == "00_baseline_embedded"
