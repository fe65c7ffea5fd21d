"""The tables on caches of docs/findings.md and of the second model's card, read from a store of recipe 06.

    unmask run recipes/06_canvas_embedded
    python benchmarks/canvas_findings.py --write docs/findings.md src/unmask/assets/embedded_canvas/README.md

Nothing is decoded here. Work is counted FLOPs as a multiple of those without a cache at threshold 0.9 on the same rows.
Losses are paired by row with the decoding that differs in one thing: that without a
cache under the same rule, or that without a policy under the same cache and rule. Tables are also printed; a page gets
those that it has a place for.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from embedded import failure, read_rows
from findings import TASK, Line, accuracy, loss_between, points, span
from pages import markdown, put_into_page
from unmask.analysis.stored import experiment_table
from unmask.store import Store
from unmask.store.attempt import read_samples

RECIPE = "06_canvas_embedded"
BASELINE = "t0.9_none"
USUAL_SUB_BLOCK = 8
FAILURES = ("t0.9_none", "t0.9_dual", "t0.7_dual", "t0.9_dual_s16")
Table = list[str]
"""Lines of Markdown."""


@dataclass(frozen=True)
class Canvases:
    """The configurations of the recipe on the same rows."""

    lines: dict[str, Line]

    @classmethod
    def read(cls, store: Store) -> "Canvases":
        """Every result of the recipe on the task."""
        entries = experiment_table(store, RECIPE).entries
        return cls({entry.configuration: Line(entry) for entry in entries if entry.task == TASK})

    @cached_property
    def baseline(self) -> Line:
        """No cache at the usual threshold."""
        return self.lines[BASELINE]

    @property
    def plain(self) -> Iterator[Line]:
        """Decodings without a policy at the usual sub-block."""
        return (
            line
            for line in self.lines.values()
            if line.policy["kind"] == "full" and sub_block_size(line) == USUAL_SUB_BLOCK
        )

    def plain_like(self, line: Line, cache: str) -> Line:
        """The decoding without a policy under a cache and the rule of a line."""
        return next(
            plain
            for plain in self.plain
            if cache_name(plain) == cache and rule_name(plain) == rule_name(line)
        )

    def work(self, line: Line) -> float:
        """As a multiple of the baseline's."""
        return line.flops / self.baseline.flops


def cache_name(line: Line) -> str:
    decode = line.entry.decode
    every = decode.get("refresh_every")
    return f"{decode['cache']}, refreshed every {every}" if every else str(decode["cache"])


def rule_name(line: Line) -> str:
    rule = line.entry.decode.get("rule")
    if rule is None:
        return f"threshold {line.entry.decode['threshold']:g}"
    return f"top_n, {rule['n']} a step" if rule["kind"] == "top_n" else f"factor {rule['factor']:g}"


def policy_name(line: Line) -> str:
    policy = line.policy
    return "TRIM" if policy["kind"] == "trim" else f"{policy['unit']}, k = {policy['k']}"


def steps(line: Line) -> str:
    """Forwards an answer, by kind."""
    forwards = line.forwards
    return " + ".join(
        f"{forwards[kind] / len(line.rows):.1f} {kind}"
        for kind in ("block", "tail", "sub")
        if forwards.get(kind)
    )


def tokens_a_forward(line: Line) -> str:
    return f"{line.entry.effect['generation'].tokens_a_forward(line.entry.tokens) or 0:.2f}"


def compared(before: Line, line: Line) -> tuple[str, str]:
    """The loss with its interval, and problems lost and won; empty for a line beside itself."""
    if line is before:
        return "", ""
    loss, interval, lost, won = loss_between(before, line)
    return f"{points(loss)} {span(interval)}", f"-{lost} +{won}"


