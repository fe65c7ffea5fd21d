"""How the embedded model behaves: every table of its model card, by one command.

    python benchmarks/embedded.py --card src/unmask/assets/embedded/README.md

Every configuration answers the same held-out problems. Accuracy has its 95 % interval (Wilson), lost and won problems
are paired with the baseline, forwards and FLOPs are counted; there is no clock here. A table stands in the card between
`<!-- table: NAME -->` and `<!-- end -->`; without --card the tables are printed. Lines that are done show on stderr.
The last line is one JSON document.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import unmask
from pages import put_into_page
from unmask.cost import total_price
from unmask.engine.score import EstimatorName, ScoreRequest

TASKS = Path(unmask.__file__).parent / "assets" / "tasks"
Row = dict[str, Any]
Table = list[str]
"""Lines of Markdown."""
Configuration = tuple[dict[str, Any], dict[str, Any] | None]
BASELINE: Configuration = ({}, None)


def thresholds() -> dict[str, Configuration]:
    values = (0.5, 0.6, 0.7, 0.8, 0.95, 0.99, 1.0)
    return {f"threshold {value}": ({"threshold": value}, None) for value in values}


def layer_reuse(unit: str, k: int, layers: str = "middle", on: Sequence[str] = ("sub",)) -> dict[str, Any]:
    return {"kind": "layer_reuse", "k": k, "unit": unit, "layers": layers, "on": list(on)}


def policies() -> dict[str, Configuration]:
    """Every kind of policy; k = 1 plans the baseline's forwards, which tests hold to be equal."""
    both, trim = ("sub", "block"), {"kind": "trim", "keep": 0.0}
    specs = {f"output, k={k}, any layers": layer_reuse("output", k) for k in (2, 3)}
    for k in (2, 3):
        specs |= {
            f"residual, k={k}, {layers}": layer_reuse("residual", k, layers)
            for layers in ("first", "middle", "last")
        }
    specs |= {f"{unit}, k=2, middle": layer_reuse(unit, 2) for unit in ("attention", "mlp")}
    specs |= {
        f"{unit}, k=2, middle, sub+block": layer_reuse(unit, 2, on=both)
        for unit in ("output", "residual", "attention", "mlp")
    }
    specs |= {f"TRIM keep={keep}": {"kind": "trim", "keep": keep} for keep in (0.0, 0.25, 0.5)}
    specs |= {f"adaptive, budget={budget}": {"kind": "adaptive", "budget": budget} for budget in (0.3, 0.5)}
    specs |= {
        f"TRIM keep=0.0 with {unit}, k=2, middle": {
            "kind": "combine",
            "rows": trim,
            "layers": layer_reuse(unit, 2),
        }
        for unit in ("output", "residual")
    }
    return {name: ({}, spec) for name, spec in specs.items()}


def read_rows(task: str, count: int) -> list[Row]:
    lines = (TASKS / f"{task}.jsonl").read_text().splitlines()[:count]
    return [json.loads(line) for line in lines]


def final_number(text: str | None) -> str | None:
    match = re.search(r"#### (-?\d+)", text or "")
    return match[1] if match else None


def interval(right: int, count: int) -> tuple[float, float]:
    z, share = 1.96, right / count
    scale = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / scale
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    return max(0.0, centre - spread), min(1.0, centre + spread)


def describe(right: Sequence[bool]) -> str:
    """Rows, accuracy and interval as three cells of a table."""
    low, high = interval(sum(right), len(right))
    return f"{len(right)} | {sum(right) / len(right):.1%} | {low:.1%} to {high:.1%}"


def paired(right: Sequence[bool], baseline: Sequence[bool]) -> str:
    lost = sum(b and not a for a, b in zip(right, baseline, strict=True))
    won = sum(a and not b for a, b in zip(right, baseline, strict=True))
    return f"-{lost} +{won}"


def add_line(lines: list[str], line: str) -> None:
    lines.append(line)
    print(line, file=sys.stderr, flush=True)


class Answers:
    """The answers of one configuration to the first rows of a task of word problems, with the work they took."""

    def __init__(self, engine: unmask.Engine, rows: list[Row], answers: list[Any]) -> None:
        self.texts = [answer.text or "" for answer in answers]
        self.right = [
            final_number(text) == final_number(row["answer"])
            for text, row in zip(self.texts, rows, strict=True)
        ]
        self.steps: Counter[str] = Counter()
        for answer in answers:
            self.steps.update(answer.ledger.steps())
        self.tokens = sum(len(answer.ids) for answer in answers)
        self.flops = sum(total_price(answer.ledger, engine.config.shape, 4).flops for answer in answers)

    @property
    def tokens_a_forward(self) -> float:
        """Accepted tokens over block, sub and commit forwards."""
        return self.tokens / sum(self.steps[kind] for kind in ("block", "sub", "commit"))

    @property
    def sub_share(self) -> float:
        """Sub-block forwards among the denoising ones."""
        return self.steps["sub"] / (self.steps["sub"] + self.steps["block"])

    def line(self, name: str, baseline: "Answers") -> str:
        """A line of a table."""
        return (
            f"| {name} | {describe(self.right)} | {paired(self.right, baseline.right)} "
            f"| {self.tokens_a_forward:.2f} | {self.sub_share:.0%} | {self.tokens / len(self.right):.0f} "
            f"| {self.flops / baseline.flops:.2f} |"
        )


