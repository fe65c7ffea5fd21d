"""Publishers' settings in our terms, and our work in theirs: one entry for each family that has its own words.

Knows what published samplers call their settings and forwards. Vectors of Fast-dLLM v2 are written in our terms.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.cost import Ledger
from unmask.errors import UnmaskError
from unmask.spec.decode import cache_of
from unmask.spec.family import DREAM, FAST_DLLM_V2, LLADA, SDAR

Counts = dict[str, int]
"""Forwards by name."""
IDLE = "idle"
"""Forwards of a publisher's that wrote nothing; the others' sum may be smaller by as many."""
CANVAS_KINDS = {"block": "full", "tail": "prefix", "sub": "dual"}


@dataclass(frozen=True, slots=True)
class Published:
    """How a family's vectors are to be read."""

    decode: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Publishers' settings as decode settings."""
    forwards: Callable[[Ledger], Counts]
    """Forwards of one answer as the publisher counts them."""
    expected: Callable[[Mapping[str, Any]], Counts] = dict
    """What a vector says of forwards, in the same form."""


def _our_settings(decode: Mapping[str, Any]) -> dict[str, Any]:
    """Vectors of version 0.1 say of the cache whether there is one."""
    settings = {name: value for name, value in decode.items() if name != "block_cache"}
    cache = cache_of(decode)
    return settings | ({"cache": cache} if cache else {})


def _our_forwards(ledger: Ledger) -> Counts:
    return ledger.steps()


def _sdar_settings(decode: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "block_size": decode.get("block_length"),
        "rule": _sdar_rule(decode),
        "temperature": decode.get("temperature", 0.0),
        "stop_tokens": decode.get("stop_tokens"),
        "max_new_tokens": decode.get("max_new_tokens", []),
    }


def _sdar_rule(decode: Mapping[str, Any]) -> dict[str, Any]:
    """SDAR's step counts are those of a block, which is its only sub-block."""
    steps = decode.get("denoising_steps")
    rules: dict[Any, dict[str, Any]] = {
        "sequential": {"kind": "sequential", "steps": steps},
        "low_confidence_static": {"kind": "top_n", "steps": steps},
        "low_confidence_dynamic": {
            "kind": "threshold",
            "threshold": decode.get("confidence_threshold"),
            "steps": steps,
        },
        "entropy_bounded": {"kind": "entropy_bound", "bound": decode.get("eb_threshold")},
    }
    return _named(rules, decode, "remasking_strategy")


def _sdar_forwards(ledger: Ledger) -> Counts:
    """Each of its denoising steps feeds the block; it commits the last block too, whose keys nothing reads."""
    steps = ledger.steps()
    denoise = steps.get("block", 0) + steps.get("sub", 0)
    return {"prefill": steps.get("prefill", 0), "denoise": denoise, "commit": steps.get("commit", 0) + 1}


def _llada_settings(decode: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "max_new_tokens": decode.get("gen_length"),
        "sub_block_size": decode.get("block_length"),
        "cache": decode.get("cache"),
        "rule": _llada_rule(decode),
        "guidance": decode.get("cfg_scale", 0.0),
        "end_of_text": {"logits": "never", "confidence": "last"}.get(decode.get("eos_rule", "")),
        "temperature": decode.get("temperature", 0.0),
        "stop_tokens": decode.get("stop_tokens"),
    }


def _llada_rule(decode: Mapping[str, Any]) -> dict[str, Any]:
    """A factor wins over a threshold, and a threshold over steps."""
    if decode.get("factor") is not None:
        return {"kind": "factor", "factor": decode["factor"]}
    if decode.get("threshold") is not None:
        return {"kind": "threshold", "threshold": decode["threshold"]}
    steps = _steps_a_block(decode, decode.get("gen_length"))
    rules = {
        "low_confidence": {"kind": "top_n", "steps": steps},
        "random": {"kind": "random", "steps": steps},
    }
    return _named(rules, decode, "remasking")


def _dream_settings(decode: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "max_new_tokens": decode.get("max_new_tokens"),
        "sub_block_size": decode.get("block_length"),
        "cache": decode.get("cache"),
        "rule": _dream_rule(decode) if decode.get("block_length") is None else _dream_block_rule(decode),
        "top_p": decode.get("top_p"),
        "top_k": decode.get("top_k"),
        "temperature": decode.get("temperature", 0.0),
        "stop_tokens": decode.get("stop_tokens"),
    }


