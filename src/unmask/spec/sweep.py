"""From a recipe and a lock to runs, each with the identity of its result.

An identity holds everything that a result depends on and nothing of where it is computed: every decode and
policy field with its value, defaults included, the checkpoint's and the rows' hashes, the versions of the
task and of lm-eval, and the revision of the engine. A setting that is added in a later version is named in `later` of
its spec and stays out of an identity while it is at its default, so that runs keep their ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from unmask.errors import UnmaskError
from unmask.spec.conduct import TimingSpec
from unmask.spec.family import FAMILIES
from unmask.spec.lock import Lock
from unmask.spec.recipe import ConfigurationSpec, ModelSpec, Recipe, TaskSpec

SCHEMA = 2
"""Of identities; 1 is that of version 0.1."""
ENGINE_REVISION = 6
"""Raised whenever the engine may give other tokens or scores than before."""
GENERATION = {"max_new_tokens": "max_gen_toks", "temperature": "temperature", "top_p": "top_p"}
"""Decode settings that, when they are given, win over what tasks ask for, and lm-eval's names for them."""
PARTS = {"schema": "form of identities", "engine": "engine revision"}
"""What people call parts of an identity whose names say too little."""
TWIN_ROWS = 20
"""Rows that a twin answers."""
LONGEST_VALUE = 24
"""Characters of a value that is named in a difference; of hashes and lists only the name is."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a sweep."""

    kind: str
    """`accuracy`, `timing`, or `twin`: the first rows of a configuration that another one's run stands for."""
    configuration: str
    """Its name in the recipe; for a timing run, which holds many, that of the run."""
    task: str
    limit: int | None
    identity: dict[str, Any]
    model: str | None = None
    """The name of its checkpoint, where its configuration has another than the recipe's own."""

    @property
    def label(self) -> str:
        """What people call it."""
        twin = " (twin)" if self.kind == "twin" else ""
        return f"{task_label(self.task, self.limit)} {self.configuration}{twin}"

    def twin(self, seed: int) -> "PlannedRun":
        """The same with its first rows only, in the order that belongs to a seed."""
        beginning = {"rows": TWIN_ROWS, "seed": seed}
        return replace(self, kind="twin", identity={**self.identity, "first_rows": beginning})


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
    for each in expanded:
        _check_mask(recipe.model_of(each), locked_for(recipe, each, lock))
    models = recipe.own_models()
    names = _chosen([configuration.name for configuration in expanded], patterns, "configuration")
    wanted = _chosen([task.name for task in recipe.tasks], tasks, "task")
    planned: list[PlannedRun] = []
    for task in recipe.tasks:
        if task.name not in wanted:
            continue
        FAMILIES[lock.family].check_estimator(task.estimator)
        rows = _limit_in_force(task.name, limit if limit is not None else task.limit, lock)
        for configuration in expanded:
            if configuration.name in names:
                identity = identity_of(recipe, lock, task, rows, [configuration])
                model = models.get(configuration.name)
                planned.append(PlannedRun("accuracy", configuration.name, task.name, rows, identity, model))
    for timing in recipe.timing:
        if timing.task in wanted and not patterns:
            prompts = min(timing.prompts, limit or timing.prompts)
            task = next(task for task in recipe.tasks if task.name == timing.task)
            _check_prompts(task.name, prompts, lock)
            identity = identity_of(recipe, lock, task, prompts, _timed(recipe, timing), timing)
            planned.append(PlannedRun("timing", timing.name, timing.task, prompts, identity))
    return planned


def locked_for(recipe: Recipe, configuration: ConfigurationSpec, lock: Lock) -> Lock:
    """The lock as it speaks of one configuration's checkpoint."""
    name = recipe.model_of(configuration).name
    return lock if name == recipe.model.name else lock.with_checkpoint(name)


def _check_mask(model: ModelSpec, lock: Lock) -> None:
    mask, vocabulary = model.mask_token_id, lock.shape.get("vocabulary")
    if mask is not None and vocabulary is not None and mask >= vocabulary:
        raise UnmaskError(
            f"model.mask_token_id is {mask}, which is outside the vocabulary of {vocabulary} tokens; correct it."
        )


def identity_of(
    recipe: Recipe,
    lock: Lock,
    task: TaskSpec,
    limit: int | None,
    configurations: Sequence[ConfigurationSpec],
    timing: TimingSpec | None = None,
) -> dict[str, Any]:
    """What identifies a result: that of one configuration on a task, or that of a timing run of several.

    Nothing else writes an identity. It holds resolved values, so that a default is the same setting written out or not.
    What is left to a task (its number of examples, its metric) or to the worker (the number format) stays None.
    """
    members = lock.members.get(task.name)
    if members is None:
        raise UnmaskError(f"{task.name} is not in the lock; run `unmask prepare` on the recipe again.")
    shared: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "accuracy" if timing is None else "timing",
        "engine": ENGINE_REVISION,
        **_checkpoint(recipe.model, lock),
        "task": {
            **frozen(task.resolved()),
            "limit": limit,
            "chat": recipe.evaluation.chat,
            "system_instruction": recipe.evaluation.system_instruction,
            "version": {name: lock.versions[name] for name in members},
            "rows": {name: lock.sizes[name] for name in members},
            "rows_sha256": {name: lock.tasks[name] for name in members},
            "lm_eval": lock.lm_eval,
        },
    }
    settings = {each.name: _settings(recipe, each, lock) for each in configurations}
    if timing is None:
        return shared | settings[configurations[0].name]
    return shared | {
        "prompts": limit,
        "repeats": timing.repeats,
        "batch_size": timing.batch_size,
        "control": _control(recipe, timing),
        "configurations": settings,
    }


