"""The tokenizer: whole words with their leading space, single digits, and characters for everything else.

Decoding only joins the tokens, so spacing survives exactly. Digits are never merged and never carry a space.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterable
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from training.curriculum.choice import draw_choice
from training.curriculum.instruction import draw_instruction
from training.curriculum.stories import draw_problem

MASK_TOKEN: Final = "|<MASK>|"
START_TOKEN: Final = "<|im_start|>"
END_TOKEN: Final = "<|im_end|>"
PAD_TOKEN: Final = "<|endoftext|>"
UNKNOWN_TOKEN: Final = "<|unknown|>"
SPECIAL_TOKENS: Final = (PAD_TOKEN, START_TOKEN, END_TOKEN, MASK_TOKEN, UNKNOWN_TOKEN)

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_PIECES: Final = r"#### ?| ?<<|>>|[0-9]| ?[A-Za-z]+|[^A-Za-z0-9]"
_SURVEY_SEED: Final = 20_240_607
_SURVEY_SIZE: Final = 1_200


def build_tokenizer() -> Tokenizer:
    """Build the tokenizer from a seeded survey of the curriculum; the same every time."""
    splitter = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    pieces = {piece for text in _survey() for piece, _ in splitter.pre_tokenize_str(text)}
    characters = sorted(set(string.printable) - set("\x0b\x0c\r"))
    vocabulary = [(token, 0.0) for token in SPECIAL_TOKENS]
    vocabulary += [(character, -20.0) for character in characters]
    vocabulary += [(piece, -1.0) for piece in sorted(pieces - set(characters))]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=SPECIAL_TOKENS.index(UNKNOWN_TOKEN)))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    return tokenizer


def tokenizer_config() -> dict[str, Any]:
    """What Hugging Face's loader reads beside `tokenizer.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_TOKEN,
        "mask_token": MASK_TOKEN,
        "pad_token": PAD_TOKEN,
        "unk_token": UNKNOWN_TOKEN,
        "model_max_length": 2048,
        "chat_template": CHAT_TEMPLATE,
    }


def _survey() -> Iterable[str]:
    """Texts that together hold every word of the curriculum, with and without a leading space where both occur."""
    rng = random.Random(_SURVEY_SEED)
    yield "Question: Answer: Options: A B C D Who most fewest user assistant system"
    yield "\nQuestion\nAnswer\nOptions\nuser\nassistant\nsystem"
    for _ in range(_SURVEY_SIZE):
        problem = draw_problem(rng, 99, "train")
        yield f" {problem.question} {problem.chain(rng)}"
        yield problem.chain(rng)
        choice = draw_choice(rng, 99, "train")
        yield choice.prompt
        instruction = draw_instruction(rng, "train")
        for text in (problem.question, instruction.order, instruction.reply):
            yield text
            yield f" {text}"
