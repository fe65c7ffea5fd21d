"""Fits the cost model of this machine: seconds of a forward by rows, requests, context, layers and widths.

Forwards of random checkpoints and of the embedded model are measured through `Workspace.forward` and the head,
all points of a shape by turns, several rounds (CPU clock for one thread, else wall clock); the median of a point
counts. Rates are fitted by non-negative least squares on relative errors. The errors shown are those of points
that a fit had not seen: each fifth of the points is predicted from the other four. What decodings of the
smallest shape take beyond their forwards is shared out among the requests of their forwards; start-up is that of
a fresh process.

    python benchmarks/cost.py --shapes tiny embedded 0.5b --write

With --write the model is saved for this user, where `unmask plan` finds it; with --ship as the default of the
package. The last line is one JSON document.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import torch
from scipy.optimize import nnls

import unmask
from random_checkpoint import DEFAULT_CACHE, SHAPES, random_checkpoint
from timing import Sample, clock, interleave, machine
from unmask.cost import Demand, MachineModel, ModelShape, Work, demand_of
from unmask.cost.demand import QUANTITIES, demand_of_ledger
from unmask.cost.model import GIGABYTE, SHIPPED, Rates, as_text, user_file
from unmask.evaluation.lock import file_sha256
from unmask.model.config import ModelConfig
from unmask.model.geometry import Segment
from unmask.model.hub import find_checkpoint
from unmask.model.memory import buffer_bytes, kv_bytes

EMBEDDED = "embedded"
ROWS = {1: (8, 32, 128, 512), 4: (8, 32, 128), 16: (8, 32)}
"""Rows of each request, by the number of requests in a forward."""
CONTEXTS = (64, 256, 1024, 2048)
BLOCK = 32
FOLDS = 5
SHORTEST = 0.004
"""Seconds that a forward is repeated for, so that the clock can tell them."""
NEW_TOKENS = 65
START_UP = """
import time
import unmask.evaluation.worker as worker
ready = time.process_time()
worker.load_tasks(["unmask_arith"], None, 1, False, None)
print(time.process_time() - ready)
"""


@dataclass(frozen=True)
class Point:
    """One forward: as many requests, each with its rows and, block by block, less context than the one before."""

    shape: str
    rows: int
    requests: int
    context: int
    reads: int
    """Rows of each request whose logits are read."""

    @property
    def contexts(self) -> list[int]:
        """Visible keys of every request; those of real batches differ."""
        return [max(self.rows, self.context - BLOCK * (place % 4)) for place in range(self.requests)]

    def demand(self, shape: ModelShape) -> Demand:
        """What the model says it asks for."""
        total = Demand()
        for visible in self.contexts:
            total += demand_of(
                Work("block", self.rows, self.rows * visible, self.reads), shape, self.requests
            )
        return total


@dataclass(frozen=True)
class Measured:
    """A quantity of work and the seconds it took."""

    point: Point
    demand: Demand
    seconds: float


@dataclass(frozen=True)
class Fit:
    """Rates, and the relative errors at points that were left out."""

    rates: dict[str, float]
    errors: list[float]


def points_of(shape: str, contexts: Sequence[int], most_rows: int) -> list[Point]:
    """The grid of a shape; logits are read as by a denoising step, a commit and a prefill in turn."""
    grid = [
        (rows, requests, context)
        for requests, choices in ROWS.items()
        for rows in choices
        for context in contexts
        if rows <= context and rows * requests <= most_rows
    ]
    return [Point(shape, *one, reads=(8, 1, 0)[place % 3]) for place, one in enumerate(grid)]


def forward_of(engine: unmask.Engine, point: Point) -> Callable[[], None]:
    """The forward of a point, and the reading of its logits."""
    workspace = engine.workspace(point.requests, max(point.contexts), BLOCK)
    segments = [Segment(slot, range(end - point.rows, end), end) for slot, end in enumerate(point.contexts)]
    tokens = [place % 256 for place in range(point.rows * point.requests)]
    read = [request * point.rows + place for request in range(point.requests) for place in range(point.reads)]

    @torch.inference_mode()
    def run() -> None:
        hidden_TD = workspace.forward(tokens, segments).hidden_TD
        if read:
            engine.transformer.logits(hidden_TD[torch.tensor(read)]).max(dim=-1)

    return run


def seconds_of(samples: Sequence[Sample], threads: int) -> float:
    """The CPU clock does not count what neighbours took, but adds up threads."""
    return median(sample.cpu if threads == 1 else sample.wall for sample in samples)


def measure(engine: unmask.Engine, points: Sequence[Point], rounds: int, threads: int) -> list[Measured]:
    """All points of one shape by turns."""

    def contender(point: Point) -> tuple[Callable[[], Sample], int]:
        run = forward_of(engine, point)
        run()
        times = max(1, round(SHORTEST / max(1e-6, clock(run).wall)))

        def often() -> None:
            for _ in range(times):
                run()

        return lambda: clock(often), times

    contenders = {str(place): contender(point) for place, point in enumerate(points)}
    samples = interleave({name: one for name, (one, _) in contenders.items()}, rounds)
    return [
        Measured(
            point,
            point.demand(engine.config.shape),
            seconds_of(samples[str(place)], threads) / contenders[str(place)][1],
        )
        for place, point in enumerate(points)
    ]


def solve(measured: Sequence[Measured]) -> dict[str, float]:
    """Rates that are not negative, with the smallest squares of relative errors."""
    asked = np.array([[getattr(one.demand, name) for name in QUANTITIES] for one in measured])
    relative = asked / np.array([one.seconds for one in measured])[:, None]
    # Rates differ by ten orders of magnitude; with columns of equal size the solver sees them alike.
    sizes = np.maximum(np.abs(relative).max(axis=0), np.finfo(float).tiny)
    found, _ = nnls(relative / sizes, np.ones(len(measured)), maxiter=1000)
    return dict(zip(QUANTITIES, map(float, found / sizes), strict=True))


def fit(measured: Sequence[Measured]) -> Fit:
    """Fit all points; every error is that of a fit without the point's fifth."""
    errors = [0.0] * len(measured)
    for fold in range(FOLDS):
        seen = [one for place, one in enumerate(measured) if place % FOLDS != fold]
        rates = solve(seen or measured)
        for place in range(fold, len(measured), FOLDS):
            errors[place] = predicted(rates, measured[place].demand) / measured[place].seconds - 1
    return Fit(solve(measured), errors)