def caches(found: Canvases) -> Table:
    """Every cache under every rule that was tried without one, beside no cache under the same rule."""
    uncached = [rule_name(line) for line in found.plain if cache_name(line) == "none"]
    lines = [line for line in found.plain if rule_name(line) in uncached]
    headings = ("rule", "cache", "right, %", "loss, points", "lost, won", "tokens a forward")
    return markdown(
        (*headings, "forwards an answer", "work"),
        (
            [
                rule_name(line),
                cache_name(line),
                accuracy(line),
                *compared(found.plain_like(line, "none"), line),
                tokens_a_forward(line),
                steps(line),
                f"{found.work(line):.3f}",
            ]
            for line in sorted(lines, key=lambda line: (uncached.index(rule_name(line)), -line.flops))
        ),
    )


def policies(found: Canvases) -> Table:
    """Every policy, beside the same decoding without it."""
    headings = ("policy", "rule", "cache", "right, %", "loss, points", "lost, won", "work", "of that without")
    return markdown(
        headings,
        (
            [
                policy_name(line),
                rule_name(line),
                cache_name(line),
                accuracy(line),
                *compared(without := found.plain_like(line, cache_name(line)), line),
                f"{found.work(line):.3f}",
                f"{line.flops / without.flops:.3f}",
            ]
            for line in found.lines.values()
            if line.policy["kind"] != "full"
        ),
    )


def _under_dual(
    found: Canvases, lines: Iterable[Line], heading: str, setting: Callable[[Line], object]
) -> Table:
    usual = found.lines["t0.9_dual"]
    return markdown(
        (heading, "right, %", "loss, points", "lost, won", "tokens a forward", "forwards an answer", "work"),
        (
            [
                str(setting(line)),
                accuracy(line),
                *compared(usual, line),
                tokens_a_forward(line),
                steps(line),
                f"{found.work(line):.3f}",
            ]
            for line in lines
        ),
    )


def rules(found: Canvases) -> Table:
    """Unmasking rules under the dual cache."""
    lines = (line for line in found.plain if cache_name(line) == "dual")
    return _under_dual(found, sorted(lines, key=lambda line: line.flops), "rule", rule_name)


def sub_blocks(found: Canvases) -> Table:
    """Sizes of sub-blocks under the dual cache."""
    lines = [line for name, line in found.lines.items() if name.startswith("t0.9_dual_s")]
    return _under_dual(found, [found.lines["t0.9_dual"], *lines], "sub-block size", sub_block_size)


def sub_block_size(line: Line) -> int:
    return int(line.entry.decode["sub_block_size"])


def failures(found: Canvases) -> Table:
    """The first thing that is wrong in each wrong answer of some configurations."""
    problems: list[dict[str, Any]] = read_rows("arith", 600)
    lines = [found.lines[name] for name in FAILURES if name in found.lines]
    counts = []
    for line in lines:
        assert line.entry.samples is not None
        wrong = (sample for sample in read_samples(line.entry.samples) if not sample.correct)
        counts.append(Counter(failure(sample.answer, problems[sample.doc_id or 0]) for sample in wrong))
    kinds = [kind for kind, _ in sum(counts, Counter()).most_common()]
    return markdown(
        (f"first thing wrong, of {len(found.baseline.rows)}", *(line.name for line in lines)),
        ([kind, *(str(count[kind]) for count in counts)] for kind in kinds),
    )


TABLES = {
    "caches": caches,
    "canvas policies": policies,
    "canvas rules": rules,
    "canvas sub-blocks": sub_blocks,
    "canvas failures": failures,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path("results"), metavar="DIR")
    parser.add_argument(
        "--write", type=Path, nargs="+", default=[], metavar="PAGE", help="put tables into these"
    )
    options = parser.parse_args(arguments)
    found = Canvases.read(Store(options.store))
    for name, make in TABLES.items():
        lines = make(found)
        print(f"{name}\n\n" + "\n".join(lines) + "\n")
        for page in options.write:
            if f"<!-- table: {name} -->" in page.read_text():
                put_into_page(page, name, lines)


if __name__ == "__main__":
    main()
