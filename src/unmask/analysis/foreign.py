"""Imported summaries as results of a table.

They have the layout of older scripts, in which a policy is a name and a few arguments. What a summary does not say
stays unknown. Rows are taken from the sizes of the usual sets; the layers of a named subset, and that a skipped layer's
output is put back on sub-block steps, from the published code.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from unmask.analysis.likeness import acts
from unmask.analysis.table import AnalysedExperiment, ConfigurationResult, Table
from unmask.policies.subsets import SEED_SIZE
from unmask.spec.recipe import SuccessSpec
from unmask.store.foreign import ForeignRecord, foreign_of
from unmask.store.result import Subtask
from unmask.store.store import Store

ROWS = {"gsm8k": 1319, "mmlu": 14042, "minerva_math": 5000, "ifeval": 541, "humaneval": 164, "mbpp": 500}
SUBTASKS = {"mmlu": 57, "minerva_math": 7}
"""A limit counts for each subtask of a group."""
CONFIGURATION = re.compile(r"k(?P<k>\d+)_(?P<layers>first|middle|last)")
SHAPES: dict[str, dict[str, int]] = {
    "Fast_dLLM_v2_7B": {
        "layers": 28,
        "hidden": 3584,
        "ffn": 18944,
        "heads": 28,
        "kv_heads": 4,
        "head_dim": 128,
        "vocabulary": 152064,
    },
    "Fast_dLLM_v2_1.5B": {
        "layers": 28,
        "hidden": 1536,
        "ffn": 8960,
        "heads": 12,
        "kv_heads": 2,
        "head_dim": 128,
        "vocabulary": 151936,
    },
}
"""Of the published checkpoints, by the last part of their hub id."""


def foreign_entry(record: ForeignRecord) -> ConfigurationResult | None:
    """One imported summary as a result; None if it holds no accuracy."""
    if record.value is None:
        return None
    arguments = _part(record.summary, "model_args")
    shape = SHAPES.get(str(record.model or "").rpartition("/")[2])
    return ConfigurationResult(
        experiment=record.name,
        configuration=record.configuration,
        task=record.task,
        limit=record.limit,
        policy=_policy(record.configuration, arguments),
        decode=_decode(arguments),
        value=record.value,
        stderr=record.stderr,
        metric=record.metric,
        rows=_rows(record),
        tokens=record.tokens,
        subtasks=msgspec.convert(record.groups, dict[str, Subtask]),
        seconds=record.seconds,
        run_tokens_per_second=record.tokens_per_second,
        provenance={
            "weights": arguments.get("weights_sha256") or record.model,
            "commit": record.commit,
            "dirty": record.dirty,
            "machine": record.gpu,
            "host": record.host,
            "torch": _part(record.summary, "environment").get("torch_version"),
        },
        layers=shape["layers"] if shape else None,
        shape=shape,
        foreign=True,
    )


def import_table(store: Store, name: str, success: SuccessSpec | None = None) -> Table:
    """The imported summaries of one name, judged by the given criteria if there are any."""
    return foreign_table(name, foreign_of(store, name), success)


def foreign_table(name: str, records: Iterable[ForeignRecord], success: SuccessSpec | None = None) -> Table:
    """All summaries of an import; its first configuration without reuse is the control unless criteria name one."""
    entries = sorted(
        (entry for record in records if (entry := foreign_entry(record)) is not None),
        key=lambda entry: (entry.task, entry.limit or 0, entry.configuration),
    )
    plain = sorted({entry.configuration for entry in entries if not acts(entry)})
    control = success.control if success else next(iter(plain), None)
    experiment = AnalysedExperiment(name=name, control=control, success=success, foreign=True)
    return Table((experiment,), tuple(entries))


def _policy(configuration: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    stated = _part(arguments, "policy")
    if stated:
        return stated
    named = CONFIGURATION.fullmatch(configuration)
    k = arguments.get("reuse_k") or (named and named["k"])
    layers = arguments.get("layer_subset") or (named and named["layers"])
    if not k or not layers:
        return {"kind": "full"}
    # What the published code does: twelve layers, whose outputs are put back on sub-block steps.
    return {
        "kind": "layer_reuse",
        "k": int(k),
        "layers": layers,
        "size": SEED_SIZE,
        "unit": "output",
        "on": ["sub"],
    }


def _decode(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    stated = _part(arguments, "decode")
    threshold = arguments.get("threshold")
    return stated or ({} if threshold is None else {"threshold": threshold})


def _rows(record: ForeignRecord) -> int | None:
    stated = _part(record.summary, "eval_params").get("rows")
    if isinstance(stated, int):
        return stated
    if record.limit is None:
        return ROWS.get(record.task)
    return int(record.limit) * SUBTASKS.get(record.task, 1) if record.limit >= 1 else None


def _part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = record.get(name)
    return part if isinstance(part, Mapping) else {}
