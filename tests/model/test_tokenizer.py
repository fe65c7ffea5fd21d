import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tokenizer_folders import (
    AWKWARD_TEMPLATE,
    MASK,
    TURNS_TEMPLATE,
    WRITERS,
    described,
    train_backend,
    write,
    write_plain,
    write_qwen,
    write_sdar,
)

from unmask.errors import UnmaskError
from unmask.model.token_files import find_mask_token
from unmask.model.tokenizer import Tokenizer

ASK = {"role": "user", "content": "Why?"}


@pytest.fixture(scope="module", params=WRITERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param))


def with_template(folder: Path, template: Any, **config: Any) -> Tokenizer:
    return Tokenizer.from_folder(write(folder, train_backend(), {"chat_template": template, **config}))


def error(action: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(UnmaskError) as caught:
        action(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


# --- text and ids


@pytest.mark.parametrize("text", ["", " a  b\n\n", "Grüße, 東京 👩‍👩‍👧", "\x00\u200b", "it's 12"])
def test_decoding_gives_back_what_was_encoded(folder: Path, text: str) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_become_one_id_and_are_left_out_of_texts(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_qwen(tmp_path))
    ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>")
    assert ids[0] == tokenizer.token_id("<|im_start|>")
    assert ids[-1] == tokenizer.token_id("<|im_end|>")
    assert tokenizer.decode(ids) == "user\nhi"


def test_surroundings_are_added_only_when_asked_for(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_plain(tmp_path))
    bare = tokenizer.encode("the dog", special=False)
    assert tokenizer.encode("the dog") == [tokenizer.token_id("<s>"), *bare]


def test_leftover_truncation_and_padding_have_no_effect(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_plain(tmp_path))
    assert len(tokenizer.encode("7 " * 100, special=False)) >= 200
    assert tokenizer.encode("", special=False) == []


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_qwen(tmp_path))
    assert "UTF-8" in error(tokenizer.encode, "\ud83d")


def test_loading_needs_neither_torch_nor_transformers(tmp_path: Path) -> None:
    write_qwen(tmp_path)
    script = (
        "import sys; from pathlib import Path; from unmask.model.tokenizer import Tokenizer\n"
        "from unmask.model.token_files import find_mask_token\n"
        f"Tokenizer.from_folder(Path({str(tmp_path)!r}))\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# --- tokens that other files add


def test_mask_token_has_the_id_that_the_files_give_it(tmp_path: Path) -> None:
    size = train_backend().get_vocab_size()
    for name in ("qwen", "old"):
        folder = WRITERS[name](tmp_path / name)
        tokenizer = Tokenizer.from_folder(folder)
        assert tokenizer.mask_token_id == tokenizer.token_id(MASK) == find_mask_token(folder) == size
        assert tokenizer.encode(MASK) == [size]


def test_no_mask_token_is_invented(tmp_path: Path) -> None:
    folder = write_plain(tmp_path)
    assert Tokenizer.from_folder(folder).mask_token_id is None
    assert find_mask_token(folder) is None
    assert find_mask_token(tmp_path / "nothing here") is None


def test_named_mask_token_wins_over_the_usual_text(tmp_path: Path) -> None:
    backend = train_backend()
    backend.add_special_tokens([MASK, "<gap>"])
    for number, named in enumerate(["<gap>", {"content": "<gap>"}]):
        folder = write(tmp_path / str(number), backend, {"mask_token": named})
        assert find_mask_token(folder) == Tokenizer.from_folder(folder).mask_token_id
        assert find_mask_token(folder) == backend.token_to_id("<gap>")


def test_mask_token_of_tokenizer_json_alone_is_found(tmp_path: Path) -> None:
    backend = train_backend()
    backend.add_special_tokens([MASK])
    folder = write(tmp_path, backend, None)
    assert find_mask_token(folder) == Tokenizer.from_folder(folder).mask_token_id == backend.token_to_id(MASK)


def test_mask_token_is_found_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "added_tokens.json").write_text(json.dumps({MASK: 151665}))
    assert find_mask_token(tmp_path) == 151665


def test_added_tokens_are_read_beside_a_described_set_that_lacks_them(tmp_path: Path) -> None:
    backend = train_backend()
    size = backend.get_vocab_size()
    config = {"added_tokens_decoder": described(backend)}
    folder = write(tmp_path, backend, config, added_tokens={MASK: size, "<|im_end|>": size - 1})
    assert Tokenizer.from_folder(folder).mask_token_id == size


def test_a_vocabulary_with_merges_is_a_tokenizer_too(tmp_path: Path) -> None:
    whole, parts = Tokenizer.from_folder(write_qwen(tmp_path / "whole")), write_sdar(tmp_path / "parts")
    tokenizer = Tokenizer.from_folder(parts)
    assert tokenizer.mask_token_id == tokenizer.token_id("<|MASK|>") == find_mask_token(parts)
    for text in ("def add(a, b):\n\n    return 12", "Gru\u0308\u00dfe, it's <|im_end|> 東京"):
        assert tokenizer.encode(text) == whole.encode(text)
    (parts / "merges.txt").write_text("#version: 0.2\na b c\n")
    assert "vocab.json cannot be read as a tokenizer" in error(Tokenizer.from_folder, parts)
    (parts / "merges.txt").unlink()
    assert "has no tokenizer.json" in error(Tokenizer.from_folder, parts)


def test_merges_of_another_class_are_not_guessed_at(tmp_path: Path) -> None:
    folder = write_sdar(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"}))
    assert "has no tokenizer.json" in error(Tokenizer.from_folder, folder)


@pytest.mark.parametrize("text", ["<|MASK|>", "<MASK>"])
def test_a_mask_token_that_no_file_names_is_known_by_its_usual_texts(tmp_path: Path, text: str) -> None:
    backend = train_backend()
    size = backend.get_vocab_size()
    folder = write(tmp_path, backend, {"mask_token": "<mask of another file>"}, added_tokens={text: size})
    assert find_mask_token(folder) == Tokenizer.from_folder(folder).mask_token_id == size


def test_an_id_that_cannot_be_given_is_refused(tmp_path: Path) -> None:
    backend = train_backend()
    size = backend.get_vocab_size()
    gap = write(tmp_path / "gap", backend, None, added_tokens={MASK: size + 5})
    message = error(Tokenizer.from_folder, gap)
    assert MASK in message
    assert str(size + 5) in message
    moved = write(tmp_path / "moved", backend, None, added_tokens={"<|im_end|>": 3})
    assert "<|im_end|>" in error(Tokenizer.from_folder, moved)


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    backend = train_backend()
    config = {"added_tokens_decoder": {"500": {"content": MASK}}}
    folder = write(tmp_path, backend, config, added_tokens={MASK: 501})
    message = error(find_mask_token, folder)
    assert "500" in message
    assert "501" in message


# --- broken folders


def test_missing_tokenizer_says_that_ids_work(tmp_path: Path) -> None:
    assert "token ids" in error(Tokenizer.from_folder, tmp_path)


@pytest.mark.parametrize("content", ["{", "{}", "[]", "", "\x00"])
def test_broken_tokenizer_json_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    assert "tokenizer.json" in error(Tokenizer.from_folder, tmp_path)


@pytest.mark.parametrize(
    "file, content",
    [
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"added_tokens_decoder": [1]}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "y"}}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"7": "y"}}'),
        ("added_tokens.json", '{"x": "7"}'),
        ("special_tokens_map.json", "nothing"),
    ],
)
def test_broken_files_beside_it_are_refused(tmp_path: Path, file: str, content: str) -> None:
    write(tmp_path, train_backend(), None)
    (tmp_path / file).write_text(content)
    assert file in error(Tokenizer.from_folder, tmp_path)


