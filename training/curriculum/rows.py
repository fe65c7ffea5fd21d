"""Turns problems, choices and instructions into prompts and replies, as training and the shipped tasks use them."""

from __future__ import annotations

import dataclasses
import random

from training.curriculum.choice import draw_choice, draw_text_choice
from training.curriculum.drills import Piece, draw_equation_drill, draw_option_drill
from training.curriculum.instruction import Instruction, draw_instruction
from training.curriculum.problem import Problem
from training.curriculum.stories import draw_problem

CHAT_START = "<|im_start|>user\n"
CHAT_END = "<|im_end|>\n<|im_start|>assistant\n"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """Shares of the kinds of training examples, of number ranges and of the chat format."""

    arith: float = 0.50
    choice: float = 0.17
    choice_text: float = 0.11
    instruction: float = 0.04
    equation_drill: float = 0.10
    option_drill: float = 0.08
    chat: float = 0.3
    ranges: tuple[tuple[int, float], ...] = ((20, 0.1), (40, 0.15), (60, 0.2), (99, 0.55))

    def kinds(self) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """The kinds and their shares."""
        names = ("arith", "choice", "choice_text", "instruction", "equation_drill", "option_drill")
        return names, tuple(float(getattr(self, name)) for name in names)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A prompt and the pieces of its reply; a drill has an empty prompt."""

    kind: str
    prompt: str
    reply: tuple[Piece, ...]


def arith_prompt(problem: Problem) -> str:
    """The question as the `unmask_arith` task puts it."""
    return f"Question: {problem.question}\nAnswer:"


def instruction_prompt(instruction: Instruction) -> str:
    """The order with room for a reply."""
    return f"{instruction.order}\nAnswer:"


def draw_row(rng: random.Random, mixture: Mixture) -> Row:
    """Draw one training row."""
    names, shares = mixture.kinds()
    kind = rng.choices(names, shares)[0]
    ranges, weights = zip(*mixture.ranges, strict=True)
    largest = rng.choices(ranges, weights)[0]
    if kind == "equation_drill":
        return Row(kind=kind, prompt="", reply=tuple(draw_equation_drill(rng, largest)))
    if kind == "option_drill":
        return Row(kind=kind, prompt="", reply=tuple(draw_option_drill(rng, largest)))
    prompt, reply = _question(rng, kind, largest)
    if kind in ("instruction", "arith") and rng.random() < mixture.chat:
        return Row(kind=kind, prompt=f"{CHAT_START}{prompt}{CHAT_END}", reply=((reply, True),))
    return Row(kind=kind, prompt=prompt, reply=((f" {reply}", True),))


def _question(rng: random.Random, kind: str, largest: int) -> tuple[str, str]:
    if kind == "arith":
        problem = draw_problem(rng, largest, "train")
        return arith_prompt(problem), problem.chain(rng)
    if kind == "instruction":
        instruction = draw_instruction(rng, "train")
        return instruction_prompt(instruction), instruction.reply
    draw = draw_choice if kind == "choice" else draw_text_choice
    choice = draw(rng, largest, "train")
    return choice.prompt, choice.options[choice.correct]