_generated: dict[str, list[Any]] = {}


def solve(engine: unmask.Engine, task: str, count: int, configuration: Configuration) -> Answers:
    """Answer the first rows of a task; what was answered before, for as many rows or more, is not answered again."""
    rows, (decode, policy) = read_rows(task, count), configuration
    key = json.dumps([str(engine.folder), task, decode, policy])
    if len(_generated.get(key, [])) < len(rows):
        prompts = [f"Question: {row['question']}\nAnswer:" for row in rows]
        _generated[key] = engine.generate(prompts, {"max_new_tokens": 160, **decode}, policy)
    return Answers(engine, rows, _generated[key][: len(rows)])


def generation_table(engine: unmask.Engine, count: int, configurations: dict[str, Configuration]) -> Table:
    baseline = solve(engine, "arith", count, BASELINE)
    lines = [
        "| configuration | n | right | 95 % interval | lost, won | tokens a forward | sub share | tokens | work |",
        "|---|---|---|---|---|---|---|---|---|",
        baseline.line("threshold 0.9, the baseline", baseline),
    ]
    for name, configuration in configurations.items():
        answers = solve(engine, "arith", count, configuration)
        add_line(lines, answers.line(name, baseline))
    return lines


def choose(
    engine: unmask.Engine,
    rows: list[Row],
    estimator: EstimatorName = "chain",
    policy: dict[str, Any] | None = None,
) -> tuple[list[bool], list[bool]]:
    """Whether the likeliest option is the right one, by likelihood and by likelihood a character."""
    encode = engine.tokenizer.encode
    requests = [
        ScoreRequest(encode(row["prompt"]), encode(f" {option}")) for row in rows for option in row["options"]
    ]
    scores = iter(engine.score(requests, estimator, policy=policy).scores)
    plain, normed = [], []
    for row in rows:
        values = [next(scores).logprob for _ in row["options"]]
        by_length = [value / len(option) for value, option in zip(values, row["options"], strict=True)]
        plain.append(values.index(max(values)) == row["answer"])
        normed.append(by_length.index(max(by_length)) == row["answer"])
    return plain, normed


def split_lines(rows: list[Row], right: list[bool], key: Callable[[Row], str]) -> list[str]:
    """A line of the table for every kind of row."""
    lines = []
    for kind in sorted({key(row) for row in rows}):
        members = [hit for row, hit in zip(rows, right, strict=True) if key(row) == kind]
        lines.append(f"| of these: {kind} | {describe(members)} |")
    return lines


def accuracy_table(engine: unmask.Engine, count: int) -> Table:
    lines = ["| task | n | right | 95 % interval |", "|---|---|---|---|"]

    def add(name: str, right: list[bool]) -> None:
        add_line(lines, f"| {name} | {describe(right)} |")

    right = solve(engine, "arith", count, BASELINE).right
    add("`unmask_arith`", right)
    lines += split_lines(read_rows("arith", count), right, lambda row: f"{row['steps']} steps")
    for task in ("arith_60", "arith_40", "arith_20"):
        add(f"`unmask_{task}`", solve(engine, task, count, BASELINE).right)
    rows = read_rows("choice_text", count)
    plain, normed = choose(engine, rows)
    add("`unmask_choice_text`, chain (chance: 25 %)", plain)
    add("`unmask_choice_text`, chain, likelihood a character", normed)
    rows = read_rows("choice", count)
    plain, _ = choose(engine, rows)
    add("`unmask_choice`, chain (chance: 25 %)", plain)
    lines += split_lines(rows, plain, lambda row: f"by {row['kind']}")
    add("`unmask_choice`, canvas", choose(engine, rows, "canvas")[0])
    return lines


def choice_policy_table(engine: unmask.Engine, count: int) -> Table:
    rows = read_rows("choice_text", count)
    lines = ["| configuration | n | right | 95 % interval | lost, won |", "|---|---|---|---|---|"]
    baseline = choose(engine, rows)[0]
    shown = {name: spec for name, spec in policies().items() if "first" not in name and "last" not in name}
    for name, (_, policy) in {"baseline": BASELINE, **shown}.items():
        right = choose(engine, rows, policy=policy)[0]
        add_line(lines, f"| {name} | {describe(right)} | {paired(right, baseline)} |")
    return lines


