"""Small checkpoints with and without a tokenizer, and a way to run the command line in this process."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from unmask.cli import app
from unmask.model.synthetic import write_checkpoint

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


@pytest.fixture(scope="session")
def bare_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without tokenizer. Shared by all tests: do not change it."""
    return write_checkpoint(RECIPE, tmp_path_factory.mktemp("models") / "bare")


@pytest.fixture(scope="session")
def text_model(bare_model: Path) -> Path:
    """A checkpoint with tokenizer and chat template. Shared by all tests: do not change it."""
    folder = bare_model.with_name("text")
    shutil.copytree(bare_model, folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture
def spoiled(text_model: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint with tokenizer that a test may spoil."""
    return Path(shutil.copytree(text_model, tmp_path / "spoiled"))


@pytest.fixture
def run() -> Run:
    """Run the command line with some arguments."""

    def invoke(*arguments: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], stdin, prog_name="unmask")

    return invoke


def error_line(result: Result) -> str:
    """The one sentence of a refusal, after checking that it is all there is."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert lines[0].endswith(".")
    return lines[0].removeprefix("Error: ")
