"""A small random checkpoint with a byte-level tokenizer and a chat template, so that it reads and writes text."""

import json
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from checkpoints import write_small

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "|<MASK>|"]
SIZE = 256 + len(SPECIAL)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_text_model(folder: Path, **changes: Any) -> Path:
    """Weights, configuration, tokenizer and template."""
    settings = {"vocab_size": SIZE, "mask_token_id": SIZE - 1, "eos_token_id": 256, **changes}
    write_small(folder, **settings)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    backend.save(str(folder / "tokenizer.json"))
    named = {"mask_token": SPECIAL[-1], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder


def asked(text: str, task: str = "made_up", **arguments: Any) -> Instance:
    """A request for an answer, as lm-eval makes them."""
    return Instance("generate_until", {}, (text, arguments), 0, metadata=(task, 0, 1))


def choices(text: str, *endings: str, task: str = "made_up") -> list[Instance]:
    """Requests for the log likelihoods of some endings."""
    return [
        Instance("loglikelihood", {}, (text, ending), index, metadata=(task, 0, 1))
        for index, ending in enumerate(endings)
    ]