def _checkpoint(model: ModelSpec, lock: Lock) -> dict[str, Any]:
    mask = lock.mask_token_id if model.mask_token_id is None else model.mask_token_id
    return {"weights": lock.weights, "dtype": model.dtype, "mask_token_id": mask}


def _settings(recipe: Recipe, configuration: ConfigurationSpec, lock: Lock) -> dict[str, Any]:
    """What is its own; of the checkpoint only where it is another than the recipe's."""
    model, lock = recipe.model_of(configuration), locked_for(recipe, configuration, lock)
    policy, decode = recipe.policy_of(configuration), lock.decoded(recipe.decode_of(configuration))
    named, _ = policy.with_named_traces()
    return {
        "decode": frozen(decode),
        "generation": generation_arguments(recipe.decode | configuration.decode),
        "policy": frozen(named),
        **({} if model == recipe.model else _checkpoint(model, lock)),
        **policy.depends_on(),
        **(decode.rule.depends_on() if decode.rule else {}),
    }


def frozen(spec: msgspec.Struct) -> dict[str, Any]:
    """Every setting of a spec with its value; those that its `later` names only where they are not at their default."""
    values: dict[str, Any] = msgspec.to_builtins(spec)
    for field in msgspec.structs.fields(type(spec)):
        value = getattr(spec, field.name)
        if field.name in getattr(spec, "later", ()) and value == _default(field):
            del values[field.encode_name]
        elif isinstance(value, msgspec.Struct):
            values[field.encode_name] = frozen(value)
    return values


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _timed(recipe: Recipe, timing: TimingSpec) -> list[ConfigurationSpec]:
    """The configurations that a timing run compares, and its control."""
    every = recipe.expanded()
    names = _chosen([each.name for each in every], timing.configurations, "configuration")
    return [each for each in every if each.name in {*names, _control(recipe, timing)}]


def _control(recipe: Recipe, timing: TimingSpec) -> str:
    names = _chosen([each.name for each in recipe.expanded()], timing.configurations, "configuration")
    return timing.control or (recipe.control if recipe.control in names else names[0])


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The parts in which two identities differ, such as `engine revision 2 -> 3` or `decode.threshold 0.9 -> 0.7`.

    Identities of another schema name and resolve their parts otherwise: then only parts that both hold are compared.
    """
    before, after = _parts(earlier), _parts(now)
    other = before.get("schema") != after.get("schema")
    names = [name for name in after | before if before.get(name) != after.get(name)]
    if other:
        names = [name for name in names if before.get(name) is not None and after.get(name) is not None]
    return [_change(name, before.get(name), after.get(name)) for name in names]


def revision_change(identity: Mapping[str, Any]) -> str | None:
    """In what a run was planned otherwise than this version plans runs; None where results may be mixed."""
    now = {"schema": SCHEMA, "engine": ENGINE_REVISION}
    changes = [
        _change(name, identity.get(name), now[name]) for name in now if identity.get(name) != now[name]
    ]
    return ", ".join(changes) or None


def _parts(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of an identity by its path; lists are values."""
    parts: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", identity)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping) and value:
            inner = [(f"{path}.{key}" if path else str(key), value[key]) for key in value]
            waiting += reversed(inner)
        else:
            parts[path] = list(value) if isinstance(value, tuple) else value
    return parts


def _change(name: str, before: Any, after: Any) -> str:
    values = ["not set" if value is None else str(value) for value in (before, after)]
    words = PARTS.get(name, name)
    return words if max(map(len, values)) > LONGEST_VALUE else f"{words} {' -> '.join(values)}"


def generation_arguments(decode: Mapping[str, Any]) -> dict[str, Any]:
    """The generation arguments of lm-eval that these decode settings stand for."""
    given = {theirs: decode[ours] for ours, theirs in GENERATION.items() if decode.get(ours) is not None}
    if "temperature" in given:
        given["do_sample"] = given["temperature"] > 0
    return given


def _limit_in_force(task: str, limit: int | None, lock: Lock) -> int | None:
    """None for a limit that leaves no row out: it asks what the full run asks."""
    sizes = [lock.sizes[name] for name in lock.members.get(task, ())]
    return None if limit is None or (sizes and limit >= max(sizes)) else limit


def _check_prompts(task: str, prompts: int, lock: Lock) -> None:
    """Refuse more prompts of a timing run than the task has rows."""
    members = lock.members.get(task, ())
    if not members:
        return
    largest = max(members, key=lock.sizes.__getitem__)
    if prompts > lock.sizes[largest]:
        raise UnmaskError(
            f"The timing of {task} asks {prompts} prompts but {largest} has {lock.sizes[largest]} rows; ask at most "
            "that many."
        )


def rows_asked(run: PlannedRun, lock: Lock) -> int:
    """Rows that a run asks."""
    sizes = [lock.sizes[name] for name in lock.members[run.task]]
    rows = sum(size if run.limit is None else min(size, run.limit) for size in sizes)
    return min(rows, TWIN_ROWS) if run.kind == "twin" else rows


def _chosen(names: list[str], patterns: Iterable[str], what: str) -> list[str]:
    wanted = list(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnmaskError(f"No {what} is called {pattern}; there are {', '.join(names)}.")
    return [name for name in names if not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)]