def layer_table(engine: unmask.Engine, count: int) -> Table:
    """Accuracy without two neighbouring layers: what they add to the residual stream is set to zero."""
    baseline = solve(engine, "arith", count, BASELINE)
    lines = ["| left out | n | right | 95 % interval | points lost |", "|---|---|---|---|---|"]
    lines.append(f"| none | {describe(baseline.right)} | |")
    folder = Path(str(engine.folder))
    tensors = load_file(folder / "model.safetensors")
    for layer in range(engine.config.num_layers - 1):
        with tempfile.TemporaryDirectory() as name:
            less = Path(name)
            for path in folder.glob("*.json"):
                (less / path.name).write_bytes(path.read_bytes())
            save_file(without(tensors, (layer, layer + 1)), less / "model.safetensors", {"format": "pt"})
            right = solve(load(str(less)), "arith", count, BASELINE).right
        cost = 100 * (sum(baseline.right) - sum(right)) / len(right)
        add_line(lines, f"| {layer} and {layer + 1} | {describe(right)} | {cost:.1f} |")
    return lines


def without(tensors: dict[str, torch.Tensor], layers: Sequence[int]) -> dict[str, torch.Tensor]:
    ends = [f"model.layers.{i}.{end}.weight" for i in layers for end in ("self_attn.o_proj", "mlp.down_proj")]
    return {name: tensor * 0 if name in ends else tensor for name, tensor in tensors.items()}


def failure(text: str, row: Row) -> str:
    """The first thing that is wrong with a wrong answer."""
    if final_number(text) is None:
        return "no `#### N`"
    asked = row["canonical"].split(";")
    for place, (equation, result) in enumerate(re.findall(r"<<(\d+[-+*/]\d+)=(\d+)>>", text)):
        if place >= len(asked) or equation != asked[place]:
            return "an equation that does not belong there"
        left, operator, right = re.fullmatch(r"(\d+)(.)(\d+)", equation).groups()  # type: ignore[union-attr]
        exact = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}
        if int(result) != exact.get(operator, int(left) // int(right)):
            return "a wrong result"
    return "something else: a digit garbled in copying, or too few equations"


def failure_table(engine: unmask.Engine, count: int) -> Table:
    """What goes wrong first in the wrong answers of some configurations."""
    rows = read_rows("arith", count)
    configurations: dict[str, Configuration] = {
        "threshold 0.9": BASELINE,
        "threshold 0.5": ({"threshold": 0.5}, None),
        "output, k=2": ({}, layer_reuse("output", 2)),
        "residual, k=2, middle": ({}, layer_reuse("residual", 2)),
    }
    counts: dict[str, Counter[str]] = {}
    for name, configuration in configurations.items():
        answers = solve(engine, "arith", count, configuration)
        triples = zip(answers.texts, rows, answers.right, strict=True)
        counts[name] = Counter(failure(text, row) for text, row, right in triples if not right)
    kinds = [kind for kind, _ in sum(counts.values(), Counter()).most_common()]
    lines = [
        f"| first thing wrong, of {len(rows)} | {' | '.join(counts)} |",
        "|---" * (len(counts) + 1) + "|",
    ]
    lines += [f"| {kind} | {' | '.join(str(count[kind]) for count in counts.values())} |" for kind in kinds]
    return lines


def load(model: str) -> unmask.Engine:
    return unmask.load(model, device="cpu", dtype="float32")


HEADLINE: dict[str, Configuration] = {
    "threshold 0.7": ({"threshold": 0.7}, None),
    "threshold 1.0": ({"threshold": 1.0}, None),
    "output, k=2": ({}, layer_reuse("output", 2)),
    "TRIM keep=0.0": ({}, {"kind": "trim", "keep": 0.0}),
}

TABLES: dict[str, Callable[[unmask.Engine, int], Table]] = {
    "headline": lambda engine, count: generation_table(engine, count, HEADLINE),
    "accuracy": accuracy_table,
    "thresholds": lambda engine, count: generation_table(engine, count, thresholds()),
    "policies": lambda engine, count: generation_table(engine, count, policies()),
    "choices": choice_policy_table,
    "failures": failure_table,
    "layers": layer_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=600, help="rows of every table")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--card", type=Path, help="put the tables into this file")
    parser.add_argument(
        "--only", nargs="+", choices=TABLES, default=list(TABLES), help="make these tables only"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    engine = load(options.model)
    tables = {}
    for name in options.only:
        lines = tables[name] = TABLES[name](engine, options.rows)
        print(f"{name}\n\n" + "\n".join(lines) + "\n", flush=True)
        if options.card:
            put_into_page(options.card, name, lines)
    print(json.dumps({"benchmark": "embedded", "rows": options.rows, "tables": tables}))


if __name__ == "__main__":
    main()
