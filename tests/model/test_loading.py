"""Checkpoints as they lie on disk become the same transformer, whatever their files and dtypes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from checkpoints import CPU, change_config, change_weights, load_engine, small_config, write_small
from unmask.errors import UnmaskError
from unmask.model import weights as weights_module
from unmask.model.checkpoint import open_checkpoint
from unmask.model.config import parse_config
from unmask.model.transformer import Transformer
from unmask.model.weights import load_transformer

FREE = {"max_new_tokens": 12, "stop_tokens": ()}


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Transformer:
    return load_transformer(open_checkpoint(folder), CPU, dtype)


def stored_as(folder: Path, dtype: torch.dtype) -> Path:
    def cast(weights: dict[str, Tensor]) -> None:
        for name in weights:
            weights[name] = weights[name].to(dtype)

    return change_weights(folder, cast)


def sharded(folder: Path, shards: int = 3) -> Path:
    """Cut the single file into shards with an index, as published checkpoints are."""
    weights = load_file(folder / "model.safetensors")
    names = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    weight_map = {tensor: names[place % shards] for place, tensor in enumerate(sorted(weights))}
    for name in names:
        save_file(
            {tensor: weights[tensor] for tensor in weights if weight_map[tensor] == name}, folder / name
        )
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    return folder


def projections(transformer: Transformer) -> dict[str, Tensor]:
    """Every weight under its checkpoint name, cut out again of the fused ones."""
    config = transformer.config
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    found = {"model.embed_tokens.weight": transformer.embedding_VD, "model.norm.weight": transformer.norm_D}
    if not config.tied_head:
        found["lm_head.weight"] = transformer.head.weight_OI
    for index, layer in enumerate(transformer.layers):
        name = f"model.layers.{index}."
        found[name + "input_layernorm.weight"] = layer.attention_norm_D
        found[name + "post_attention_layernorm.weight"] = layer.mlp_norm_D
        start = 0
        for part, width in (("q", queries), ("k", keys), ("v", keys)):
            assert layer.qkv.bias_O is not None
            for kind, values in (("weight", layer.qkv.weight_OI), ("bias", layer.qkv.bias_O)):
                own = values[start : start + width]
                if part != "v":  # the pairs that turn together lie side by side
                    own = own.unflatten(0, (-1, config.head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)
                found[f"{name}self_attn.{part}_proj.{kind}"] = own
            start += width
        found[name + "self_attn.o_proj.weight"] = layer.attention_out.weight_OI
        found[name + "mlp.gate_proj.weight"] = layer.gate_up.weight_OI[: config.intermediate_size]
        found[name + "mlp.up_proj.weight"] = layer.gate_up.weight_OI[config.intermediate_size :]
        found[name + "mlp.down_proj.weight"] = layer.down.weight_OI
    return found


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_every_tensor_arrives_where_it_belongs(tmp_path: Path, tied: bool, cut: bool) -> None:
    write_small(tmp_path, tie_word_embeddings=tied)
    expected = load_file(tmp_path / "model.safetensors")
    found = projections(load(sharded(tmp_path) if cut else tmp_path))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_tied_head_is_the_embedding_itself(tmp_path: Path) -> None:
    transformer = load(write_small(tmp_path, tie_word_embeddings=True))
    assert transformer.head.weight_OI.data_ptr() == transformer.embedding_VD.data_ptr()


def test_a_tied_checkpoint_may_hold_a_head_of_its_own_that_is_not_used(tmp_path: Path) -> None:
    write_small(tmp_path, tie_word_embeddings=True)
    plain = load_engine(tmp_path).generate([[1, 2, 3]], FREE)[0].ids
    change_weights(tmp_path, lambda weights: weights.update({"lm_head.weight": torch.full((64, 32), 9.0)}))
    assert load_engine(tmp_path).generate([[1, 2, 3]], FREE)[0].ids == plain


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_any_stored_dtype_becomes_the_working_one(tmp_path: Path, stored: torch.dtype) -> None:
    write_small(tmp_path)
    expected = {
        name: tensor.to(stored).float() for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    found = projections(load(stored_as(tmp_path, stored)))
    for name, tensor in expected.items():
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("working", [torch.float16, torch.bfloat16], ids=str)
def test_the_working_dtype_may_be_narrower(tmp_path: Path, working: torch.dtype) -> None:
    write_small(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    for name, tensor in projections(load(tmp_path, working)).items():
        assert torch.equal(tensor, expected[name].to(working)), name


def test_shards_give_the_same_answers(tmp_path: Path) -> None:
    plain = load_engine(write_small(tmp_path)).generate([[1, 2, 3]], FREE)[0].ids
    assert load_engine(sharded(tmp_path)).generate([[1, 2, 3]], FREE)[0].ids == plain


def test_tensors_the_architecture_does_not_have_are_left_out(tmp_path: Path) -> None:
    write_small(tmp_path)
    plain = load_engine(tmp_path).generate([[1, 2, 3]], FREE)[0].ids
    change_weights(
        tmp_path, lambda weights: weights.update({"rotary.inv_freq": torch.ones(4, dtype=torch.int64)})
    )
    assert load_engine(tmp_path).generate([[1, 2, 3]], FREE)[0].ids == plain


def test_progress_tells_all_bytes(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(sharded(stored_as(write_small(tmp_path), torch.bfloat16)))
    told: list[int] = []
    load_transformer(checkpoint, CPU, torch.float32, told.append)
    assert sum(told) == 2 * checkpoint.config.parameters
    assert len(told) == len(checkpoint.tensors)


@pytest.mark.parametrize("cut", [False, True])
def test_pieces_are_no_larger_than_the_buffer_or_a_row(
    tmp_path: Path, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    frombuffer = torch.frombuffer

    def noted(content: bytearray, dtype: torch.dtype) -> Tensor:
        sizes.append(len(content))
        return frombuffer(content, dtype=dtype)

    write_small(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(sharded(tmp_path) if cut else tmp_path)
    monkeypatch.setattr(weights_module, "BUFFER_BYTES", 500)
    monkeypatch.setattr(torch, "frombuffer", noted)
    found = projections(load_transformer(checkpoint, CPU, torch.float32))
    monkeypatch.undo()
    rows = [stored.nbytes // stored.shape[0] for stored in checkpoint.tensors.values()]
    assert max(sizes) <= max(500, *rows)
    assert sum(sizes) == sum(stored.nbytes for stored in checkpoint.tensors.values())
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_file_that_has_shrunk_since_its_header_was_read(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_small(tmp_path))
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 8)
    with pytest.raises(UnmaskError, match=r"cannot be read \(the file ends early\); download it again\.$"):
        load_transformer(checkpoint, CPU, torch.float32)


@pytest.mark.parametrize("short_by, refused", [(1, True), (0, False)])
def test_too_little_memory_is_refused_with_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_by: int, refused: bool
) -> None:
    checkpoint = open_checkpoint(write_small(tmp_path))
    needed = 2 * checkpoint.config.parameters
    monkeypatch.setattr(weights_module, "free_bytes", lambda _: needed - short_by)
    if not refused:
        assert load_transformer(checkpoint, CPU, torch.float16).dtype == torch.float16
        return
    with pytest.raises(UnmaskError, match=r"need .* GiB as float16 but cpu has .* GiB free; .*\.$"):
        load_transformer(checkpoint, CPU, torch.float16)


def test_the_figures_are_those_of_a_large_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
    }
    config = parse_config(small_config(**large), {}, "7B")
    monkeypatch.setattr(weights_module, "free_bytes", lambda _: 11 << 30)
    with pytest.raises(UnmaskError, match=r"need 14\.2 GiB as bfloat16 but cuda:0 has 11\.0 GiB free"):
        weights_module.refuse_if_too_large(config, torch.device("cuda:0"), torch.bfloat16)


def test_nothing_is_read_when_memory_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not_open(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("a tensor was read")

    checkpoint = open_checkpoint(write_small(tmp_path))
    monkeypatch.setattr(weights_module, "free_bytes", lambda _: 1000)
    monkeypatch.setattr(weights_module, "_read_into", must_not_open)
    with pytest.raises(UnmaskError):
        load_transformer(checkpoint, CPU, torch.float32)


def broken(folder: Path) -> str:
    with pytest.raises(UnmaskError) as caught:
        load(folder)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_no_such_folder(tmp_path: Path) -> None:
    assert "no such folder" in broken(tmp_path / "nowhere")


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    write_small(tmp_path)
    assert "is a file" in broken(tmp_path / "config.json")


def test_a_folder_without_config(tmp_path: Path) -> None:
    assert "no config.json" in broken(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (write_small(tmp_path) / "model.safetensors").unlink()
    assert "model.safetensors is missing" in broken(tmp_path)


def test_an_index_that_names_a_missing_shard(tmp_path: Path) -> None:
    sharded(write_small(tmp_path))
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors is missing" in broken(tmp_path)


@pytest.mark.parametrize(
    "content", ["{}", '{"weight_map": {}}', '{"weight_map": [1]}', '{"weight_map": {"a": 3}}']
)
def test_an_index_without_a_map(tmp_path: Path, content: str) -> None:
    sharded(write_small(tmp_path))
    (tmp_path / "model.safetensors.index.json").write_text(content)
    assert "weight_map" in broken(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("content", ["{", "", "[1, 2]", "\x00\xff"])
def test_broken_json(tmp_path: Path, name: str, content: str) -> None:
    sharded(write_small(tmp_path))
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    assert name in broken(tmp_path)


def test_a_missing_tensor(tmp_path: Path) -> None:
    change_weights(write_small(tmp_path), lambda weights: weights.pop("model.layers.1.mlp.up_proj.weight"))
    assert "tensor model.layers.1.mlp.up_proj.weight is missing" in broken(tmp_path)


def test_a_misshapen_tensor(tmp_path: Path) -> None:
    change_weights(
        write_small(tmp_path), lambda weights: weights.update({"model.norm.weight": torch.ones(31)})
    )
    sentence = broken(tmp_path)
    assert "model.norm.weight has shape [31]" in sentence
    assert "[32]" in sentence


@pytest.mark.parametrize("name", ["self_attn.q_norm.weight", "self_attn.o_proj.bias", "mlp.gate.weight"])
def test_a_part_that_the_architecture_does_not_have(tmp_path: Path, name: str) -> None:
    extra = f"model.layers.1.{name}"
    change_weights(write_small(tmp_path), lambda weights: weights.update({extra: torch.ones(8)}))
    sentence = broken(tmp_path)
    assert extra in sentence
    assert "Qwen2" in sentence


def test_what_older_files_hold_besides_weights_is_left_alone(tmp_path: Path) -> None:
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
        "lm_head.weight": torch.ones(2, 2),
    }
    change_weights(write_small(tmp_path, tie_word_embeddings=True), lambda weights: weights.update(extra))
    assert load(tmp_path).config.num_layers == 2


def test_a_config_of_another_size(tmp_path: Path) -> None:
    change_config(write_small(tmp_path), vocab_size=65)
    assert "has shape [64, 32] but config.json asks for [65, 32]" in broken(tmp_path)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int64], ids=str)
def test_integer_weights(tmp_path: Path, kind: torch.dtype) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    change_weights(write_small(tmp_path), lambda weights: weights.update({name: weights[name].to(kind)}))
    sentence = broken(tmp_path)
    assert name in sentence
    assert "only floating-point weights" in sentence


HEADER = 8
CUTS = {
    "to nothing": (0, False),
    "inside the length": (5, False),
    "after the length": (HEADER, False),
    "inside the header": (HEADER + 100, False),
    "after the header": (HEADER, True),
    "inside the data": (HEADER + 1000, True),
    "by one byte": (-1, False),
}
"""Bytes that are left, and whether the header's length comes on top."""


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("in_shard", [False, True])
def test_a_truncated_file(tmp_path: Path, cut: tuple[int, bool], in_shard: bool) -> None:
    write_small(tmp_path)
    if in_shard:
        sharded(tmp_path)
    file = tmp_path / ("model-00003-of-00003.safetensors" if in_shard else "model.safetensors")
    content = file.read_bytes()
    left, with_header = cut
    header = int.from_bytes(content[:HEADER], "little")
    file.write_bytes(content[: left + header * with_header])
    sentence = broken(tmp_path)
    assert file.name in sentence
    assert "cut short" in sentence


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"5",
        b"null",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32"}}',
        b"{",
        b"\xff\xfe",
        b'{"a": {"dtype": 1}}',
    ],
)
def test_a_file_that_only_looks_like_safetensors(tmp_path: Path, header: bytes) -> None:
    write_small(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(HEADER, "little") + header)
    assert "not a safetensors file" in broken(tmp_path)


def test_a_header_whose_offsets_contradict_its_shapes(tmp_path: Path) -> None:
    file = write_small(tmp_path) / "model.safetensors"
    content = file.read_bytes()
    length = int.from_bytes(content[:HEADER], "little")
    header = json.loads(content[HEADER : HEADER + length])
    header["model.norm.weight"]["data_offsets"][1] -= 4
    changed = json.dumps(header).encode()
    file.write_bytes(len(changed).to_bytes(HEADER, "little") + changed + content[HEADER + length :])
    assert "model.safetensors" in broken(tmp_path)


def test_a_header_is_enough_to_open(tmp_path: Path) -> None:
    """Opening reads no weights: only loading does."""
    checkpoint = open_checkpoint(write_small(tmp_path))
    assert {
        name: stored.shape for name, stored in checkpoint.tensors.items()
    } == checkpoint.config.tensor_shapes()
    assert sum(stored.nbytes for stored in checkpoint.tensors.values()) == 4 * checkpoint.config.parameters