# --- chats


def test_chat_is_rendered_with_a_prompt_for_the_answer(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, TURNS_TEMPLATE)
    assert tokenizer.has_chat_template
    chat = [{"role": "system", "content": "Be brief."}, ASK]
    turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
    assert tokenizer.render_chat(chat) == turns + "<|im_start|>assistant\n"
    assert tokenizer.render_chat(chat, add_generation_prompt=False) == turns


def test_final_message_is_left_open_to_be_continued(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, TURNS_TEMPLATE)
    chat = [ASK, {"role": "assistant", "content": "Because "}]
    text = tokenizer.render_chat(chat, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nBecause ")
    assert chat[1]["content"] == "Because "


def test_a_trimming_template_trims_the_message_to_be_continued(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}")
    chat = [ASK, {"role": "assistant", "content": " Because \n"}]
    assert tokenizer.render_chat(chat, continue_final_message=True) == "[Why?][Because"


def test_message_in_parts_is_continued_at_its_last_text(tmp_path: Path) -> None:
    source = "{% for m in messages %}{% for p in m.content %}<{{ p.text or p.type }}>{% endfor %}{% endfor %}"
    tokenizer = with_template(tmp_path, source)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]
    chat = [{"role": "assistant", "content": parts}]
    assert tokenizer.render_chat(chat, continue_final_message=True) == "<a><b"


