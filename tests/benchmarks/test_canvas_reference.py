"""The yardstick of whole canvases decodes as the published samplers do: golden vectors, tokens and forwards."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from canvas_checkpoints import write_canvas_checkpoint
from canvas_reference import Settings, decode_dream, decode_llada
from reference_network import ReferenceNetwork

GOLDEN = Path(__file__).parents[1] / "golden"
NOT_BUILT = ("cfg_scale", "eos_rule", "top_p", "top_k", "stop_tokens")
"""Settings that no benchmark needs."""


def vectors() -> dict[str, Any]:
    found = {}
    for file in sorted(GOLDEN.glob("**/*.json")):
        vector = json.loads(file.read_text())
        decode = vector.get("decode", {})
        if vector.get("family") in ("llada", "dream") and decode and not any(map(decode.get, NOT_BUILT)):
            found[file.stem] = vector
    return found


VECTORS = vectors()


def settings_of(vector: dict[str, Any]) -> Settings:
    decode = vector["decode"]
    if vector["family"] == "dream":
        names = ("steps", "threshold", "alg", "eps", "block_length", "cache")
        given = {name: decode[name] for name in names}
        return Settings(new_tokens=decode["max_new_tokens"], **given)
    given = {name: decode[name] for name in ("steps", "threshold", "factor", "block_length", "cache")}
    return Settings(new_tokens=decode["gen_length"], **given)


@pytest.mark.parametrize("name", VECTORS)
def test_tokens_and_forwards_are_the_published_ones(name: str, tmp_path: Path) -> None:
    vector = VECTORS[name]
    network = ReferenceNetwork.load(write_canvas_checkpoint(vector["checkpoint"], tmp_path))
    taken = Counter[tuple[str, int]]()
    for prompt, expected in zip(vector["prompts"], vector["expect"], strict=True):
        if vector["family"] == "dream":
            ids, forwards = decode_dream(network, prompt, settings_of(vector))
        else:
            [ids], forwards = decode_llada(network, [prompt], settings_of(vector))
        assert ids == expected["ids"]
        taken += forwards
    kinds = ("full", "prefix", "dual")
    assert taken == {(kind, rows): calls for kind in kinds for rows, calls in vector["forwards"][kind]}


def test_rows_of_equal_length_do_not_see_each_other_and_padding_is_seen(tmp_path: Path) -> None:
    vector = VECTORS["llada_prefix_batch"]
    network = ReferenceNetwork.load(write_canvas_checkpoint(vector["checkpoint"], tmp_path))
    short, *_, long = vector["prompts"]
    rows = [long, long[::-1], [*short, *long][: len(long)]]
    settings = settings_of(vector)
    together, _ = decode_llada(network, rows, settings)
    assert together == [decode_llada(network, [row], settings)[0][0] for row in rows]
    padded, _ = decode_llada(network, vector["prompts"], settings)
    published = [expected["ids"] for expected in vector["expect"]]
    assert padded[-1] == published[-1]
    assert padded[0] != published[0]
    assert len(VECTORS) > 50
