"""Small tokenizer folders made on the fly: a byte-level BPE in three of the layouts that published folders have."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

MASK = "|<MASK>|"
CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "A block of thirty-two tokens is unmasked step by step; the most confident ones come first.",
    "Grüße aus Köln! 東京は今日も晴れです。 Привет, мир. 12345 + 67890 = 80235",
    "def add(a, b):\n    return a + b\n\n\n\tprint(add(1, 2))",
]
# The pieces Qwen2's tokenizers cut a text into before merging.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

TURNS_TEMPLATE = """\
{%- if messages[0]['role'] != 'system' -%}
    {{- '<|im_start|>system\\nYou are a careful assistant.<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message['role'] not in ['system', 'user', 'assistant'] -%}
        {{- raise_exception('unknown role ' + message['role']) -}}
    {%- endif -%}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

# Whitespace control left to the environment, trimmed contents, and what published templates lean on.
AWKWARD_TEMPLATE = """\
{{ bos_token }}{# a comment #}
{% set ns = namespace(count=0) %}
{% if tools is none and documents is none %}
    no tools, {{ strftime_now('%Y') }}
{% endif %}
{% for message in messages %}
    {% if message.role == 'note' %}
        {% continue %}
    {% endif %}
    {% if loop.index > 5 %}
        {% break %}
    {% endif %}
    {% set ns.count = ns.count + 1 %}
[{{ message.role | upper }}]
    {% if message.role == 'assistant' %}
        {% generation %}
            {% set inner = 'inside' %}
{{ message.content | trim }}{{ eos_token }}
        {% endgeneration %}
{{ inner is defined }}
    {% elif message.role == 'json' %}
{{ message | tojson }}
{{ message.content | tojson(indent=2) }}
    {% else %}
  {{ message['content'] | trim }}  {{ pad_token is defined }}
    {% endif %}
{% endfor %}
{{ ns.count }}{% if add_generation_prompt %}
[ASSISTANT]
{% endif %}

"""


# What Qwen3's template leans on: turns looked through backwards, thoughts cut out of earlier answers.
THINKING_TEMPLATE = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == 'user' and message.content is string %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == 'assistant' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + (thought or '') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# Llama's: BOS by the template, a system prompt folded into the first turn, strict order of roles.
INSTRUCTION_TEMPLATE = """\
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}\
{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}\
{% for message in loop_messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}\
{% if loop.index0 == 0 and system != false %}\
{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}\
{% endfor %}"""


def train_backend() -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens(CHAT_TOKENS)
    return backend


def write(folder: Path, backend: Tokenizer, config: dict[str, Any] | None, **files: Any) -> Path:
    """Write a folder; further files are given by their names without `.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    for name, content in {"tokenizer_config": config, **files}.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def described(backend: Tokenizer) -> dict[str, Any]:
    """`added_tokens_decoder` of what the backend knows already."""
    return {str(number): flags(token) for number, token in backend.get_added_tokens_decoder().items()}


def flags(token: AddedToken) -> dict[str, Any]:
    return json.loads(json.dumps(token.__getstate__()))


def write_qwen(folder: Path) -> Path:
    """Like a folder saved today; the mask token is known to tokenizer_config.json alone."""
    backend = train_backend()
    mask = flags(AddedToken(MASK, special=True))
    tokens = described(backend) | {str(backend.get_vocab_size()): mask}
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "added_tokens_decoder": tokens,
        "chat_template": TURNS_TEMPLATE,
    }
    return write(folder, backend, config)


def write_old(folder: Path) -> Path:
    """Like an old folder: added_tokens.json and special_tokens_map.json; the template is a file of its own."""
    backend = train_backend()
    size = backend.get_vocab_size()
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
        "chat_template": "this one loses",
    }
    added = {"<extra>": size + 1, MASK: size}
    roles = {"eos_token": "<|im_end|>", "mask_token": {"content": MASK, "lstrip": False, "rstrip": False}}
    write(folder, backend, config, added_tokens=added, special_tokens_map=roles)
    (folder / "chat_template.jinja").write_text(TURNS_TEMPLATE, encoding="utf-8")
    return folder


def write_plain(folder: Path) -> Path:
    """A BOS put before texts, leftover truncation and padding, odd flags, named templates, tokens as objects."""
    backend = train_backend()
    backend.add_special_tokens(["<s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    backend.enable_truncation(max_length=4)
    backend.enable_padding(length=6, pad_id=backend.token_to_id("<|endoftext|>"), pad_token="<|endoftext|>")
    tokens = described(backend)
    size = backend.get_vocab_size()
    tokens[str(size)] = flags(AddedToken("<left>", lstrip=True, special=True))
    tokens[str(size + 1)] = flags(AddedToken("<right>", rstrip=True, normalized=False))
    tokens[str(size + 2)] = flags(AddedToken("word", single_word=True))
    # Described otherwise than in tokenizer.json: the description wins.
    tokens[str(backend.token_to_id("<|im_start|>"))]["special"] = False
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"__type": "AddedToken", **flags(AddedToken("<s>", special=True))},
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "added_tokens_decoder": tokens,
        "chat_template": [
            {"name": "tool_use", "template": "not this one"},
            {"name": "default", "template": AWKWARD_TEMPLATE},
        ],
    }
    return write(folder, backend, config)


def write_qwen3(folder: Path) -> Path:
    """Like Qwen3's: tokens that are none of a text's specials, and no BOS or EOS around texts, said outright."""
    backend = train_backend()
    backend.add_tokens(["<think>", "</think>"])
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_bos_token": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "added_tokens_decoder": described(backend),
        "chat_template": THINKING_TEMPLATE,
    }
    return write(folder, backend, config)


def write_sdar(folder: Path) -> Path:
    """As SDAR's may be: vocabulary and merges without tokenizer.json, a mask token of another spelling."""
    backend = train_backend()
    size = backend.get_vocab_size()
    mask = {str(size): flags(AddedToken("<|MASK|>", special=True))}
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|MASK|>",
        "added_tokens_decoder": described(backend) | mask,
        "chat_template": THINKING_TEMPLATE,
    }
    write(folder, backend, config)
    (folder / "tokenizer.json").unlink()
    backend.model.save(str(folder))
    return folder


def write_llama(folder: Path) -> Path:
    """Like Llama's: words marked by a low line, bytes as tokens, and a BOS before texts.

    The class is none of Llama's own, for which transformers 5 takes vocabulary and merges alone out of tokenizer.json.
    """
    backend = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    specials = ["<unk>", "<s>", "</s>"]
    trainer = BpeTrainer(
        vocab_size=700,
        show_progress=False,
        special_tokens=specials + [f"<0x{byte:02X}>" for byte in range(256)],
    )
    backend.train_from_iterator(CORPUS, trainer)
    stored = json.loads(backend.to_str())
    stored["added_tokens"] = [token for token in stored["added_tokens"] if token["content"] in specials]
    backend = Tokenizer.from_str(json.dumps(stored))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": described(backend),
        "chat_template": INSTRUCTION_TEMPLATE,
    }
    return write(folder, backend, config)


def write_smollm(folder: Path) -> Path:
    """Like SmolLM2's: bytes and digits one by one, no BOS before texts although there is one."""
    backend = train_backend()
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": described(backend),
        "chat_template": TURNS_TEMPLATE,
    }
    return write(folder, backend, config)


WRITERS = {
    "qwen": write_qwen,
    "old": write_old,
    "plain": write_plain,
    "qwen3": write_qwen3,
    "sdar": write_sdar,
    "llama": write_llama,
    "smollm": write_smollm,
}
