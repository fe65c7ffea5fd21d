"""A small recipe as text, and locks that were never made of any file."""

from dataclasses import asdict
from typing import Any

from unmask.model.hub import parse_published
from unmask.spec.family import FAST_DLLM_V2, LLADA
from unmask.spec.lock import Lock, LockedCheckpoint
from unmask.spec.published import published
from unmask.spec.recipe import Recipe, parse_recipe

TEXT = """\
# What is asked.
name = "tiny"
hypothesis = "Something is faster."

[model]
checkpoint = "embedded"

[decode]
threshold = 0.9

[evaluation]
batch_size = 8

[[tasks]]
name = "unmask_arith"
limit = 4

[[tasks]]
name = "unmask_choice_text"
estimator = "chain"

[[grid]]
name = "k{k}_{layers}"
policy = { kind = "layer_reuse", unit = "output" }
[grid.axes]
k = [1, 2]
layers = ["first", "last"]

[[grid]]
name = "t{threshold}_s{sub_block_size}"
[grid.axes]
"decode.threshold" = [0.5]
"decode.sub_block_size" = [4, 8]

[[configurations]]
name = "loose"
decode = { threshold = 0.7 }

[[configurations]]
name = "trimmed"
policy = { kind = "trim", keep = 0.25 }

[[timing]]
task = "unmask_arith"
prompts = 2
repeats = 3
configurations = ["k1_*", "k2_last"]

[success]
task = "unmask_arith"
control = "k1_first"
candidates = ["k2_*"]
reject = { speedup = 1.0, drop = 0.3 }
confirm = { speedup = 1.2, drop = 0.05 }

[resources]
gpus = 1
minutes = 30
[resources.sbatch]
exclude = "node17"
"""
FILE = "recipes/tiny/recipe.toml"
SHAPES = {
    "embedded": {
        "layers": 12,
        "hidden": 128,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 32,
        "ffn": 320,
        "vocabulary": 400,
    },
    "embedded-canvas": {
        "layers": 12,
        "hidden": 128,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 32,
        "ffn": 320,
        "vocabulary": 400,
    },
    "Efficient-Large-Model/Fast_dLLM_v2_7B": {
        "layers": 28,
        "hidden": 3584,
        "heads": 28,
        "kv_heads": 4,
        "head_dim": 128,
        "ffn": 18944,
        "vocabulary": 152064,
    },
}


def recipe(*changes: tuple[str, str], text: str = TEXT) -> Recipe:
    """The small recipe with parts of its text replaced."""
    return parse_recipe(changed(*changes, text=text), FILE)


def changed(*changes: tuple[str, str], text: str = TEXT) -> str:
    """The text with parts replaced, each of which must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def checkpoint_for(name: str) -> dict[str, Any]:
    """A checkpoint of a lock with invented weights; a published one has the shape that is known of it."""
    known = None if name in SHAPES else published(name)
    config = parse_published(known) if known else None
    canvas = name == "embedded-canvas"
    return {
        "model": name,
        "files": {"config.json": "c" * 64, "model.safetensors": f"weights of {name}"},
        "shape": asdict(config.shape) if config else SHAPES[name],
        "block_size": config.block_size if config else None if canvas else 32,
        "family": config.family.name if config else (LLADA if canvas else FAST_DLLM_V2).name,
    }


def lock_for(recipe: Recipe, **changes: Any) -> Lock:
    """An invented lock that covers a recipe."""
    names = [task.name for task in recipe.tasks]
    invented: dict[str, Any] = {
        **checkpoint_for(recipe.model.checkpoint),
        "files": {"config.json": "c" * 64, "model.safetensors": "d" * 64},
        "others": {
            name: LockedCheckpoint(**checkpoint_for(model.checkpoint))
            for name, model in recipe.models.items()
            if model.name != recipe.model.name
        },
        "members": {name: (name,) for name in names},
        "tasks": {name: f"rows of {name}" for name in names},
        "sizes": dict.fromkeys(names, 600),
        "versions": dict.fromkeys(names, "1.0"),
        "lm_eval": "0.4.13",
    }
    return Lock(**invented | changes)
