"""What taking over shared prompt blocks buys, beside what the rows that are not fed allow it to buy.

Prompts as in a 5-shot GSM8K run, on the embedded model: five solved word problems that all prompts share,
then a question of their own. The engine feeds the shared blocks once and copies their keys; the other
contender is the same engine whose slots never know what they hold. Both take turns and must give equal
tokens; the rows fed are counted. What the saved rows allow: the time that the forwards of prompts take
without sharing, clocked in the same rounds, times the share of their rows that sharing saves. (Saved are the
first blocks of a prompt, which see fewer keys than the average row, so the bound is slightly generous.)

    python benchmarks/prefix.py --repeats 7

`share` is the measured gain over the allowed one. The CPU clock counts for one thread, the wall clock
for more. The last line is one JSON document.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

import unmask
from batching import prompt_of, task_rows
from counting import Ids, clock_of, refuse_difference, watched
from timing import Ratio, Sample, clock, interleave, machine, ratios
from unmask.engine.prefixes import Prefixes
from unmask.engine.sequence import SequenceState
from unmask.model.geometry import Segment


def few_shot_prompts(shots: int, count: int) -> list[str]:
    """Questions that all come behind the same solved examples."""
    rows = task_rows("arith", shots + count)
    examples = "".join(f"{prompt_of(row)} {row['answer']}\n\n" for row in rows[:shots])
    return [examples + prompt_of(row) for row in rows[shots:]]


def common_tokens(engine: unmask.Engine, prompts: Sequence[str]) -> int:
    """Tokens at the beginning that all prompts share."""
    encoded = [engine.tokenizer.encode(prompt) for prompt in prompts]
    alike = [len(set(column)) == 1 for column in zip(*encoded, strict=False)]
    return alike.index(False) if False in alike else len(alike)


class Sharing(Prefixes):
    """The engine's own, which also notes where the prompt blocks of the row in every slot end."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.ends = [0] * slots

    def ready(self, rows: Sequence[SequenceState]) -> tuple[list[SequenceState], list[SequenceState]]:
        """Rows to prefill now, and those that gain by waiting for one of them."""
        for row in rows:
            self.ends[row.slot] = row.start
        return super().ready(rows)

    def kind_of(self, segments: Sequence[Segment]) -> str:
        """Whether a forward feeds prompts; they are never mixed with anything else."""
        return "prompt" if segments[0].positions[-1] < self.ends[segments[0].slot] else "answer"


class NotSharing(Sharing):
    """Slots that never know what they hold."""

    def ready(self, rows: Sequence[SequenceState]) -> tuple[list[SequenceState], list[SequenceState]]:
        """All rows, since none gains by waiting."""
        super().ready(rows)
        return list(rows), []

    def longest(self, row: SequenceState) -> tuple[int, int]:
        """Nothing of a row's prompt."""
        return row.slot, 0


@dataclass(frozen=True)
class Outcome:
    """What one decoding gave and fed."""

    ids: Ids
    prompt_rows: int
    prompt_seconds: float
    rows: int
    forwards: int


def decode(
    engine: unmask.Engine,
    prompts: Sequence[str],
    kind: type[Sharing],
    batch: int,
    options: argparse.Namespace,
) -> Outcome:
    """Decode with slots of this kind."""
    made: list[Sharing] = []

    def make(slots: int) -> Sharing:
        made.append(kind(slots))
        return made[-1]

    _, seconds_of = clock_of(options.threads)
    with (
        patch("unmask.engine.decode.Prefixes", make),
        watched(seconds_of, lambda segments: made[-1].kind_of(segments)) as forwards,
    ):
        answers = engine.generate(prompts, {"max_new_tokens": options.new_tokens}, batch_size=batch)
    of_prompts = [forward for forward in forwards if forward.kind == "prompt"]
    return Outcome(
        [answer.ids for answer in answers],
        sum(forward.rows for forward in of_prompts),
        sum(forward.seconds for forward in of_prompts),
        sum(forward.rows for forward in forwards),
        len(forwards),
    )


def measure(
    engine: unmask.Engine, prompts: Sequence[str], batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """One batch size: count and compare, then clock in turns."""
    kinds: dict[str, type[Sharing]] = {"unshared": NotSharing, "shared": Sharing}
    outcomes: dict[str, list[Outcome]] = {
        name: [decode(engine, prompts, kind, batch, options)] for name, kind in kinds.items()
    }

    def compare() -> None:
        refuse_difference({name: found[-1].ids for name, found in outcomes.items()})

    def contender(name: str) -> Callable[[], Sample]:
        def run() -> None:
            outcomes[name].append(decode(engine, prompts, kinds[name], batch, options))

        def sample() -> Sample:
            taken = clock(run)
            compare()
            return taken

        return sample

    compare()
    samples = interleave({name: contender(name) for name in kinds}, options.repeats)
    on, _ = clock_of(options.threads)
    seconds = {name: [getattr(sample, on) for sample in taken] for name, taken in samples.items()}
    fed = {name: found[0] for name, found in outcomes.items()}
    saved = 1 - fed["shared"].prompt_rows / fed["unshared"].prompt_rows
    allowed = [
        whole / (whole - outcome.prompt_seconds * saved)
        for whole, outcome in zip(seconds["unshared"], outcomes["unshared"][1:], strict=True)
    ]
    gain = ratios(samples, "unshared", "shared")[on]
    return {
        "batch": batch,
        "tokens": sum(map(len, fed["shared"].ids)),
        "contenders": {name: summary(found, seconds[name]) for name, found in outcomes.items()},
        "prompt_rows_saved": saved,
        "gain": asdict(gain),
        "allowed_gain": median(allowed),
        "share": median(
            before / after / limit
            for before, after, limit in zip(seconds["unshared"], seconds["shared"], allowed, strict=True)
        ),
    }


def summary(outcomes: Sequence[Outcome], seconds: Sequence[float]) -> dict[str, Any]:
    first = outcomes[0]
    return {
        "prompt_rows": first.prompt_rows,
        "rows": first.rows,
        "forwards": first.forwards,
        "seconds": median(seconds),
        "prompt_seconds": median(outcome.prompt_seconds for outcome in outcomes[1:]),
    }


def show(case: Mapping[str, Any]) -> None:
    print(f"batch {case['batch']}, {case['tokens']} new tokens:")
    print(f"  {'':9} {'prompt rows':>12} {'all rows':>9} {'forwards':>9} {'seconds':>8} {'of prompts':>11}")
    for name, one in case["contenders"].items():
        print(
            f"  {name:9} {one['prompt_rows']:12d} {one['rows']:9d} {one['forwards']:9d} {one['seconds']:8.2f} "
            f"{one['prompt_seconds']:11.2f}"
        )
    print(f"  gain: {Ratio(**case['gain'])}; allowed: {case['allowed_gain']:.3f}; share: {case['share']:.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--shots", type=int, default=5, help="solved examples in front of every question")
    parser.add_argument("--new-tokens", type=int, default=160, help="at most")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    engine = unmask.load("embedded", device="cpu", dtype="float32")
    prompts = few_shot_prompts(options.shots, options.requests)
    common = common_tokens(engine, prompts)
    print(f"{len(prompts)} prompts of {options.shots} examples; they share {common} tokens")
    cases = []
    for batch in options.batches:
        cases.append(measure(engine, prompts, batch, options))
        show(cases[-1])
    report = {"benchmark": "prefix", "clock": clock_of(options.threads)[0], "shared_tokens": common}
    report |= {name: value for name, value in vars(options).items() if name != "batches"}
    print(json.dumps(report | {"cases": cases} | machine()))


if __name__ == "__main__":
    main()
