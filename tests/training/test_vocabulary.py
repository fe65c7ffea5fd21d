import random
import re
import string

import pytest
from tokenizers import Tokenizer

from training.curriculum.rows import Mixture, draw_row
from training.encoding import Encoder
from training.vocabulary import SPECIAL_TOKENS, build_tokenizer, tokenizer_config


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer()


def test_building_twice_gives_the_same_tokenizer(tokenizer: Tokenizer) -> None:
    assert build_tokenizer().to_str() == tokenizer.to_str()


def test_curriculum_text_survives_and_needs_no_single_letters(tokenizer: Tokenizer) -> None:
    rng = random.Random(2)
    lone = {tokenizer.token_to_id(letter) for letter in set(string.ascii_letters) - set("ABCD")}
    for _ in range(300):
        row = draw_row(rng, Mixture())
        text = row.prompt + "".join(piece for piece, _ in row.reply)
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert not lone & set(ids)


TEXTS = [
    "#### 42",
    "Hello, World: 3.14 <b>!\n\tdone",
    "  two  spaces ",
    string.printable[:95],
    "1+3=<<1+3=4>>4",
]


@pytest.mark.parametrize("text", TEXTS)
def test_any_ascii_text_survives(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_digits_are_single_tokens_and_the_final_answer_is_found(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode(" Tom has 4+38=<<4+38=42>>42 pens.\n#### 42")
    assert [token for token in encoding.tokens if re.search(r"\d", token)] == list("438438424242")
    match = re.search(r"#### (\-?[0-9\.\,]+)", tokenizer.decode(encoding.ids))
    assert match is not None
    assert match[1] == "42"


def test_a_letter_after_a_space_is_one_token(tokenizer: Tokenizer) -> None:
    assert [tokenizer.encode(f"Answer: {letter}").tokens[2:] for letter in "ABCD"] == [
        [f" {x}"] for x in "ABCD"
    ]


def test_special_tokens_are_one_token_and_vanish_when_skipped(tokenizer: Tokenizer) -> None:
    for token in SPECIAL_TOKENS:
        assert len(tokenizer.encode(token).ids) == 1
        assert tokenizer.decode(tokenizer.encode(token).ids) == ""


def test_an_encoded_reply_ends_with_the_stop_token_and_is_learned_after_the_prompt(
    tokenizer: Tokenizer,
) -> None:
    encoder, rng = Encoder(tokenizer), random.Random(9)
    for _ in range(100):
        row = draw_row(rng, Mixture(equation_drill=0, option_drill=0))
        example = encoder.encode(row)
        assert example.ids[-1] == encoder.end
        assert example.learned == (False,) * example.given + (True,) * (len(example.ids) - example.given)
        assert tokenizer.decode(example.ids[: example.given], skip_special_tokens=False) == row.prompt


def test_the_chat_template_gives_the_format_that_training_uses(tokenizer: Tokenizer) -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = jinja2.Template(tokenizer_config()["chat_template"])
    rng = random.Random(1)
    row = draw_row(rng, Mixture(chat=1.0, equation_drill=0, option_drill=0))
    content = row.prompt.removeprefix("<|im_start|>user\n").split("<|im_end|>")[0]
    rendered = template.render(messages=[{"role": "user", "content": content}], add_generation_prompt=True)
    assert rendered == row.prompt
