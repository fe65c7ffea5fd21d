"""The oracle of whole canvases gives what the published samplers gave: tokens, forwards by kind, likelihoods."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canvas_checkpoints import write_canvas_checkpoint
from canvas_oracle import CanvasBruteForce, CanvasNetwork, CanvasSettings, likelihood
from checkpoints import GOLDEN

VECTORS = {file.stem: json.loads(file.read_text()) for file in sorted(GOLDEN.glob("**/*.json"))}
VECTORS = {name: vector for name, vector in VECTORS.items() if vector.get("family") in ("llada", "dream")}
DECODINGS = [name for name, vector in VECTORS.items() if "decode" in vector]
LIKELIHOODS = [name for name, vector in VECTORS.items() if "likelihood" in vector]
KINDS = ("full", "prefix", "dual")


def llada_rule(decode: dict[str, Any]) -> dict[str, Any]:
    """The rule in a vector's words; steps count over all blocks there."""
    assert (decode["remasking"], decode["temperature"]) == ("low_confidence", 0.0)
    if decode["factor"] is not None:
        return {"kind": "factor", "factor": decode["factor"]}
    if decode["threshold"] is not None:
        return {"kind": "threshold", "threshold": decode["threshold"]}
    return {"kind": "top_n", "steps": decode["steps"] * decode["block_length"] // decode["gen_length"]}


def dream_rule(decode: dict[str, Any]) -> dict[str, Any]:
    """The same of Dream; without blocks a threshold waits for positions that are due."""
    assert (decode["alg_temp"], decode["temperature"]) == (0.0, 0.0)
    blocks = 1 if decode["block_length"] is None else decode["max_new_tokens"] // decode["block_length"]
    steps = decode["steps"] // blocks
    if decode["alg"] == "confidence_threshold":
        kind = "overdue" if decode["block_length"] is None else "threshold"
        return {"kind": kind, "threshold": decode["threshold"], "steps": steps if kind == "overdue" else None}
    if decode["alg"] == "origin":
        assert steps == 1, "more steps are random"
    score = {"topk_margin": "margin", "entropy": "entropy"}.get(decode["alg"], "confidence")
    return {"kind": "share", "steps": steps, "eps": decode["eps"], "score": score}


def settings_of(vector: dict[str, Any]) -> CanvasSettings:
    """A vector's settings, one number of new tokens for all its prompts."""
    decode = vector["decode"]
    shared = {
        "sub_block_size": decode["block_length"],
        "cache": decode["cache"],
        "stop_tokens": frozenset(decode["stop_tokens"]),
    }
    if vector["family"] == "dream":
        return CanvasSettings(
            **shared,
            max_new_tokens=decode["max_new_tokens"],
            rule=dream_rule(decode),
            top_p=decode["top_p"] or 1.0,
            top_k=decode["top_k"],
        )
    rule = decode.get("eos_rule")
    end_of_text = frozenset({decode["eos_token_id"]} if rule else ())
    return CanvasSettings(
        **shared,
        max_new_tokens=decode["gen_length"],
        rule=llada_rule(decode),
        guidance=decode["cfg_scale"],
        never=end_of_text if rule == "logits" else frozenset(),
        last=end_of_text | {decode["eot_token_id"]} if rule == "confidence" else frozenset(),
    )


def recorded(forwards: dict[str, Any]) -> Counter[tuple[str, int]]:
    """A vector's forwards, as the oracle counts them."""
    return Counter({(kind, rows): calls for kind in KINDS for rows, calls in forwards[kind]})


@pytest.mark.parametrize("name", DECODINGS)
def test_tokens_and_forwards_are_the_published_ones(name: str, tmp_path: Path) -> None:
    vector = VECTORS[name]
    network = CanvasNetwork(write_canvas_checkpoint(vector["checkpoint"], tmp_path))
    settings, taken, idle = settings_of(vector), Counter[tuple[str, int]](), 0
    for prompt, expected in zip(vector["prompts"], vector["expect"], strict=True):
        row = CanvasBruteForce(network, prompt, settings)
        assert row.run() == expected["ids"]
        assert ("stop" if row.stopped else "length") == expected["finish"]
        taken += row.forwards()
        idle += sum(not step.writes for step in row.steps)
        assert min(step.choice_gap for step in row.steps) > 2e-5
    if vector["forwards"] is not None:
        assert taken == recorded(vector["forwards"])
        assert idle == vector["forwards"]["idle"]


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_are_the_published_ones(name: str, tmp_path: Path) -> None:
    network = CanvasNetwork(write_canvas_checkpoint(VECTORS[name]["checkpoint"], tmp_path))
    for row in VECTORS[name]["likelihood"]:
        value = likelihood(
            network, row["prefix"], row["target"], row["masked"], row["p_mask"], row["cfg_scale"]
        )
        assert value == pytest.approx(row["value"], abs=1e-3)


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_a_cache_refreshed_at_every_step_is_none(cache: str, tmp_path: Path) -> None:
    """Sub-blocks that do not divide the answer included."""
    vector = VECTORS["llada_dual_thr0.9"]
    network = CanvasNetwork(write_canvas_checkpoint(vector["checkpoint"], tmp_path))
    settings = CanvasSettings(max_new_tokens=30, sub_block_size=8, rule={"kind": "top_n", "n": 3})
    plain, fresh, stale = (
        CanvasBruteForce(network, vector["prompts"][0], replace(settings, cache=kind, refresh_every=every))
        for kind, every in (("none", None), (cache, 1), (cache, 2))
    )
    assert plain.run() == fresh.run()
    assert stale.run() != plain.answer
    assert fresh.forwards() == {("full", 70): 11}
    assert stale.forwards()["full", 70] == 7


def test_every_kind_of_setting_is_recorded() -> None:
    assert (len(DECODINGS), len(LIKELIHOODS)) == (69, 2)
    assert {VECTORS[name]["decode"]["cache"] for name in DECODINGS} == {"none", "prefix", "dual"}
