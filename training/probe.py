"""Held-out accuracy while training runs: exact match of decoded replies, per task and range of numbers."""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Final

from training.curriculum.choice import draw_choice
from training.curriculum.rows import arith_prompt
from training.curriculum.stories import draw_problem
from training.encoding import Encoder
from training.manner import Decode
from training.network import Network

RANGES: Final = (20, 40, 60, 99)
_FINAL: Final = re.compile(r"#### (-?[0-9.,]+)")
_PROBE_SEED: Final = 77_001


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A held-out prompt and the reply that counts as right; a number is looked for after `####`."""

    prompt: str
    expected: str
    chain: bool


def arith_questions(largest: int, count: int, seed: int = _PROBE_SEED) -> list[Question]:
    """Held-out word problems."""
    rng = random.Random(f"{seed}/arith/{largest}")
    problems = [draw_problem(rng, largest, "held_out") for _ in range(count)]
    return [Question(prompt=arith_prompt(p), expected=str(p.answer), chain=True) for p in problems]


def choice_questions(largest: int, count: int, seed: int = _PROBE_SEED) -> list[Question]:
    """Held-out questions to be answered by a letter."""
    rng = random.Random(f"{seed}/choice/{largest}")
    choices = [draw_choice(rng, largest, "held_out") for _ in range(count)]
    return [Question(prompt=c.prompt, expected=c.options[c.correct], chain=False) for c in choices]


def accuracy(network: Network, encoder: Encoder, questions: list[Question], decode: Decode) -> float:
    """Share of questions whose decoded reply is right."""
    prompts = [encoder.tokenizer.encode(question.prompt).ids for question in questions]
    replies = decode(network, prompts, mask=encoder.mask, stop=encoder.end)
    texts = encoder.tokenizer.decode_batch(replies)
    right = [is_right(question, text) for question, text in zip(questions, texts, strict=True)]
    return sum(right) / len(right)


def is_right(question: Question, reply: str) -> bool:
    """Whether a reply is right."""
    if not question.chain:
        return reply.strip() == question.expected
    match = _FINAL.search(reply)
    return match is not None and match[1] == question.expected


def probe(network: Network, encoder: Encoder, count: int, decode: Decode) -> dict[str, float]:
    """Accuracy on all tasks with `count` questions each."""
    tasks = {f"arith_{r}": arith_questions(r, count) for r in RANGES}
    tasks["choice"] = choice_questions(99, count)
    return {name: accuracy(network, encoder, questions, decode) for name, questions in tasks.items()}
