"""What a table shows of a result: a small, typed extract of result.json. Knows the layout of results, no files."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from unmask.errors import UnmaskError

COPIED = (
    *("id", "kind", "task", "identity", "metric", "value", "stderr", "rows", "rows_of_the_set"),
    *("control", "finished", "seconds", "attempt"),
)
OF_THE_ENVIRONMENT = ("commit", "dirty", "diff_sha256", "host", "cpu", "device", "dtype")


class Answers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the answers of an accuracy run."""

    sha256: str | None = None
    """Equal digests: the same answers in the same order."""
    count: int | None = None
    tokens: int | None = None
    """Accepted tokens of all answers."""
    truncated: int | None = None
    """Answers that ended by the length limit."""
    resumed: int | None = None
    """Answers taken over from an earlier attempt: with any of them the run's clock means nothing."""


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the policy acted on one path."""

    reuse_fraction: float | None = None
    """Share of the rows of layers that was not computed."""
    inactive: str | None = None
    """Why the policy could not act."""


class Speedup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Time of the control divided by that of a configuration, round by round."""

    median: float | None = None
    low: float | None = None
    high: float | None = None
    coverage: float | None = None


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One configuration of a timing run."""

    tokens: int | None = None
    tokens_per_second: float | None = None
    requests_per_second: float | None = None
    speedup: Speedup | None = None
    reuse_fraction: float | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result of the store."""

    id: str
    folder: str
    """Name of the run's folder."""
    kind: Literal["accuracy", "timing"]
    task: str
    identity: dict[str, Any]
    metric: str | None = None
    value: float | None = None
    stderr: float | None = None
    rows: int | None = None
    rows_of_the_set: int | None = None
    answers: Answers = Answers()
    effect: dict[str, Effect] = {}
    """By path: generation, scoring."""
    control: str | None = None
    timings: dict[str, Timing] = {}
    """By configuration; empty for accuracy runs."""
    weights: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    diff_sha256: str | None = None
    host: str | None = None
    cpu: str | None = None
    gpu: str | None = None
    """Name of the first GPU."""
    device: str | None = None
    dtype: str | None = None
    finished: str | None = None
    seconds: float | None = None
    attempt: str | None = None
    retraction: str | None = None
    """The reason, where the result was retracted."""

    @property
    def limit(self) -> int | None:
        """Rows that were asked for; None for all of them."""
        task = self.identity.get("task")
        limit = task.get("limit") if isinstance(task, Mapping) else None
        return None if limit is None else int(limit)

    @property
    def policy(self) -> dict[str, Any]:
        """The policy of an accuracy run."""
        return dict(self.identity.get("policy") or {})

    @property
    def decode(self) -> dict[str, Any]:
        """The decode settings of an accuracy run."""
        return dict(self.identity.get("decode") or {})


def record_of(folder: str, result: Mapping[str, Any], retraction: str | None = None) -> Record:
    """The extract of a result; one that has not the layout of a result is refused."""
    environment = _part(result, "environment")
    gpus = environment.get("gpus") or [{}]
    found = {
        **{name: result.get(name) for name in COPIED},
        "folder": folder,
        "answers": _part(result, "answers"),
        "effect": _part(result, "effect"),
        "timings": {name: _timing(one) for name, one in _part(result, "configurations").items()},
        "weights": _part(result, "identity").get("weights"),
        **{name: environment.get(name) for name in OF_THE_ENVIRONMENT},
        "gpu": gpus[0].get("name") if isinstance(gpus[0], Mapping) else None,
        "retraction": retraction,
    }
    try:
        return msgspec.convert(found, Record)
    except msgspec.ValidationError as error:
        raise UnmaskError(
            f"The result in {folder} has not the layout of a result ({error}); remove it with "
            f"`unmask rm {folder.rpartition('-')[2]}`, then run again."
        ) from None


def _timing(one: Any) -> Any:
    if not isinstance(one, Mapping):
        return one
    effect = _part(one, "effect")
    parts = [effect, *(part for part in effect.values() if isinstance(part, Mapping))]
    fractions = [part.get("reuse_fraction") for part in parts]
    return {**one, "reuse_fraction": next((value for value in fractions if value is not None), None)}


def _part(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = result.get(name)
    return part if isinstance(part, Mapping) else {}
