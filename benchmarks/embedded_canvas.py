"""Scores of choices and lengths of canvases: two tables of the second embedded model's card, by one command.

    python benchmarks/embedded_canvas.py --card src/unmask/assets/embedded_canvas/README.md

The other tables of the card come from recipe 06 (`canvas_findings.py`). There is no clock here. Finished lines show
on stderr; the last line of stdout is one JSON document.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import unmask
from embedded import Row, Table, add_line, describe, final_number, paired, read_rows
from pages import put_into_page
from unmask.engine.score import ScoreRequest

DECODE: dict[str, Any] = {"sub_block_size": 8, "threshold": 0.9, "cache": "dual"}
LENGTHS = (128, 96, 112, 160, 192)
DRAWS = 16


def choose(engine: unmask.Engine, rows: list[Row], estimator: Any, decode: dict[str, Any]) -> list[bool]:
    """Whether the likeliest option is the right one."""
    encode = engine.tokenizer.encode
    requests = [
        ScoreRequest(encode(row["prompt"]), encode(f" {option}")) for row in rows for option in row["options"]
    ]
    scores = iter(engine.score(requests, estimator, decode=decode).scores)
    options = [[next(scores).logprob for _ in row["options"]] for row in rows]
    return [values.index(max(values)) == row["answer"] for values, row in zip(options, rows, strict=True)]


def choice_table(engine: unmask.Engine, count: int) -> Table:
    """Choices by both estimators."""
    lines = ["| task | estimator | n | right | 95 % interval |", "|---|---|---|---|---|"]
    few = min(count, 100)
    dual = {"cache": "dual", "sub_block_size": 8}
    for task, estimator, decode, rows, words in (
        ("choice", "chain", {}, count, "`chain`, no cache"),
        ("choice_text", "chain", dual, count, "`chain`, dual cache, sub-blocks of 8"),
        ("choice_text", "chain", {"sub_block_size": 8}, few, "`chain`, no cache, sub-blocks of 8"),
        ("choice_text", "chain", {}, few, "`chain`, no cache, sub-blocks of 32"),
        ("choice_text", "monte_carlo", {"draws": DRAWS}, few, f"`monte_carlo`, {DRAWS} draws"),
    ):
        right = choose(engine, read_rows(task, rows), estimator, decode)
        add_line(lines, f"| `unmask_{task}` | {words} | {describe(right)} |")
    return lines


def length_table(engine: unmask.Engine, count: int) -> Table:
    """The same problems on canvases of several lengths."""
    rows = read_rows("arith", min(count, 200))
    prompts = [f"Question: {row['question']}\nAnswer:" for row in rows]
    lines = [
        "| positions for the answer | n | right | 95 % interval | lost, won | the same answer | block, sub |",
        "|---|---|---|---|---|---|---|",
    ]
    usual: list[bool] = []
    texts: list[str] = []
    for length in LENGTHS:
        answers = engine.generate(prompts, DECODE | {"max_new_tokens": length})
        right = [
            final_number(answer.text) == final_number(row["answer"])
            for answer, row in zip(answers, rows, strict=True)
        ]
        usual, texts = usual or right, texts or [str(answer.text) for answer in answers]
        same = sum(str(answer.text) == text for answer, text in zip(answers, texts, strict=True))
        steps: Counter[str] = Counter()
        for answer in answers:
            steps.update(answer.ledger.steps())
        forwards = ", ".join(f"{steps[kind] / len(rows):.1f}" for kind in ("block", "sub"))
        shown = f"{paired(right, usual)} | {same / len(rows):.0%} | {forwards}"
        add_line(lines, f"| {length} | {describe(right)} | {shown} |")
    return lines


TABLES = {"canvas choices": choice_table, "canvas lengths": length_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=500, help="rows at most; costly lines take fewer, as they say"
    )
    parser.add_argument("--card", type=Path, help="put the tables into this file")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES), help="these tables only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    engine = unmask.load("embedded-canvas", device="cpu", dtype="float32")
    tables = {}
    for name in options.only:
        lines = tables[name] = TABLES[name](engine, options.rows)
        print(f"{name}\n\n" + "\n".join(lines) + "\n", flush=True)
        if options.card:
            put_into_page(options.card, name, lines)
    print(json.dumps({"benchmark": "embedded_canvas", "rows": options.rows, "tables": tables}))


if __name__ == "__main__":
    main()
