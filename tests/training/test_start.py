"""The file that training starts from: layers merged in pairs, embeddings by token."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

from training.encoding import Encoder
from training.export import export
from training.network import Network, NetworkConfig
from training.recipe import EMBEDDED, RECIPES, START, embedded
from training.start import EMBEDDING, load_start, merge_pairs, tokens_by_id, write_start
from training.vocabulary import build_tokenizer
from unmask.errors import UnmaskError


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer()


def small(vocabulary: int, layers: int) -> Network:
    network = Network(
        NetworkConfig(vocabulary=vocabulary, layers=layers, hidden=16, heads=2, kv_heads=1, feed_forward=24)
    )
    network.initialise(1)
    return network


def test_a_merged_layer_is_the_mean_of_two_and_adds_what_both_added() -> None:
    tensors = {name: torch.randn_like(tensor) for name, tensor in small(11, 4).state_dict().items()}
    merged = merge_pairs(tensors)
    assert merged.keys() == small(11, 2).state_dict().keys()
    for layer in range(2):
        names = [f"model.layers.{2 * layer + neighbour}.self_attn" for neighbour in (0, 1)]
        q, o = (sum(tensors[f"{name}.{x}_proj.weight"] for name in names) for x in "qo")
        torch.testing.assert_close(merged[f"model.layers.{layer}.self_attn.q_proj.weight"], q / 2)
        torch.testing.assert_close(merged[f"model.layers.{layer}.self_attn.o_proj.weight"], o)


def test_weights_come_from_the_file_and_unknown_tokens_are_drawn(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    old = small(tokenizer.get_vocab_size(), 4)
    export(old, Encoder(tokenizer), tmp_path)
    write_start(tmp_path, tmp_path / "start.safetensors")
    wider = Tokenizer.from_str(tokenizer.to_str())
    wider.add_tokens(["unheard"])
    one, two = (small(wider.get_vocab_size(), 2) for _ in range(2))
    for network in (one, two):
        load_start(network, wider, tmp_path / "start.safetensors", seed=3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    embedding = one.state_dict()[EMBEDDING]
    assert torch.equal(embedding[:-1], old.state_dict()[EMBEDDING].half().float())
    assert embedding[-1].std() == pytest.approx(float(embedding[:-1].std()), rel=0.6)


def test_an_exported_checkpoint_is_a_start_too(tokenizer: Tokenizer, tmp_path: Path) -> None:
    recipe = RECIPES["canvas"](tokenizer.get_vocab_size())
    assert recipe.start == EMBEDDED
    network = Network(recipe.network)
    load_start(network, tokenizer, EMBEDDED, recipe.seed)
    with safe_open(EMBEDDED, "pt") as file:
        for name, tensor in network.state_dict().items():
            assert torch.equal(tensor, file.get_tensor(name).float())


def test_the_file_in_the_repository_fits_the_recipe(tokenizer: Tokenizer, tmp_path: Path) -> None:
    recipe = embedded(tokenizer.get_vocab_size())
    assert recipe.start == START
    load_start(Network(recipe.network), tokenizer, START, recipe.seed)
    with safe_open(START, "pt") as file:
        known = set(json.loads(file.metadata()["tokens"]))
    assert len(known & set(tokens_by_id(tokenizer))) > 0.9 * tokenizer.get_vocab_size()
    with pytest.raises(UnmaskError, match="missing"):
        load_start(Network(recipe.network), tokenizer, tmp_path / "none", recipe.seed)
