import random
import re

import pytest

from unmask.training.curriculum.choice import LETTERS, Choice, draw_choice
from unmask.training.curriculum.drills import draw_equation_drill, draw_facts_drill, draw_option_drill
from unmask.training.curriculum.instruction import draw_instruction
from unmask.training.curriculum.problem import split_of
from unmask.training.curriculum.rows import Mixture, draw_row
from unmask.training.curriculum.stories import draw_problem

RANGES = (20, 40, 60, 99)


@pytest.mark.parametrize("largest", RANGES)
def test_problems_keep_to_their_range_and_solve_themselves(largest: int) -> None:
    rng = random.Random(largest)
    for _ in range(150):
        problem = draw_problem(rng, largest, "train")
        equations = re.findall(r"<<(\d+)([-+*/])(\d+)=(\d+)>>(\d+)", problem.chain())
        assert 2 <= len(equations) == len(problem.steps) <= 4
        for left, operator, right, result, repeated in equations:
            value = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}
            assert int(result) == value.get(operator, int(left) / int(right))
            assert result == repeated
            assert 0 < max(int(left), int(right), int(result)) <= largest
        assert problem.chain().endswith(f"#### {equations[-1][3]}")


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


def test_options_differ_and_exactly_one_is_right() -> None:
    rng = random.Random(4)
    for _ in range(300):
        choice = draw_choice(rng, 60, "held_out")
        assert len(set(choice.short_options)) == len(set(choice.text_options)) == len(LETTERS)
        assert choice.short_options[choice.correct] == answer_by_reading(choice)


def answer_by_reading(choice: Choice) -> str:
    if choice.kind in ("thing", "number", "ranking"):
        lines = [line.split() for line in choice.text_options]
        asked = choice.question.removeprefix("Who has ").removesuffix("?")
        if choice.kind == "ranking":
            best = max if "most" in asked else min
            return " ".join(best(lines, key=lambda line: int(line[2])))
        return next(" ".join(line) for line in lines if asked in (f"the {line[3]}", f"{line[2]} {line[3]}"))
    first, change = map(int, re.findall(r"\d+", choice.question))
    if choice.kind == "start":
        return str(first)
    lost = re.search(r"gives \d|loses|sells|throws|takes|drops|leaves|uses", choice.question)
    return str(first - change if lost else first + change)


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


def test_fact_drills_are_true_and_never_ask_twice() -> None:
    rng = random.Random(7)
    for _ in range(60):
        (listed, _), *questions = draw_facts_drill(rng, 60)
        lines = {line[-1]: line.split()[:-1] for line in listed.splitlines()}
        numbers = [int(line[2]) for line in lines.values()]
        assert len({asked for asked, learned in questions if not learned}) == len(questions) // 2
        for (asked, _), (letter, _) in zip(questions[::2], questions[1::2], strict=True):
            _, _, number, things = lines[letter.strip()]
            extreme = {max(numbers): "the most", min(numbers): "the fewest"}.get(int(number), "none")
            fitting = [f"\nQuestion: Who has {word} {things}?\nAnswer:" for word in (number, "the", extreme)]
            assert asked in fitting
