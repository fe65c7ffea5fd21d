"""The benchmark's yardstick decodes as the published sampler does: golden vectors, tokens and forwards."""

import json
from pathlib import Path

import pytest

from reference import Settings, decode
from reference_network import ReferenceNetwork
from unmask.model.synthetic import write_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden"
VECTORS = [
    "single_len1",
    "single_len64",
    "single_block16_sub4",
    "single_nocache",
    "single_stop0",
    "batch0_nocache",
    "batch1_nocache",
]


@pytest.mark.parametrize("name", VECTORS)
def test_reference_gives_the_golden_tokens(name: str, tmp_path: Path) -> None:
    vector = json.loads((GOLDEN / f"{name}.json").read_text())
    network = ReferenceNetwork.load(write_checkpoint(vector["checkpoint"], tmp_path / "checkpoint"))
    settings = {**vector["decode"], "stop_tokens": tuple(vector["decode"]["stop_tokens"])}
    limits = settings.pop("max_new_tokens")
    assert settings.pop("temperature") == 0.0

    ids, work = decode(network, vector["prompts"], limits, Settings(**settings))

    assert ids == [expected["ids"] for expected in vector["expect"]]
    if vector["forwards"]:
        assert dict(work.forwards) == vector["forwards"]
