import json
import random
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

from training.curriculum.problem import split_of
from training.decoding import decode
from training.encoding import Encoder
from training.export import export
from training.network import Network, NetworkConfig
from training.publication import LLADA
from training.task_files import TASK_FILES, task_rows
from training.vocabulary import MASK_TOKEN, build_tokenizer

ASSETS = Path(__file__).parents[2] / "src" / "unmask" / "assets"


def expected_tensors(layers: int) -> set[str]:
    parts = ["input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.o_proj.weight"]
    parts += [f"self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")]
    parts += [f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")]
    names = {f"model.layers.{layer}.{part}" for layer in range(layers) for part in parts}
    return names | {"model.embed_tokens.weight", "model.norm.weight"}


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(build_tokenizer())


@pytest.fixture(scope="module")
def network(encoder: Encoder) -> Network:
    vocabulary = encoder.tokenizer.get_vocab_size()
    small = Network(
        NetworkConfig(vocabulary=vocabulary, layers=2, hidden=32, heads=2, kv_heads=1, feed_forward=48)
    )
    small.initialise(1)
    return small


def test_an_exported_checkpoint_is_complete(encoder: Encoder, network: Network, tmp_path: Path) -> None:
    export(network, encoder, tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as tensors:
        assert set(tensors.keys()) == expected_tensors(2)
        for name, tensor in network.state_dict().items():
            assert torch.equal(tensors.get_tensor(name), tensor.half())
    config = json.loads((tmp_path / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert config["vocab_size"] == tokenizer.get_vocab_size() == network.config.vocabulary
    assert config["mask_token_id"] == tokenizer.token_to_id(MASK_TOKEN)
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert config["eos_token_id"] in generation["eos_token_id"]
    assert not list(tmp_path.glob("*.new"))


LLADA_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}


def llada_tensors(layers: int) -> dict[str, str]:
    """Published name -> name in training."""
    names = {"model.transformer.wte.weight": "model.embed_tokens.weight"}
    names["model.transformer.ln_f.weight"] = "model.norm.weight"
    for layer in range(layers):
        for ours, theirs in LLADA_PARTS.items():
            for kind in ("weight", "bias") if theirs in ("q_proj", "k_proj", "v_proj") else ("weight",):
                names[f"model.transformer.blocks.{layer}.{theirs}.{kind}"] = (
                    f"model.layers.{layer}.{ours}.{kind}"
                )
    return names


def test_a_canvas_model_is_exported_under_the_published_names(
    encoder: Encoder, network: Network, tmp_path: Path
) -> None:
    export(network, encoder, tmp_path, LLADA)
    weights = network.state_dict()
    with safe_open(tmp_path / "model.safetensors", "pt") as tensors:
        assert set(tensors.keys()) == set(llada_tensors(2))
        for theirs, ours in llada_tensors(2).items():
            assert torch.equal(tensors.get_tensor(theirs), weights[ours].half())
    config = json.loads((tmp_path / "config.json").read_text())
    sizes = {
        name: config[name] for name in ("d_model", "n_heads", "n_kv_heads", "n_layers", "mlp_hidden_size")
    }
    assert sizes == {"d_model": 32, "n_heads": 2, "n_kv_heads": 1, "n_layers": 2, "mlp_hidden_size": 48}
    assert config["model_type"] == "llada"
    assert config["vocab_size"] == config["embedding_size"] == network.config.vocabulary
    assert (config["weight_tying"], config["include_qkv_bias"], config["include_bias"]) == (True, True, False)
    assert config["mask_token_id"] == encoder.mask


def test_decoding_gives_each_prompt_what_it_gets_alone(encoder: Encoder, network: Network) -> None:
    rng = random.Random(1)
    prompts = [[rng.randrange(10, 200) for _ in range(length)] for length in (3, 32, 33)]
    together = decode(network, prompts, mask=encoder.mask, stop=encoder.end, threshold=0.005, max_blocks=3)
    alone = [
        decode(network, [p], mask=encoder.mask, stop=encoder.end, threshold=0.005, max_blocks=3)[0]
        for p in prompts
    ]
    assert together == alone
    assert all(encoder.mask not in reply for reply in together)


def test_the_shipped_checkpoint_is_small_and_deep() -> None:
    folder = ASSETS / "embedded"
    assert (folder / "model.safetensors").stat().st_size <= 10_000_000
    config = json.loads((folder / "config.json").read_text())
    assert config["num_hidden_layers"] >= 12
    with safe_open(folder / "model.safetensors", "pt") as tensors:
        assert set(tensors.keys()) == expected_tensors(config["num_hidden_layers"])


def test_the_shipped_tokenizer_is_the_one_that_training_builds(encoder: Encoder) -> None:
    shipped = Tokenizer.from_file(str(ASSETS / "embedded" / "tokenizer.json"))
    assert shipped.to_str() == encoder.tokenizer.to_str()


@pytest.mark.parametrize("name", sorted(TASK_FILES))
def test_shipped_rows_are_held_out_and_come_from_the_generator(name: str) -> None:
    lines = (ASSETS / "tasks" / f"{name}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) >= 500
    assert {split_of(row["canonical"]) for row in rows} == {"held_out"}
    assert len(set(lines)) == len(rows)
    assert rows[:20] == task_rows(name, 20)
