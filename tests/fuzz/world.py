"""A small world of good inputs: checkpoint, recipe, store, import, prompts, settings, trace, vectors, own policies.

It is made once; every case gets a copy of the parts that it needs, and spoils something in it.
"""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from values import Edit, as_toml

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]

from cli_cases import RECIPE as MODEL  # noqa: E402
from cli_cases import TEMPLATE, VOCABULARY, write_tokenizer  # noqa: E402
from planted_store import write_store  # noqa: E402

from checkpoints import GOLDEN, OF_FAMILY, small_recipe  # noqa: E402
from recipe_cases import lock_for  # noqa: E402
from unmask.evaluation.catalogue import metric_of  # noqa: E402
from unmask.model.synthetic import write_checkpoint  # noqa: E402
from unmask.spec.lock import as_text  # noqa: E402
from unmask.spec.recipe import read_recipe  # noqa: E402
from unmask.store import Store  # noqa: E402
from unmask.store.foreign import import_tree  # noqa: E402

RECIPE: dict[str, Any] = {
    "name": "planted",
    "hypothesis": "Reuse is faster.",
    "expected": "Nothing.",
    "model": {"checkpoint": "embedded", "dtype": "float32", "mask_token_id": 3},
    "decode": {
        "max_new_tokens": 64,
        "sub_block_size": 8,
        "block_size": 32,
        "cache": "dual",
        "temperature": 0.5,
        "top_p": 0.9,
        "refresh_every": 3,
        "top_k": 50,
        "guidance": 0.0,
        "end_of_text": "last",
        "draws": 2,
        "seed": 1,
        "stop_tokens": [2],
        "stop_strings": ["x"],
    },
    "evaluation": {
        "batch_size": 8,
        "chat": False,
        "system_instruction": "Be short.",
        "allow_code": False,
        "allow_unsafe_code": False,
        "data": "data",
        "device": "cpu",
    },
    "tasks": [
        {"name": "unmask_arith", "limit": 4, "num_fewshot": 0, "metric": "exact_match,strict-match"},
        {"name": "unmask_choice_text", "limit": 4, "estimator": "chain", "order": "confidence"},
    ],
    "grid": [
        {
            "name": "k{k}_{layers}_{threshold:.1f}",
            "policy": {"kind": "layer_reuse", "unit": "output", "on": ["sub", "block"], "warmup": 2},
            "decode": {"seed": 2},
            "model": {"checkpoint": "embedded", "dtype": "float32", "mask_token_id": 3},
            "axes": {"k": [1, 2], "layers": ["first", "last"], "decode.threshold": [0.5]},
        }
    ],
    "configurations": [
        {"name": "t0.7", "decode": {"threshold": 0.7}},
        {
            "name": "other",
            "model": {"checkpoint": "embedded", "dtype": "float32", "mask_token_id": 3},
            "decode": {"seed": 5},
        },
        {"name": "ruled", "decode": {"rule": {"kind": "entropy_bound", "bound": 0.3}}},
        {"name": "trim", "policy": {"kind": "trim", "keep": 0.25, "every": 2, "probe_layer": 1}},
        {"name": "adaptive", "policy": {"kind": "adaptive", "unit": "mlp", "max_drift": 0.1, "cap": 3}},
        {"name": "listed", "policy": {"kind": "layer_reuse", "k": 2, "layers": [1, "3-5"]}},
        {
            "name": "auto",
            "policy": {
                "kind": "layer_reuse",
                "k": 2,
                "layers": "auto",
                "share": 0.5,
                "calibration": "trace.npz",
            },
        },
        {
            "name": "both",
            "policy": {
                "kind": "combine",
                "rows": {"kind": "trim", "keep": 0.5},
                "layers": {"kind": "layer_reuse", "k": 2, "layers": "last"},
            },
        },
        {"name": "mine", "policy": {"kind": "custom", "target": "good_policy:Mine", "options": {"a": 1}}},
    ],
    "timing": [
        {
            "task": "unmask_arith",
            "name": "timing",
            "prompts": 2,
            "repeats": 3,
            "batch_size": 1,
            "control": "t0.7",
            "configurations": ["k*", "t0.7"],
        }
    ],
    "success": {
        "task": "unmask_arith",
        "control": "k1_first_0.5",
        "candidates": ["k2_*", "t0.7"],
        "by": "speed",
        "confirm": {"gain": 1.2, "drop": 0.05},
        "reject": {"speedup": 1.0, "drop": 0.3},
    },
    "until_decided": {"rows": 2, "seed": 0},
    "resources": {
        "gpus": 1,
        "gpu_type": "a100",
        "cpus": 2,
        "memory_gb": 8,
        "minutes": 30,
        "parallel": 2,
        "partition": "gpu",
        "account": "mine",
        "qos": "long",
        "exclude": "node17",
        "requeue": True,
        "setup": ["module load cuda"],
        "sbatch": {"nice": 100, "comment": "x"},
    },
}
"""Every field of a recipe, of decode settings and of the policies at least once."""
POLICY = """\
from unmask.engine.step_plan import StepPlan


class Mine:
    def __init__(self, **options):
        self.options = options

    def plan(self, view):
        return StepPlan()
"""
SUMMARY: dict[str, Any] = {
    "task": "gsm8k",
    "config": "k1",
    "timestamp": "20260101_000000",
    "accuracy": 0.75,
    "results": {"gsm8k": {"exact_match,strict-match": 0.75, "exact_match_stderr,strict-match": 0.1}},
    "group_results": {"gsm8k": {"exact_match,strict-match": 0.75}},
    "throughput": {"tokens_generated": 1000, "total_time_s": 20.0, "tokens_per_s": 50.0},
    "gpu_info": {"gpu_available": True, "gpu_name": "a GPU"},
    "git": {"commit": "c0ffee", "branch": "main", "dirty": True},
    "environment": {"python_version": "3.12.3", "hostname": "node1"},
    "model_args": {"model_path": "a/model", "reuse_k": 1, "layer_subset": "first"},
    "eval_params": {"num_fewshot": 0, "batch_size": "1", "limit": None},
}
PARTS = ("model", "families", "recipe", "results", "imported", "vectors", "small")