def predicted(rates: dict[str, float], demand: Demand) -> float:
    return sum(rates[name] * getattr(demand, name) for name in QUANTITIES)


def bookkeeping(engine: unmask.Engine, rates: dict[str, float], rounds: int, threads: int) -> float:
    """Seconds that decodings take beyond their forwards, for each request of a forward."""
    draw = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, engine.config.vocab_size - 2, (max(ROWS), 96), generator=draw).tolist()
    prompts = [[token + (token >= engine.mask_token) for token in prompt] for prompt in prompts]
    decode = {"max_new_tokens": NEW_TOKENS, "stop_tokens": ()}
    found = []
    for batch in ROWS:
        decoding = partial(engine.generate, prompts[:batch], decode, batch_size=batch)
        total = Demand()
        for answer in decoding():
            total += demand_of_ledger(answer.ledger, engine.config.shape, batch)
        spent = seconds_of([clock(decoding) for _ in range(rounds)], threads)
        found.append((spent - predicted(rates, total)) / total.requests)
    return max(0.0, median(found))


def start_up() -> tuple[float, float]:
    """CPU seconds until a worker's clock begins, and from then until its tasks are there."""
    before = children_seconds()
    told = subprocess.run([sys.executable, "-c", START_UP], capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(f"A worker cannot be started here: {told.stderr.strip().splitlines()[-1]}")
    opening = float(told.stdout.split()[-1])
    return children_seconds() - before - opening, opening


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def loading(folders: Sequence[Path]) -> float:
    """CPU seconds to check and load a gigabyte, by what the largest checkpoint takes beyond the smallest."""

    def load(folder: Path) -> None:
        for file in folder.glob("*.safetensors"):
            file_sha256(file)
        unmask.load(folder, device="cpu", dtype="float32")

    sizes = {folder: sum(file.stat().st_size for file in folder.glob("*.safetensors")) for folder in folders}
    small, large = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    beyond = clock(partial(load, large)).cpu - (clock(partial(load, small)).cpu if small != large else 0.0)
    gigabytes = (sizes[large] - (sizes[small] if small != large else 0)) / GIGABYTE
    return max(0.0, beyond) / gigabytes


def table(measured: Sequence[Measured], fitted: Fit, configs: dict[str, ModelConfig]) -> None:
    print(f"{'shape':>9} {'rows':>5} {'requests':>8} {'context':>7} {'reads':>5} {'MB':>7} ", end="")
    print(f"{'measured':>10} {'predicted':>10} {'error':>7}")
    for one, error in zip(measured, fitted.errors, strict=True):
        p = one.point
        asked = (p.requests, p.context)
        memory = (kv_bytes(configs[p.shape], *asked, 4) + buffer_bytes(configs[p.shape], *asked, 4)) / 1e6
        print(f"{p.shape:>9} {p.rows:5} {p.requests:8} {p.context:7} {p.reads:5} {memory:7.0f} ", end="")
        print(f"{one.seconds * 1e3:7.2f} ms {one.seconds * (1 + error) * 1e3:7.2f} ms {error:+7.1%}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shapes = [*sorted(SHAPES), EMBEDDED]
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=["tiny", EMBEDDED])
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--most-rows", type=int, default=512, help="of one forward")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where random checkpoints are kept")
    parser.add_argument("--write", action="store_true", help=f"save the model as {user_file()}")
    parser.add_argument("--ship", action="store_true", help="save it as the default of the package")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    folders = {
        name: find_checkpoint(EMBEDDED) if name == EMBEDDED else random_checkpoint(name, options.cache)
        for name in options.shapes
    }
    engines = {name: unmask.load(folder, device="cpu", dtype="float32") for name, folder in folders.items()}
    measured = [
        one
        for name, engine in engines.items()
        for one in measure(
            engine, points_of(name, options.contexts, options.most_rows), options.rounds, options.threads
        )
    ]
    fitted = fit(measured)
    table(measured, fitted, {name: engine.config for name, engine in engines.items()})
    errors = [abs(error) for error in fitted.errors]
    print(
        f"{len(measured)} points, each predicted by a fit without its fifth of them: relative error "
        f"{median(errors):.1%} in the median, {max(errors):.1%} at worst."
    )
    smallest = min(engines.values(), key=lambda engine: engine.config.shape.weights)
    beyond = bookkeeping(smallest, fitted.rates, options.rounds, options.threads)
    print(f"Decodings take {beyond * 1e6:.0f} us beyond the forward for each request in it.")
    starting, opening = start_up()
    about = machine()
    model = MachineModel(
        machine=str(about["processor"]),
        threads=options.threads,
        device="cpu",
        dtype="float32",
        date=datetime.now(UTC).date().isoformat(),
        commit=str(about["commit"]),
        rates=Rates(**fitted.rates | {"requests": fitted.rates["requests"] + beyond}),
        start_up_seconds=starting,
        opening_seconds=opening,
        load_seconds=loading(list(folders.values())),
        median_error=median(errors),
        worst_error=max(errors),
    )
    print(f"A worker starts in {starting:.1f} s and has its tasks after another {opening:.1f} s.")
    for wanted, file in ((options.write, user_file()), (options.ship, SHIPPED)):
        if wanted:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(as_text(model), encoding="utf-8")
            print(f"Written to {file}.")
    points = [
        {**vars(one.point), "seconds": one.seconds, "error": error}
        for one, error in zip(measured, fitted.errors, strict=True)
    ]
    told = {"benchmark": "cost", "rounds": options.rounds, "model": msgspec.to_builtins(model)}
    print(json.dumps(told | {"points": points} | about))


if __name__ == "__main__":
    main()
