"""From a recipe and a lock to runs, each with the identity of its result.

An identity holds everything that a result depends on and nothing of where it is computed: every decode and
policy field with its value, defaults included, the checkpoint's and the rows' hashes, the versions of the
task and of lm-eval, and the revision of the engine.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.lock import Lock
from unmask.spec.recipe import ConfigurationSpec, Recipe, TaskSpec, TimingSpec

SCHEMA = 1
ENGINE_REVISION = 3
"""Raised whenever the engine may give other tokens or scores than before."""
GENERATION = {"max_new_tokens": "max_gen_toks", "temperature": "temperature", "top_p": "top_p"}
"""Decode settings that, when they are given, win over what tasks ask for, and lm-eval's names for them."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a sweep."""

    kind: str
    """`accuracy` or `timing`."""
    configuration: str
    """Its name in the recipe; for a timing run, which holds many, that of the run."""
    task: str
    limit: int | None
    identity: dict[str, Any]

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{task_label(self.task, self.limit)} {self.configuration}"


def task_label(task: str, limit: int | None) -> str:
    """A limited run never goes by the name of the full one."""
    return task if limit is None else f"{task}_limit_{limit}"


def sweep_of(
    recipe: Recipe,
    lock: Lock,
    tasks: Iterable[str] = (),
    configurations: Iterable[str] = (),
    limit: int | None = None,
) -> list[PlannedRun]:
    """The runs of a recipe: those of the named tasks and configurations (patterns), or all."""
    patterns, expanded = list(configurations), recipe.expanded()
    _check_mask(recipe, lock)
    names = _chosen([configuration.name for configuration in expanded], patterns, "configuration")
    wanted = _chosen([task.name for task in recipe.tasks], tasks, "task")
    planned: list[PlannedRun] = []
    for task in recipe.tasks:
        if task.name not in wanted:
            continue
        rows = limit if limit is not None else task.limit
        check_limit(task.name, rows, lock)
        for configuration in expanded:
            if configuration.name in names:
                identity = accuracy_identity(recipe, configuration, task, rows, lock)
                planned.append(PlannedRun("accuracy", configuration.name, task.name, rows, identity))
    for timing in recipe.timing:
        if timing.task in wanted and not patterns:
            prompts = min(timing.prompts, limit or timing.prompts)
            identity = timing_identity(recipe, timing, prompts, lock)
            planned.append(PlannedRun("timing", timing.name, timing.task, prompts, identity))
    return planned


def _check_mask(recipe: Recipe, lock: Lock) -> None:
    mask, vocabulary = recipe.model.mask_token_id, lock.shape.get("vocabulary")
    if mask is not None and vocabulary is not None and mask >= vocabulary:
        raise UnmaskError(
            f"model.mask_token_id is {mask}, which is outside the vocabulary of {vocabulary} tokens; correct it."
        )


def accuracy_identity(
    recipe: Recipe, configuration: ConfigurationSpec, task: TaskSpec, limit: int | None, lock: Lock
) -> dict[str, Any]:
    """What identifies the accuracy of one configuration on one task."""
    generation = recipe.decode | configuration.decode
    return {
        **_common(recipe, lock, "accuracy"),
        **_settings(recipe, configuration),
        "task": {
            **_task(recipe, task, lock),
            "limit": limit,
            "generation": generation_arguments(generation),
        },
    }


def timing_identity(recipe: Recipe, timing: TimingSpec, prompts: int, lock: Lock) -> dict[str, Any]:
    """What identifies a timing run."""
    task = next(task for task in recipe.tasks if task.name == timing.task)
    names = _chosen([item.name for item in recipe.expanded()], timing.configurations, "configuration")
    control = timing.control or (recipe.control if recipe.control in names else names[0])
    check_limit(task.name, prompts, lock)
    return {
        **_common(recipe, lock, "timing"),
        "task": {
            **_task(recipe, task, lock),
            "limit": prompts,
            "generation": generation_arguments(recipe.decode),
        },
        "prompts": prompts,
        "repeats": timing.repeats,
        "batch_size": timing.batch_size,
        "control": control,
        "configurations": {
            configuration.name: {
                **_settings(recipe, configuration),
                "generation": generation_arguments(recipe.decode | configuration.decode),
            }
            for configuration in recipe.expanded()
            if configuration.name in {*names, control}
        },
    }


def _common(recipe: Recipe, lock: Lock, kind: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": kind,
        "engine": ENGINE_REVISION,
        "weights": lock.weights,
        "dtype": recipe.model.dtype,
        "mask_token_id": recipe.model.mask_token_id,
    }


def _settings(recipe: Recipe, configuration: ConfigurationSpec) -> dict[str, Any]:
    policy = recipe.policy_of(configuration)
    return {
        "decode": msgspec.to_builtins(recipe.decode_of(configuration)),
        "policy": msgspec.to_builtins(policy),
        **policy.depends_on(),
    }


def _task(recipe: Recipe, task: TaskSpec, lock: Lock) -> dict[str, Any]:
    members = lock.members.get(task.name)
    if members is None:
        raise UnmaskError(f"{task.name} is not in the lock; run `unmask prepare` on the recipe again.")
    return {
        **msgspec.to_builtins(task),
        "chat": recipe.evaluation.chat,
        "system_instruction": recipe.evaluation.system_instruction,
        "version": {name: lock.versions[name] for name in members},
        "rows": {name: lock.sizes[name] for name in members},
        "rows_sha256": {name: lock.tasks[name] for name in members},
        "lm_eval": lock.lm_eval,
    }


def generation_arguments(decode: Mapping[str, Any]) -> dict[str, Any]:
    """The generation arguments of lm-eval that these decode settings stand for."""
    given = {theirs: decode[ours] for ours, theirs in GENERATION.items() if decode.get(ours) is not None}
    if "temperature" in given:
        given["do_sample"] = given["temperature"] > 0
    return given


def check_limit(task: str, limit: int | None, lock: Lock) -> None:
    """Refuse more rows than the task has."""
    members = lock.members.get(task, ())
    if limit is None or not members:
        return
    largest = max(members, key=lock.sizes.__getitem__)
    if not 1 <= limit <= lock.sizes[largest]:
        raise UnmaskError(
            f"The limit of {task} is {limit} but {largest} has {lock.sizes[largest]} rows; give 1 to that many, or "
            "leave it out for all."
        )


def rows_asked(run: PlannedRun, lock: Lock) -> int:
    """Rows that a run asks."""
    sizes = [lock.sizes[name] for name in lock.members[run.task]]
    return sum(size if run.limit is None else min(size, run.limit) for size in sizes)


def _chosen(names: list[str], patterns: Iterable[str], what: str) -> list[str]:
    wanted = list(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnmaskError(f"No {what} is called {pattern}; there are {', '.join(names)}.")
    return [name for name in names if not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)]
