"""A small checkpoint with a tokenizer of bytes, and what a refusal looks like."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

MASK, STOP = "|<MASK>|", "<|endoftext|>"
VOCABULARY = 258
CONTEXT = 256
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
RECIPE: dict[str, Any] = {
    "seed": 3,
    "logit_scale": 8.0,
    "config": {
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "model_type": "Fast_dLLM_Qwen",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "bd_size": 32,
        "mask_token_id": VOCABULARY - 1,
        "eos_token_id": VOCABULARY - 2,
        "torch_dtype": "float32",
    },
}

Run = Callable[..., Result]


def write_tokenizer(folder: Path) -> None:
    """One token for each byte, and two special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([STOP, MASK])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"mask_token": MASK, "eos_token": STOP, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def error_line(result: Result) -> str:
    """The one sentence of a refusal, after checking that it is all there is."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert lines[0].endswith(".")
    return lines[0].removeprefix("Error: ")


def lines_with(result: Result, *parts: str) -> list[str]:
    """Lines that hold all parts."""
    return [line for line in result.stdout.splitlines() if all(part in line for part in parts)]
