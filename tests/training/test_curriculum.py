import random
import re

import pytest

from training.curriculum.choice import LETTERS, draw_choice, draw_text_choice
from training.curriculum.drills import draw_equation_drill, draw_option_drill
from training.curriculum.instruction import draw_instruction
from training.curriculum.problem import split_of
from training.curriculum.rows import Mixture, draw_row
from training.curriculum.stories import draw_problem
from training.curriculum.wording import (
    ADVERBS,
    OPENERS,
    PEOPLE,
    RESULT,
    TAILS,
    THE,
    Slot,
    draw_word,
    owner,
)

RANGES = (20, 40, 60, 99)


@pytest.mark.parametrize("largest", RANGES)
def test_problems_keep_to_their_range_and_solve_themselves(largest: int) -> None:
    rng = random.Random(largest)
    for _ in range(150):
        problem = draw_problem(rng, largest, "train")
        chain = problem.chain(rng)
        equations = re.findall(r"<<(\d+)([-+*/])(\d+)=(\d+)>>(\d+)", chain)
        assert 2 <= len(equations) == len(problem.steps) <= 4
        for left, operator, right, result, repeated in equations:
            value = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}
            assert int(result) == value.get(operator, int(left) / int(right))
            assert result == repeated
            assert 0 < max(int(left), int(right), int(result)) <= largest
        assert chain.endswith(f"#### {equations[-1][3]}")


def test_every_given_number_of_a_chain_comes_from_the_question_or_an_earlier_result() -> None:
    rng = random.Random(8)
    for _ in range(200):
        problem = draw_problem(rng, 99, "train")
        known = set(map(int, re.findall(r"\d+", problem.question)))
        for step in problem.steps:
            assert {step.left, step.right} <= known
            known.add(step.result)


def test_the_same_seed_gives_the_same_rows_and_another_seed_gives_others() -> None:
    def rows(seed: int) -> list[object]:
        rng = random.Random(seed)
        return [draw_row(rng, Mixture()) for _ in range(60)]

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_every_drawn_content_belongs_to_its_split_alone() -> None:
    for split, other in (("train", "held_out"), ("held_out", "train")):
        rng = random.Random(3)
        contents = {draw_problem(rng, 20, split).canonical for _ in range(150)}
        contents |= {draw_choice(rng, 20, split).canonical for _ in range(150)}
        contents |= {draw_instruction(rng, split).canonical for _ in range(100)}
        assert {split_of(content) for content in contents} == {split}
        assert other not in {split_of(content) for content in contents}


def test_the_split_ignores_names_and_wording() -> None:
    rng = random.Random(11)
    by_content: dict[str, set[str]] = {}
    for _ in range(3000):
        problem = draw_problem(rng, 20, "train")
        by_content.setdefault(problem.canonical, set()).add(problem.question)
    assert any(len(questions) > 1 for questions in by_content.values())


def test_the_wording_is_open_and_leaves_the_question_and_the_content_alone() -> None:
    problems = [draw_problem(random.Random(12), 99, "train") for _ in range(2)]
    assert problems[0] == problems[1]
    chains = {problems[0].chain(random.Random(seed)) for seed in range(50)}
    assert len(chains) > 40
    assert len({tuple(re.findall(r"\d+[-+*/]\d+", chain)) for chain in chains}) == 1


@pytest.mark.parametrize(
    "slot", [OPENERS, ADVERBS, THE, RESULT.subject, PEOPLE.verbs, owner("Tom", "He").subject]
)
def test_every_choice_of_words_has_a_favourite_of_60_to_80_percent(slot: Slot) -> None:
    shares = [share for _, share in slot]
    assert sum(shares) == pytest.approx(1)
    assert 0.6 <= shares[0] == max(shares) <= 0.8
    rng = random.Random(7)
    drawn = [draw_word(rng, slot) for _ in range(2000)]
    assert drawn.count(slot[0][0]) / len(drawn) == pytest.approx(shares[0], abs=0.04)


def test_the_words_of_a_tail_begin_alike_in_60_percent() -> None:
    assert sum(share for _, share in TAILS) == pytest.approx(1)
    assert sum(share for tail, share in TAILS if tail.startswith("in ")) == pytest.approx(0.6)


def test_an_order_is_fulfilled_by_its_reply() -> None:
    rng = random.Random(15)
    for _ in range(300):
        instruction = draw_instruction(rng, "held_out")
        given = re.findall(r"\d+", instruction.order)
        words = re.findall(r"\w+", instruction.reply)
        if instruction.order.startswith("Count"):
            first, last = map(int, given)
            sign = 1 if last > first else -1
            assert list(map(int, words)) == list(range(first, last + sign, sign))
        elif given:
            counts = [words.count(word) for word in dict.fromkeys(words)]
            assert counts == list(map(int, given))
        else:
            listed = re.findall(r"\w+", instruction.order.split(":")[1])
            picked = {"first": listed[:1], "last": listed[-1:]}.get(words[1])
            assert words[-1:] == picked if picked else words == listed[::-1]


def test_the_letter_asked_for_stands_behind_the_one_line_that_fits() -> None:
    rng = random.Random(4)
    for _ in range(300):
        choice = draw_choice(rng, 60, "held_out")
        *lines, question = choice.prompt.splitlines()
        asked = question.removeprefix("Answer for ")
        key = asked if choice.kind == "thing" else str(eval(asked))
        assert [line[-1] for line in lines if key in line.split()] == [choice.options[choice.correct]]
        assert choice.kind == "thing" or any(sign in asked for sign in "+-") == (choice.kind == "sum")


def test_of_four_sentences_only_one_ends_the_worked_answer() -> None:
    rng = random.Random(14)
    for _ in range(200):
        choice = draw_text_choice(rng, 99, "held_out")
        assert len(set(choice.options)) == len(LETTERS)
        last = choice.canonical.split(";")[-1]
        right = [line for line in choice.options if f"<<{last}={int(eval(last))}>>{int(eval(last))} " in line]
        assert right == [choice.options[choice.correct]]


def test_letters_are_balanced_so_that_guessing_one_gives_a_quarter() -> None:
    rng = random.Random(5)
    counts = [0] * len(LETTERS)
    for _ in range(1200):
        counts[draw_choice(rng, 99, "held_out").correct] += 1
    assert max(counts) < 0.32 * sum(counts)


def test_drills_are_true() -> None:
    rng = random.Random(6)
    for _ in range(50):
        pieces = draw_equation_drill(rng, 99)
        for (left, left_learned), (right, right_learned) in zip(pieces[::2], pieces[1::2], strict=True):
            value = eval(left.strip("<=").replace("/", "//"))
            assert (right, left_learned, right_learned) == (f"{value}>>", False, True)
        listed, *questions = draw_option_drill(rng, 99)
        options = {letter: number for number, letter in (line.split() for line in listed[0].splitlines())}
        for (asked, _), (letter, _) in zip(questions[::2], questions[1::2], strict=True):
            value = asked.strip() if asked.strip().isalpha() else str(eval(asked))
            assert options[letter.strip()] == value
