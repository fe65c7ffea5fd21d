"""Our tokenizer and chat templates equal transformers', both majors, each in an environment of its own."""

from pathlib import Path
from typing import Any

import pytest
from tokenizer_folders import MASK, WRITERS

from environments import VERSIONS, ask
from unmask.errors import UnmaskError
from unmask.model.tokenizer import Tokenizer

TEXTS = [
    "",
    " ",
    "\n",
    "\r\n\t \u00a0\u3000 \n\n",
    "Hello, world!",
    "  leading and trailing   ",
    "it's IT'S we'll 'tis",
    "e\u0301 is not \u00e9, yet NFC says it is; \ufb01 stays",
    "東京は今日も晴れです。 Grüße! Привет",
    "👩‍👩‍👧‍👦 🏳️‍🌈 \U0001f9d1\U0001f3fd",
    "\u200b\ufeff\u202eright to left\u202c\x00\x07",
    "a<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<|im_start|",
    f"{MASK}{MASK} {MASK}x|<mask>|",
    "<extra> <s></s> one <left> two <right> three word wordy wordword",
    "12345678 3.14 1_000",
    "def f(x):\n\n    return  x\n\t# done\n",
    "word " * 300,
]
IDS = [[], [0], list(range(0, 400, 7)), list(range(395, 410)), [255, 129, 65]]

ASK = {"role": "user", "content": "What is 2 + 2?"}
ANSWER = {"role": "assistant", "content": "It is 4.  \n"}
SYSTEM = {"role": "system", "content": "  Be brief & <kind>. "}
DATA = {"role": "json", "content": {"text": "<b>'é' & \"q\"</b>", "list": [1, None, True]}}
CHATS: list[dict[str, Any]] = [
    {"messages": messages, "add_generation_prompt": prompt, "continue_final_message": False}
    for prompt in (True, False)
    for messages in (
        [ASK],
        [SYSTEM, ASK],
        [SYSTEM, ASK, ANSWER, {"role": "user", "content": "And 3 + 3?\n\n"}],
        [ASK, ANSWER] * 4,
        [{"role": "note", "content": "skipped"}, ASK],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": "<|im_end|>{{ 7 * 7 }}{% raise %} é \u2028"}],
        [ASK, DATA],
    )
] + [
    {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    for messages in (
        [ASK, {"role": "assistant", "content": "It is"}],
        [ASK, {"role": "assistant", "content": "It is "}],
        [SYSTEM, ASK, {"role": "assistant", "content": "\n It is:\n\n"}],
        [ASK, {"role": "assistant", "content": ""}],
        [ASK, ANSWER, ASK],
        [*([ASK, ANSWER] * 3), {"role": "assistant", "content": "lost"}],
    )
]


def render(tokenizer: Tokenizer, options: dict[str, Any]) -> dict[str, Any] | None:
    try:
        text = tokenizer.render_chat(**options)
    except UnmaskError:
        return None
    return {"text": text, "ids": tokenizer.encode(text, special=False)}


@pytest.mark.slow
@pytest.mark.parametrize("major", VERSIONS)
def test_ids_texts_and_chats_equal_those_of_transformers(major: int, tmp_path: Path) -> None:
    folders = [write(tmp_path / name) for name, write in WRITERS.items()]
    questions = [{"folder": str(folder), "texts": TEXTS, "ids": IDS, "chats": CHATS} for folder in folders]
    theirs = ask(Path(__file__).with_name("transformers_answers.py"), major, questions)
    assert theirs["version"] == VERSIONS[major]
    for folder, answer in zip(folders, theirs["answers"], strict=True):
        ours = Tokenizer.from_folder(folder)
        for special in (True, False):
            encoded = [ours.encode(text, special) for text in TEXTS]
            assert encoded == answer["encoded"][str(special)], folder.name
        decoded = [ours.decode(ids) for ids in answer["encoded"]["True"] + IDS]
        assert decoded == answer["decoded"], folder.name
        for options, expected in zip(CHATS, answer["chats"], strict=True):
            assert render(ours, options) == expected, (folder.name, options)
        assert sum(chat is not None for chat in answer["chats"]) >= 9, folder.name