def test_a_message_that_the_template_drops_cannot_be_continued(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, "{{ messages[0].content }}")
    chat = [ASK, {"role": "assistant", "content": "Because"}]
    assert "continued" in error(tokenizer.render_chat, chat, continue_final_message=True)
    chat[1] = {"role": "assistant", "content": None}
    assert "no text" in error(tokenizer.render_chat, chat, continue_final_message=True)


def test_awkward_template_renders_as_published_ones_expect(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, AWKWARD_TEMPLATE, bos_token={"content": "<s>"}, eos_token="</s>")
    chat = [{"role": "note", "content": "x"}, {"role": "json", "content": "é<&'"}]
    chat.append({"role": "assistant", "content": " yes "})
    assert tokenizer.render_chat(chat).replace(f"{datetime.now():%Y}", "YEAR") == (
        "<s>    no tools, YEAR\n"
        '[JSON]\n{"role": "json", "content": "é<&\'"}\n"é<&\'"\n'
        "[ASSISTANT]\nyes</s>\nFalse\n"
        "2[ASSISTANT]\n"
    )


def test_template_file_wins_and_the_default_of_several_is_taken(tmp_path: Path) -> None:
    several = [{"name": "rag", "template": "rag"}, {"name": "default", "template": "default"}]
    assert with_template(tmp_path / "list", several).render_chat([ASK]) == "default"
    with_template(tmp_path / "file", several)
    (tmp_path / "file" / "chat_template.jinja").write_text("file")
    assert Tokenizer.from_folder(tmp_path / "file").render_chat([ASK]) == "file"


@pytest.mark.parametrize("template", [None, [], [{"name": "rag", "template": "rag"}]])
def test_missing_template_says_what_to_give_instead(tmp_path: Path, template: Any) -> None:
    tokenizer = with_template(tmp_path, template)
    assert not tokenizer.has_chat_template
    assert "chat_template.jinja" in error(tokenizer.render_chat, [ASK])


@pytest.mark.parametrize(
    "template, said",
    [
        ("{{ raise_exception('only\n tools') }}", "only tools"),
        ("{% for %}", "not a valid template"),
        ("{{ messages[0].content + 1 }}", "cannot render"),
        ("{{ messages[0].missing.deeper }}", "cannot render"),
        ("{{ messages.append(1) }}", "cannot render"),
        ("{{ messages.__class__.__mro__ }}", "cannot render"),
        ("{% for i in range(10000000) %}{% endfor %}", "cannot render"),
    ],
)
def test_template_errors_are_one_sentence(tmp_path: Path, template: str, said: str) -> None:
    tokenizer = with_template(tmp_path, template)
    assert tokenizer.encode("text still works")
    assert said in error(tokenizer.render_chat, [ASK])


@pytest.mark.parametrize("chat", [[], ["hello"], [{"role": "user"}], [{"content": "hi"}]])
def test_malformed_chats_are_refused(tmp_path: Path, chat: Any) -> None:
    tokenizer = with_template(tmp_path, TURNS_TEMPLATE)
    error(tokenizer.render_chat, chat)


def test_template_that_is_not_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path, train_backend(), None)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    assert "chat_template.jinja" in error(Tokenizer.from_folder, tmp_path)
