"""A recipe may come from anybody: its numbers, names and sizes have bounds, and what is no recipe is one sentence."""

import json
from pathlib import Path

import pytest

from recipe_cases import FILE, TEXT, lock_for, recipe
from unmask.errors import UnmaskError
from unmask.reading import MOST_TEXT
from unmask.spec.lock import as_text, read_lock
from unmask.spec.recipe import MOST_RUNS, parse_recipe, read_recipe


def refused(*changes: tuple[str, str]) -> str:
    with pytest.raises(UnmaskError) as caught:
        recipe(*changes)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 600
    assert sentence.endswith(".")
    return sentence


LONG = "x" * 101
BOUNDS = {
    "text as a number": (("threshold = 0.9", 'threshold = "0.9"'), "Expected `float | null`, got `str`"),
    "text as a period": (("k = [1, 2]", 'k = ["1", "2"]'), "Expected `int`, got `str`"),
    "tokens": (
        ("threshold = 0.9", f"max_new_tokens = 1{'0' * 15}"),
        "max_new_tokens is 1000000000000000; it",
    ),
    "many tokens": (
        ("threshold = 0.9", f"max_new_tokens = 1{'0' * 30}"),
        "must be a number of at most 1000000",
    ),
    "a block": (("threshold = 0.9", "block_size = 1000000000"), "at most 4096"),
    "a period": (("k = [1, 2]", "k = [1, 1000000000]"), "k is 1000000000; it must be a number of at most"),
    "a mask": (('"embedded"', '"embedded"\nmask_token_id = 10000000000'), "Expected `int` <= 2147483647"),
    "a device": (("batch_size = 8", 'device = "tpu"'), "evaluation.device is 'tpu'; use cpu, cuda"),
    "a revision": (('"embedded"', '"embedded"\nrevision = "main"'), "`embedded` is none; leave it out"),
    "minutes": (("minutes = 30", "minutes = 1000000000000"), "Expected `int` <= 525600"),
    "only the control": (('["k2_*"]', '["k1_first"]'), "names nothing but the control, k1_first"),
    "a long name": (('name = "tiny"', f'name = "{LONG}"'), "at most 100 of them"),
    "a configuration's name": (('name = "loose"', f'name = "{LONG}"'), "at most 100 of them"),
    "a task's name": (('name = "unmask_choice_text"', f'name = "{LONG}"'), "at most 100 of them"),
    "a width": (("k{k}_{layers}", "k{k:>2000000000}_{layers}"), "cannot be filled in ({k:>2000000000})"),
    "digits": (("k{k}_{layers}", "k{k:.999999999f}_{layers}"), "cannot be filled in"),
    "an attribute": (("k{k}_{layers}", "k{k.__class__}_{layers}"), "cannot be filled in"),
    "a grid": (
        ("k = [1, 2]", f"k = {list(range(1, 1001))}\nwarmup = {list(range(1, 1001))}"),
        "stands for 4000008 runs (2000004 configurations on 2 tasks); 10000 are the most",
    ),
    "a partition": (("gpus = 1", 'partition = "gpu; rm -rf /"'), "resources.partition is 'gpu; rm -rf /'"),
    "a partition's line": (("gpus = 1", 'partition = "gpu\\n#SBATCH --wrap=ls"'), "must be one word"),
    "a GPU": (("gpus = 1", 'gpu_type = "a b"'), "resources.gpu_type is 'a b'; it must be one word"),
    "an option": (('exclude = "node17"', '"a b" = 1'), "has 'a b', which is no option of sbatch"),
    "an option's line": (('exclude = "node17"', 'comment = "a\\n#SBATCH --uid=0"'), "it must be one line"),
    "a list of nodes": (('exclude = "node17"', 'exclude = ["a"]'), "`exclude` is ['a']; it must be one line"),
    "a setup of two lines": (("gpus = 1", 'setup = ["a\\nb"]'), "each of its entries is one line"),
    "a target": (
        ('{ kind = "trim", keep = 0.25 }', '{ kind = "custom", target = "..:x" }'),
        "target is '..:x'; write package.module:Class",
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_nonsense_is_refused(case: str) -> None:
    change, expected = BOUNDS[case]
    assert expected in refused(change)


def test_widths_and_digits_of_a_name_may_be_small() -> None:
    names = [single.name for single in recipe(("k{k}_{layers}", "k{k:02d}_{layers}"), ("k1_*", "k01_*"),
             ("k2_last", "k02_last"), ("k1_first", "k01_first"), ("k2_*", "k02_*")).expanded()]  # fmt: skip
    assert names[:4] == ["k01_first", "k01_last", "k02_first", "k02_last"]


def test_the_largest_sweep_is_allowed() -> None:
    periods = f"k = {list(range(1, MOST_RUNS // 4 - 1))}"
    assert len(recipe(("k = [1, 2]", periods)).expanded()) == MOST_RUNS // 2


def test_deep_nesting_is_refused() -> None:
    for text in ("x = " + "[" * 3000 + "]" * 3000, "a" + ".a" * 100_000 + " = 1"):
        with pytest.raises(UnmaskError, match="no valid TOML: it is nested too deeply"):
            parse_recipe(text, FILE)


def test_a_number_of_many_digits_is_refused() -> None:
    with pytest.raises(UnmaskError, match=r"is no valid TOML: .*digits"):
        parse_recipe("x = " + "9" * 5000, FILE)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(TEXT, encoding="utf-8-sig")
    assert read_recipe(tmp_path) == parse_recipe(TEXT, FILE, tmp_path)


def test_a_large_recipe_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    with file.open("wb") as stream:
        stream.truncate(MOST_TEXT + 1)
    with pytest.raises(UnmaskError, match="it is larger than 1 MiB"):
        read_recipe(file)


def test_a_trace_that_never_ends_is_refused() -> None:
    layers = '{ kind = "layer_reuse", layers = "auto", share = 0.5, calibration = "/dev/zero" }'
    endless = recipe(('{ kind = "trim", keep = 0.25 }', layers))
    single = next(single for single in endless.expanded() if single.name == "trimmed")
    with pytest.raises(UnmaskError, match=r"/dev/zero cannot be read \(it is a pipe or a device"):
        endless.policy_of(single).with_named_traces()


LOCKS = {
    "no rows": ({"tasks": {}}, "does not say all of unmask_arith"),
    "no sizes": ({"sizes": {}}, "does not say all of unmask_arith"),
    "no members": ({"members": {"unmask_arith": ()}}, "does not say all of unmask_arith"),
    "a path": (
        {"files": {"../../secret": "c" * 64}},
        "'../../secret', which is no file in a checkpoint's folder",
    ),
    "layers": ({"shape": {"layers": 10**9}}, "The lock's layers is 1000000000"),
    "a block": ({"block_size": -1}, "The lock's block_size is -1"),
}


@pytest.mark.parametrize("case", LOCKS)
def test_a_lock_whose_parts_do_not_fit_is_refused(case: str, tmp_path: Path) -> None:
    change, expected = LOCKS[case]
    good = lock_for(recipe())
    text = as_text(good)
    file = tmp_path / "recipe.lock"
    file.write_text(text)
    assert read_lock(file) == good
    file.write_text(json.dumps(json.loads(text) | change))
    with pytest.raises(UnmaskError) as caught:
        read_lock(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert expected in str(caught.value)
