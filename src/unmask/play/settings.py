"""The settings of one side as a person writes them, each in a field of its own, and what is made of them.

A bad field is answered with the sentence that the engine has for it, and the name of the field. Opens checkpoints, but
loads no weights.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import msgspec

from unmask.engine.prompt import PromptEncoder, Request
from unmask.errors import UnmaskError
from unmask.model.checkpoint import Checkpoint
from unmask.policies.registry import make_policy
from unmask.policies.text import read_policy, read_rule
from unmask.spec import AnyPolicySpec, DecodeSpec, build
from unmask.spec.build import shown
from unmask.spec.decode import ResolvedSpec
from unmask.spec.family import CacheName, EndOfText
from unmask.spec.recipe import EMBEDDED

SIDES = ("A", "B")
Opened = Callable[[str], tuple[Checkpoint, int | None]]
"""Opens the checkpoint of a name, and says its mask token."""


class Field(NamedTuple):
    """One setting of a side: its name, what stands beside it, and words to choose from."""

    name: str
    label: str
    hint: str
    words: tuple[str, ...] = ()
    closed: bool = False
    """Whether nothing but the words is possible."""
    usual: bool = True
    """Whether it is shown at once, or with the rarer ones."""


FIELDS = (
    Field("model", "Checkpoint", "embedded, a folder, or a hub id", EMBEDDED),
    Field(
        "policy",
        "Policy",
        "nothing is reused",
        (
            "trim:keep=0",
            "trim:keep=0.5",
            "layer_reuse:k=2,unit=output",
            "layer_reuse:k=2,unit=residual,on=sub+block",
            "layer_reuse:k=2,layers=middle,unit=mlp",
            "adaptive",
        ),
    ),
    Field(
        "rule",
        "Unmasking rule",
        "the family's",
        ("top_n:n=1", "top_n:steps=4,score=entropy", "sequential:n=1", "entropy_bound:bound=0.5", "factor"),
    ),
    Field("threshold", "Threshold", "the family's"),
    Field("cache", "Cache", "the family's", get_args(CacheName), closed=True),
    Field("sub_block_size", "Sub-block", "positions; the family's", usual=False),
    Field("block_size", "Block", "positions; the checkpoint's", usual=False),
    Field("refresh_every", "Refresh every", "steps; never", usual=False),
    Field("temperature", "Temperature", "0: the likeliest token", usual=False),
    Field("top_p", "Top p", "the family's", usual=False),
    Field("top_k", "Top k", "all tokens", usual=False),
    Field("guidance", "Guidance", "none", usual=False),
    Field("end_of_text", "End of text", "not held back", get_args(EndOfText), closed=True, usual=False),
    Field("seed", "Seed", "0", usual=False),
)
DECODE_FIELDS = tuple(field.name for field in FIELDS if field.name not in ("model", "policy"))


class FieldsRefused(UnmaskError):  # noqa: N818 (it is no defect)
    """Settings that cannot be honoured: one sentence for each field, whose name is `A.policy` or `prompt`."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        super().__init__(" ".join(sentences.values()))
        self.sentences = dict(sentences)


@dataclass(frozen=True, slots=True)
class Question:
    """What both sides are asked."""

    prompt: str
    chat: bool
    """Whether the prompt is put through the checkpoint's chat template."""
    max_new_tokens: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One side, checked: everything that a decoding needs but the weights."""

    model: str
    checkpoint: Checkpoint
    spec: ResolvedSpec
    policy: AnyPolicySpec | None
    prompt: list[int]
    words: dict[str, str]
    """The fields that were written."""


def checked(question: Question, sides: list[Mapping[str, str]], opened: Opened) -> list[Setting]:
    """The settings of all sides, or every sentence there is to say about them."""
    settings: list[Setting] = []
    sentences: dict[str, str] = {}
    for name, words in zip(SIDES, sides, strict=False):
        try:
            settings.append(_checked(question, dict(words), opened))
        except FieldsRefused as refused:
            shared = {"prompt", "max_new_tokens"}
            for field, sentence in refused.sentences.items():
                sentences.setdefault(field if field in shared else f"{name}.{field}", sentence)
    if sentences:
        raise FieldsRefused(sentences)
    return settings


def _checked(question: Question, words: dict[str, str], opened: Opened) -> Setting:
    words = {name: text.strip() for name, text in words.items() if text.strip()}
    model = words.get("model", "")
    try:
        checkpoint, mask_token = opened(model)
    except UnmaskError as error:
        raise FieldsRefused({"model": str(error)}) from None
    sentences: dict[str, str] = {}
    decode: dict[str, Any] = {}
    for name in DECODE_FIELDS:
        if name in words:
            with _noting(sentences, name):
                decode[name] = value_of(name, words[name])
                checkpoint.config.decoded(build(DecodeSpec, {name: decode[name]}, "Decode settings"))
    policy = None
    if "policy" in words:
        with _noting(sentences, "policy"):
            policy = read_policy(words["policy"])
            make_policy(policy, checkpoint.config.num_layers)
    with _noting(sentences, "max_new_tokens"):
        decode["max_new_tokens"] = value_of("max_new_tokens", question.max_new_tokens or "128")
        build(DecodeSpec, {"max_new_tokens": decode["max_new_tokens"]}, "Decode settings")
    prompt: list[int] = []
    with _noting(sentences, "prompt"):
        prompt = _ids(question, checkpoint, mask_token)
    if sentences:
        raise FieldsRefused(sentences)
    try:
        spec = checkpoint.config.decoded(build(DecodeSpec, decode, "Decode settings"))
    except UnmaskError as error:
        # Each setting can be honoured, but two of them exclude each other.
        field = next((name for name in decode if name in str(error)), "model")
        raise FieldsRefused({field: str(error)}) from None
    return Setting(model, checkpoint, spec, policy, prompt, words)


@contextmanager
def _noting(sentences: dict[str, str], field: str) -> Iterator[None]:
    """Note the sentence of an error under a field instead of raising it."""
    try:
        yield
    except UnmaskError as error:
        sentences[field] = str(error)


def value_of(name: str, text: str) -> Any:
    """The value of a decode setting, made of text; a word that it does not know stays text, which the spec refuses."""
    if name == "rule":
        return msgspec.to_builtins(read_rule(text))
    (kind,) = (field.type for field in msgspec.structs.fields(DecodeSpec) if field.name == name)
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        for number, words in ((int, "whole number"), (float, "number")):
            if number in (kind, *get_args(kind)):
                raise UnmaskError(f"{name} is {shown(text)}; it must be a {words}.") from None
        return text


def _ids(question: Question, checkpoint: Checkpoint, mask_token: int | None) -> list[int]:
    encoder = PromptEncoder(checkpoint.config, mask_token, lambda: checkpoint.tokenizer)
    return encoder.ids(Request(question.prompt), question.chat)
