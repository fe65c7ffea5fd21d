"""The format of conformance vectors: one JSON file each, described in tests/golden/README.md.

Reads and validates; runs nothing and needs no torch.
"""

from pathlib import Path
from typing import Any

import msgspec

from unmask.conformance.published import published_by
from unmask.errors import UnmaskError
from unmask.reading import parse_json, read_plain
from unmask.spec import DecodeSpec, build
from unmask.spec.family import FAST_DLLM_V2


class ExpectedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt must give."""

    ids: list[int]
    """New tokens, a stop token included."""
    finish: str | None = None
    """`length` or `stop`; None leaves it open."""


class ScoredRow(msgspec.Struct, frozen=True, kw_only=True):
    """A target behind a prefix and its log likelihood."""

    prefix: list[int]
    target: list[int]
    loglikelihood: float


class EstimatedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A target behind a prefix, parts of it that were masked, and the published estimate from these."""

    prefix: list[int]
    target: list[int]
    cfg_scale: float
    masked: list[list[int]]
    """For each draw, the places of the target that were masked."""
    p_mask: list[float]
    """For each draw, the share that was to be masked."""
    value: float


class SyntheticWeights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The weights of a vector, as a few numbers."""

    seed: int
    logit_scale: float
    config: dict[str, Any]
    kind: str = ""
    embed_scale: float = 1.0
    sha256: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The fields that the file gives."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values


class Vector(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded decoding, or rows of scores."""

    checkpoint: SyntheticWeights
    family: str = FAST_DLLM_V2.name
    """Whose terms settings and forwards are in."""
    decode: dict[str, Any] = {}
    """Decode settings, with one `max_new_tokens` for each prompt."""
    policy: dict[str, Any] | None = None
    """The reuse that it was recorded with."""
    prompts: list[list[int]] = []
    expect: list[ExpectedAnswer] = []
    forwards: dict[str, Any] | None = None
    """Forwards in the family's terms, a missing kind being none; None where an engine may rightly do fewer."""
    written: list[list[int]] | None = None
    """The positions that each denoising step made known, of the only prompt."""
    margin: dict[str, float | None] | None = None
    """Smallest gaps between the best two logits, between a confidence and the threshold, and so on; None: not used."""
    estimator: str | None = None
    """Present in vectors of scores, which have rows instead of prompts."""
    rows: list[ScoredRow] = []
    likelihood: list[EstimatedRow] = []
    """Present in vectors of estimated likelihoods."""
    name: str = ""
    """The file's name, without .json."""

    @property
    def smallest_margin(self) -> float | None:
        """The gap within which rounding could have decided otherwise."""
        gaps = [gap for gap in (self.margin or {}).values() if gap is not None]
        return min(gaps, default=None)

    @property
    def max_new_tokens(self) -> list[int]:
        """One number for each prompt."""
        given = published_by(self.family).decode(self.decode).get("max_new_tokens", [])
        return list(given) if isinstance(given, list) else [given] * len(self.prompts)

    @property
    def decode_spec(self) -> DecodeSpec:
        """The settings that all prompts share."""
        settings = published_by(self.family).decode(self.decode)
        shared = {name: value for name, value in settings.items() if name != "max_new_tokens"}
        return build(DecodeSpec, shared, f"Vector {self.name}, decode")


def read_vectors(folder: Path) -> list[Vector]:
    """Read every vector of a folder in the order of the file names; refuse the folder if one is broken."""
    if not folder.is_dir():
        raise UnmaskError(f"{folder}: no such folder; give a folder of conformance vectors (JSON files).")
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UnmaskError(f"{folder} holds no conformance vectors (JSON files).")
    return [read_vector(file) for file in files]


def read_vector(file: Path) -> Vector:
    """Read one vector and check that its parts fit each other."""
    try:
        values = parse_json(read_plain(file))
    except (OSError, ValueError) as error:
        raise UnmaskError(f"{file} cannot be read as JSON ({error}).") from None
    vector = build(Vector, values, f"{file} is no conformance vector")
    vector = msgspec.structs.replace(vector, name=file.stem)
    _refuse_incomplete(vector, file)
    return vector


def _refuse_incomplete(vector: Vector, file: Path) -> None:
    if vector.likelihood:
        if any(not len(row.masked) == len(row.p_mask) > 0 for row in vector.likelihood):
            raise UnmaskError(
                f"{file} is no conformance vector: a likelihood needs one p_mask for each draw."
            )
        return
    if vector.estimator is not None:
        if not vector.rows:
            raise UnmaskError(f"{file} is no conformance vector: it names an estimator but has no rows.")
        return
    vector.decode_spec  # noqa: B018 (refuses settings that no decoding could honour)
    counts = {len(vector.prompts), len(vector.expect), len(vector.max_new_tokens)}
    if counts == {0} or len(counts) > 1:
        raise UnmaskError(
            f"{file} is no conformance vector: it has {len(vector.prompts)} prompts, {len(vector.expect)} "
            f"expectations and {len(vector.max_new_tokens)} values of max_new_tokens."
        )
