"""The facts of published checkpoints and data sets are true as far as they can be counted here."""

from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import EMBEDDED_TASKS, sources
from unmask.model.config import ModelConfig
from unmask.model.hub import parse_published
from unmask.model.info import describe_published
from unmask.model.network import NETWORKS
from unmask.spec.published import PublishedCheckpoint, facts, published, published_rows

NAMES = [name for checkpoint in facts().checkpoints for name in checkpoint.names]
PUBLISHED_SIZES = {
    "Efficient-Large-Model/Fast_dLLM_v2_7B": 7_615_616_512,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "GSAI-ML/LLaDA-8B-Instruct": 8_015_581_184,
    "Dream-org/Dream-v0-Instruct-7B": 7_615_616_512,
}
"""Numbers of parameters that the publishers name, or that the sizes of their files come to."""


def known(name: str) -> PublishedCheckpoint:
    checkpoint = published(name)
    assert checkpoint is not None
    return checkpoint


def parameters(config: dict[str, Any]) -> int:
    """Counted from the fields alone: matrices, biases of Qwen2, norms of heads of Qwen3, and a tied head once."""
    kind = config["model_type"]
    llada = kind == "llada"
    hidden = config["d_model" if llada else "hidden_size"]
    layers = config["n_layers" if llada else "num_hidden_layers"]
    ffn = config["mlp_hidden_size" if llada else "intermediate_size"]
    heads = config["n_heads" if llada else "num_attention_heads"]
    kv_heads = config["n_kv_heads" if llada else "num_key_value_heads"]
    width = config.get("head_dim", hidden // heads)
    layer = 2 * hidden * width * (heads + kv_heads) + 3 * hidden * ffn + 2 * hidden
    layer += width * (heads + 2 * kv_heads) if kind in ("qwen2", "Fast_dLLM_Qwen", "Dream") else 0
    layer += 2 * width if kind in ("qwen3", "sdar") else 0
    embeddings = 1 if config.get("tie_word_embeddings", config.get("weight_tying")) else 2
    return embeddings * config["vocab_size"] * hidden + layers * layer + hidden


@pytest.mark.parametrize("name", NAMES)
def test_the_fields_come_to_the_published_number_of_parameters(name: str) -> None:
    checkpoint = known(name)
    assert (
        parameters(checkpoint.config)
        == checkpoint.parameters
        == PUBLISHED_SIZES.get(name, checkpoint.parameters)
    )


def read(name: str) -> ModelConfig | str:
    """The config of a published checkpoint, or why it cannot be run."""
    try:
        return parse_published(known(name))
    except UnmaskError as error:
        return str(error)


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_run_is_read_as_a_config_and_the_rest_is_refused_in_a_sentence(name: str) -> None:
    config = read(name)
    if isinstance(config, str):
        assert "cannot be run" in config
    else:
        assert config.parameters == known(name).parameters
        assert config.stop_tokens


def test_the_first_family_can_be_run() -> None:
    config = read("Efficient-Large-Model/Fast_dLLM_v2_1.5B")
    assert isinstance(config, ModelConfig)
    assert (config.block_size, config.tied_head) == (32, True)


@pytest.mark.parametrize("name", NAMES)
def test_what_each_published_checkpoint_is_and_whether_it_can_be_run(name: str) -> None:
    """`unmask info` tells parameters, family and memory of those that can be run, and lists the supported of others."""
    families = {"sdar": "sdar", "Fast_dLLM_Qwen": "fast_dllm_v2", "llada": "llada", "Dream": "dream"}
    kind = known(name).config["model_type"]
    if kind not in NETWORKS:
        with pytest.raises(
            UnmaskError, match=f"'{kind}' .*cannot be run; this engine runs the dense .* parameters"
        ):
            describe_published(known(name), 1, None)
        return
    facts = describe_published(known(name), 1, None)
    assert (facts["usable"], facts["reason"]) == (True, None)
    assert facts["parameters"] == known(name).parameters
    assert facts["family"] == families.get(kind, "autoregressive")
    assert facts["memory"]["bytes"]["16 bit"]["weights"] == 2 * known(name).parameters


def test_no_name_is_there_twice_and_each_says_where_its_facts_are_from() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert all(part.known.endswith(".") for part in (*facts().checkpoints, *facts().data))


def test_a_name_may_have_values_of_its_own() -> None:
    assert known("JetLM/SDAR-4B-Chat-b32").config["block_size"] == 32
    assert known("JetLM/SDAR-4B-Chat").config["block_size"] == 4
    assert published("JetLM/SDAR-4B-Chat-b33") is None


@pytest.mark.parametrize(
    ("beginning", "rows"),
    [("gsm8k/test", 1319), ("mmlu/test/", 14_042), ("math/", 5000), ("ifeval/", 541), ("humaneval/", 164)],
)
def test_rows_sum_up_to_those_of_the_benchmark(beginning: str, rows: int) -> None:
    counted = {name: count for part in facts().data for name, count in part.rows.items()}
    assert sum(count for name, count in counted.items() if name.startswith(beginning)) == rows


def test_every_task_of_the_catalogue_has_a_known_number_of_rows() -> None:
    assert [source.name for source in sources().values() if source.published_rows is None] == []
    assert sources()["mbpp_instruct"].published_rows == 500
    assert sources()["gpqa_main_n_shot"].published_rows == 448
    assert published_rows("nothing/of/the/kind.jsonl") is None


def test_rows_of_tasks_that_ship_with_the_package_are_those_of_their_files() -> None:
    for name in (name for name in sources() if name.startswith("unmask_")):
        file = EMBEDDED_TASKS / f"{name.removeprefix('unmask_')}.jsonl"
        assert published_rows(name) == len(file.read_text(encoding="utf-8").splitlines())


def test_the_facts_name_files_as_the_catalogue_does() -> None:
    in_catalogue = {file for source in sources().values() for file in source.files.values()}
    assert {name for part in facts().data for name in part.rows if "/" in name} <= in_catalogue