@dataclass(frozen=True)
class Case:
    """A command, what is done to the world before it, and the parts of the world that it needs."""

    argv: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    parts: tuple[str, ...] = PARTS

    def __str__(self) -> str:
        words = " ".join(repr(word if len(word) < 200 else f"{word[:200]}...") for word in self.argv)
        return "; ".join([f"unmask {words}", *map(str, self.edits)])


def build(world: Path) -> None:
    """Write the good inputs."""
    (world / "small").mkdir(parents=True)
    write_checkpoint(MODEL, world / "model")
    write_tokenizer(world / "model")
    (world / "model" / "chat_template.jinja").write_text(TEMPLATE)
    (world / "model" / "generation_config.json").write_text(json.dumps({"eos_token_id": [256]}))
    _write_small(world / "small")
    write_good_recipe(world / "recipe")
    _write_families(world / "families")
    write_store(Store(world / "results"), world / "recipe")
    for configuration in ("k1", "k2"):
        place = world / "imported" / "gsm8k" / configuration
        place.mkdir(parents=True)
        (place / "summary.json").write_text(json.dumps({**SUMMARY, "config": configuration}))
    import_tree(world / "imported", Store(world / "results"), "seed", metric_of)
    (world / "vectors").mkdir()
    shutil.copy(GOLDEN / "single_len20.json", world / "vectors")


def _write_families(folder: Path) -> None:
    """A checkpoint of every other family."""
    for family, changes in OF_FAMILY.items():
        if family == "fast_dllm_v2":
            continue
        ids = {"vocab_size": VOCABULARY, "mask_token_id": VOCABULARY - 1, "eos_token_id": VOCABULARY - 2}
        if "embedding_size" in changes:
            ids["embedding_size"] = VOCABULARY
        changes = {**changes, **ids} | (
            {} if changes.get("mask_token_id", 0) is not None else {"mask_token_id": None}
        )
        write_checkpoint(small_recipe(**changes), folder / family)
        write_tokenizer(folder / family)


def _write_small(folder: Path) -> None:
    lines = [{"prompt": "2+2="}, {"id": "b", "prompt": [1, 2, 3], "max_new_tokens": 4, "seed": 2}]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "policy.toml").write_bytes(as_toml({"kind": "trim", "keep": 0.25, "probe_layer": 1}))
    (folder / "policy.json").write_text(json.dumps({"kind": "layer_reuse", "k": 2, "layers": [1]}))
    (folder / "decode.toml").write_bytes(as_toml({"max_new_tokens": 8, "threshold": 0.9}))
    (folder / "decode.json").write_text(
        json.dumps({"max_new_tokens": 8, "threshold": 0.9, "stop_strings": ["x"]})
    )
    write_trace(folder / "trace.npz", layers=2)


def write_trace(file: Path, layers: int) -> None:
    """A trace as `unmask probe` writes it, as far as it is read."""
    steps, offsets = 4, 32
    errors = np.linspace(0, 1, steps * layers * offsets, dtype=np.float32).reshape(steps, layers, offsets)
    np.savez_compressed(
        file,
        unmasked=np.array([8, 8, 8, 8]),
        leftmost=np.array([True, True, False, True]),
        **{f"error_{unit}": errors for unit in ("output", "residual", "attention", "mlp")},
    )


def write_good_recipe(folder: Path) -> None:
    """The recipe with its lock, and what it names."""
    folder.mkdir()
    (folder / "recipe.toml").write_bytes(as_toml(RECIPE))
    write_trace(folder / "trace.npz", layers=12)
    (folder / "good_policy.py").write_text(POLICY)
    (folder / "recipe.lock").write_text(as_text(lock_for(read_recipe(folder))))


def copy_parts(parts: tuple[str, ...], world: Path, folder: Path) -> None:
    """A copy of some parts of the world."""
    for name in parts:
        shutil.copytree(world / name, folder / name, copy_function=os.link)
    (folder / "out").mkdir()


def spoil(case: Case, folder: Path) -> None:
    """Make the edits of a case in its copy."""
    for edit in case.edits:
        _apply(edit, folder / edit.path)


def mend(case: Case, world: Path, folder: Path) -> bool:
    """Take the edits back; False where the world has no such file."""
    for edit in case.edits:
        if not (world / edit.path).is_file():
            return False
        _clear(folder / edit.path)
        os.link(world / edit.path, folder / edit.path)
    return True


def _apply(edit: Edit, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    _clear(file)
    links = {
        "device": "/dev/zero",
        "random": "/dev/urandom",
        "outside": "../../outside/secret.json",
        "loop": file.name,
    }
    if edit.how in links:
        file.symlink_to(links[edit.how])
    elif edit.how == "pipe":
        os.mkfifo(file)
    elif edit.how == "folder":
        file.mkdir()
    elif edit.how == "sparse":
        with file.open("wb") as stream:
            stream.truncate(1 << 40)
    elif edit.how != "missing":
        file.write_bytes(edit.content)


def _clear(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)


def files_of(world: Path, part: str) -> dict[str, bytes]:
    """Every file of a part, by its path in the world."""
    return {
        file.relative_to(world).as_posix(): file.read_bytes()
        for file in sorted([world / part, *(world / part).rglob("*")])
        if file.is_file()
    }