def _dream_rule(decode: Mapping[str, Any]) -> dict[str, Any]:
    """Of the plain sampler, which sees the answer as one."""
    steps, length = decode.get("steps"), decode.get("max_new_tokens")
    falling = {"steps": steps, "eps": decode.get("eps"), "temperature": decode.get("alg_temp") or 0.0}
    rules: dict[Any, dict[str, Any]] = {
        "entropy": {"kind": "share", "score": "entropy", **falling},
        "maskgit_plus": {"kind": "share", "score": "confidence", **falling},
        "topk_margin": {"kind": "share", "score": "margin", **falling},
        "origin": {"kind": "origin", "steps": steps, "eps": decode.get("eps")},
        "confidence_threshold": {"kind": "overdue", "threshold": decode.get("threshold"), "steps": steps},
    }
    if decode.get("alg") == "confidence_threshold":
        _divided(length, steps, "max_new_tokens", "steps")
    return _named(rules, decode, "alg")


def _dream_block_rule(decode: Mapping[str, Any]) -> dict[str, Any]:
    """Of the sampler with a cache, which ranks by entropy whatever `alg` names, but for the threshold."""
    if decode.get("alg") == "confidence_threshold":
        return {"kind": "threshold", "threshold": decode.get("threshold")}
    steps = _steps_a_block(decode, decode.get("max_new_tokens"))
    temperature = decode.get("alg_temp") or 0.0
    return {"kind": "share", "steps": steps, "eps": decode.get("eps"), "temperature": temperature}


def _steps_a_block(decode: Mapping[str, Any], length: Any) -> int:
    """Steps of a sub-block; publishers give those of the whole answer."""
    blocks = _divided(length, decode.get("block_length"), "the answer's length", "block_length")
    return _divided(decode.get("steps"), blocks, "steps", "the number of blocks")


def _divided(whole: Any, part: Any, of_what: str, by_what: str) -> int:
    if not (isinstance(whole, int) and isinstance(part, int) and part > 0) or whole % part:
        raise UnmaskError(
            f"{of_what} is {whole}, which {by_what} ({part}) does not divide; correct one of them."
        )
    return whole // part


def _named(rules: Mapping[Any, dict[str, Any]], decode: Mapping[str, Any], field: str) -> dict[str, Any]:
    name = decode.get(field)
    if not isinstance(name, str) or name not in rules:
        raise UnmaskError(f"{field} is {name!r}; this version knows {', '.join(rules)}.")
    return rules[name]


def _canvas_forwards(ledger: Ledger) -> Counts:
    """Forwards by kind and rows."""
    counts: Counts = {}
    for work, count in ledger.entries.items():
        name = f"{CANVAS_KINDS[work.kind]} of {work.rows}"
        counts[name] = counts.get(name, 0) + count
    return counts


def _canvas_expected(forwards: Mapping[str, Any]) -> Counts:
    """A vector lists for each kind how often so many rows were fed."""
    kinds = {kind: calls for kind, calls in forwards.items() if kind != IDLE}
    counts = {f"{kind} of {rows}": count for kind, calls in kinds.items() for rows, count in calls}
    return counts | {IDLE: forwards.get(IDLE, 0)}


PUBLISHED = {
    FAST_DLLM_V2.name: Published(_our_settings, _our_forwards),
    SDAR.name: Published(_sdar_settings, _sdar_forwards),
    LLADA.name: Published(_llada_settings, _canvas_forwards, _canvas_expected),
    DREAM.name: Published(_dream_settings, _canvas_forwards, _canvas_expected),
}
"""By the name that vectors give their family."""


def published_by(family: str) -> Published:
    """How vectors of a family are to be read."""
    if family not in PUBLISHED:
        raise UnmaskError(
            f"Vectors of the family {family!r} cannot be read; this version reads {', '.join(PUBLISHED)}."
        )
    return PUBLISHED[family]


def same_forwards(expected: Counts, given: Counts) -> bool:
    """Whether forwards are those of a vector, or fewer by those that wrote nothing."""
    idle = expected.get(IDLE, 0)
    names = (expected.keys() | given.keys()) - {IDLE}
    spared = [expected.get(name, 0) - given.get(name, 0) for name in names]
    return min(spared, default=0) >= 0 and sum(spared) == idle
