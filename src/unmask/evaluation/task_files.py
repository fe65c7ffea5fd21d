"""Writes task files for lm-eval: its own definitions, pointed at the hub or at local files.

Only the tasks that are asked for are written: lm-eval then reads a few files instead of fourteen thousand.
Whether the samples can be loaded is not known here.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

import yaml

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import (
    GPQA,
    Function,
    Source,
    TaskGroup,
    groups,
    members_of,
    sources,
    stock_folder,
)

NEAREST = 3
"""Names that are offered in place of an unknown one."""


def known_names() -> list[str]:
    """Every task and group."""
    return sorted({*sources(), *groups()})


def check_names(names: Iterable[str]) -> list[str]:
    """The names without repeats, or one sentence about the first that is unknown."""
    wanted = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not wanted:
        raise UnmaskError("No task is named; give --tasks, for instance --tasks gsm8k,mmlu.")
    for name in wanted:
        if name not in sources() and name not in groups():
            near = get_close_matches(name, known_names(), NEAREST, cutoff=0.5)
            hint = f"the nearest are {', '.join(near)}" if near else "see docs/evaluation.md for the list"
            raise UnmaskError(
                f"{name!r} is no task of this version: {hint}; any other of lm-eval's tasks runs with unmask-lm-eval."
            )
    _refuse_overlap(wanted)
    return wanted


def _refuse_overlap(wanted: list[str]) -> None:
    owners: dict[str, str] = {}
    for name in wanted:
        for source in members_of(name):
            if source.name in owners:
                raise UnmaskError(
                    f"{source.name} is asked for twice, by {owners[source.name]} and by {name}; leave one out."
                )
            owners[source.name] = name


def write_definitions(
    names: Iterable[str], folder: Path, data: Path | None, revisions: Mapping[str, str] | None = None
) -> None:
    """Write the files of these tasks and groups and of all that they need; `revisions` pins hub datasets."""
    written: set[str] = set()
    for name in names:
        for source in members_of(name):
            if source.stock and source.name not in written:
                written.add(source.name)
                _write(folder / f"{source.name}.yaml", task_file(source, data, revisions))
        if name in groups():
            for group in _with_parts(groups()[name]):
                _write(folder / f"_{group.name}.yaml", _group_file(group))


def task_file(
    source: Source, data: Path | None, revisions: Mapping[str, str] | None = None
) -> dict[str, object]:
    """The content of one task's file."""
    assert source.stock
    content: dict[str, object] = {"include": str(stock_folder() / source.stock), "task": source.name}
    if source.name.startswith("minerva_math_boxed") or source.name.endswith("_boxed"):
        content["tag"] = None
    if data is not None:
        files = local_files(source, data)
        kind = "csv" if any(file.suffix == ".csv" for file in files.values()) else "json"
        content["dataset_path"] = kind
        content["dataset_name"] = None
        content["dataset_kwargs"] = {"data_files": {split: str(file) for split, file in files.items()}}
    elif revisions and source.hub and source.hub in revisions:
        content["dataset_kwargs"] = {"revision": revisions[source.hub]}
    return {**content, **source.changes}


def local_files(source: Source, data: Path) -> dict[str, Path]:
    """The file of each split, or one sentence that names what is missing."""
    if not data.is_dir():
        raise UnmaskError(
            f"{data}: no such folder; --data takes the folder laid out as docs/evaluation.md says."
        )
    files = {}
    for split, place in source.files.items():
        file = (data / place).resolve()
        table = file.with_suffix(".csv")
        if not file.is_file() and source.hub == GPQA and table.is_file():
            file = table
        if not file.is_file():
            raise UnmaskError(
                f"{source.name} has no data: {data / place} is missing; put it there, or leave out --data to take "
                f"{source.hub} from the hub."
            )
        files[split] = file
    return files


def _with_parts(group: TaskGroup) -> list[TaskGroup]:
    """A group, and the groups that its definition names."""
    parts = [groups()[f"mmlu_{part}"] for part in ("stem", "humanities", "social_sciences", "other")]
    return [group, *parts] if group.name == "mmlu" else [group]


def _group_file(group: TaskGroup) -> dict[str, object]:
    return {"include": str(stock_folder() / group.stock)} if group.stock else dict(group.content)


class _Dumper(yaml.SafeDumper):
    """Writes plain data, and functions as `!function package.module.name`."""


_Dumper.add_representer(
    Function, lambda dumper, function: dumper.represent_scalar("!function", function.name)
)


def _write(file: Path, content: dict[str, object]) -> None:
    file.write_text(yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000), encoding="utf-8")
