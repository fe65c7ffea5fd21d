"""What `unmask gpu-check` measures of a checkpoint on a device: memory, launches, speed, the published code beside it.

Each part loads for itself and returns a verdict, a sentence and its figures, so that one may fail and the others go on.
It knows nothing of folders and progress, which are the caller's (lab/gpu_check.py).
"""

import gc
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from unmask.cost.cards import card_named, card_reported
from unmask.cost.prediction import (
    ATTENTION_OPERATIONS,
    FORWARD_OPERATIONS,
    MLP_OPERATIONS,
    load_of,
    predict,
    predicted_seconds,
)
from unmask.engine.engine import Engine
from unmask.engine.events import Finished, StepEvent
from unmask.errors import UnmaskError
from unmask.loading import load
from unmask.model.config import read_config
from unmask.model.device import choose_device, choose_dtype
from unmask.model.hub import find_checkpoint
from unmask.model.info import describe

PROMPT_TOKENS, NEW_TOKENS = 128, 64
BATCHES = (1, 4, 16)
TRIED = 20
"""Prompts that are put to the published code."""
MOST_DIFFERENT = 5
"""Of them, answers that rounding may let part in half precision."""
SLOWER, MORE = 1.33, 1.25
"""Times the prediction: seconds, and launches, that still count as predicted."""
LAUNCHES = (
    "cudaLaunchKernel",
    "cuLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernelEx",
    "cudaGraphLaunch",
)
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
Outcome = dict[str, Any]
"""`verdict` (good, bad or skipped), `says`, and figures."""


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint, and where and how it computes."""

    model: str
    device: str | None
    dtype: str | None

    def engine(self) -> Engine:
        """Load it."""
        return load(self.model, self.device, self.dtype)


def outcome(verdict: str, says: str, **figures: Any) -> Outcome:
    """What a part found."""
    return {"verdict": verdict, "says": says, **figures}


def device_facts(place: Place) -> Outcome:
    """Which device and number format the other parts use."""
    device = choose_device(place.device)
    dtype = str(choose_dtype(place.dtype, device)).removeprefix("torch.")
    figures: dict[str, Any] = {
        "device": str(device),
        "dtype": dtype,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        figures |= {
            "name": facts.name,
            "capability": f"{facts.major}.{facts.minor}",
            "memory_bytes": facts.total_memory,
            "cuda": torch.version.cuda,
            "card": card_reported(facts.name),
        }
    name = figures.get("name", device.type)
    return outcome("good", f"{name} in {dtype}, torch {torch.__version__}", **figures)


def memory(place: Place) -> Outcome:
    """The peak of a decoding of four requests, against what `unmask info` predicts."""
    batch, length = 4, PROMPT_TOKENS + NEW_TOKENS
    engine = place.engine()
    device, dtype = engine.transformer.device, engine.transformer.dtype
    _decode(engine, batch)
    form = "16 bit" if dtype.itemsize == 2 else "float32"
    parts = describe(find_checkpoint(place.model), batch, length)["memory"]["bytes"][form]
    if device.type != "cpu":
        parts = {name: size for name, size in parts.items() if name not in ("packing", "process")}
    predicted, peak = sum(parts.values()), _peak(device)
    figures = {"predicted_bytes": predicted, "peak_bytes": peak, "batch_size": batch, "length": length}
    if peak is None or (device.type == "cpu" and form != "float32"):
        return outcome("skipped", f"the peak on {device.type} in {form} is not compared", **figures)
    ratio = peak / predicted
    says = f"a peak of {peak / 2**30:.2f} GiB, {ratio:.2f} of the prediction"
    return outcome("good" if ratio <= 1.1 else "bad", says, ratio=ratio, **figures)


def _peak(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "cpu" and sys.platform == "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return None


def launches(place: Place) -> Outcome:
    """Operations, launches and waits of each kind of forward, as the profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    engine = place.engine()
    on_cuda = engine.transformer.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    _decode(engine, 1, new_tokens=8)
    seen: dict[str, list[Counter[str]]] = defaultdict(list)
    events = engine.stream(_prompts(engine, 1), _settings(24), batch_size=1)
    while True:
        with profile(activities=activities) as recorded:
            event = next(events, None)
        if event is None or isinstance(event, Finished):
            break
        seen[event.kind.value].append(_counted(recorded.events()))
    kinds = {
        kind: {
            name: sum(each[name] for each in counts) / len(counts)
            for name in ("operations", "launches", "waits")
        }
        for kind, counts in seen.items()
    }
    layers = engine.config.num_layers
    expected = layers * (ATTENTION_OPERATIONS + MLP_OPERATIONS) + FORWARD_OPERATIONS
    figures = {"kinds": kinds, "predicted_launches": expected}
    steps = [counts for kind, counts in kinds.items() if kind != "prefill"]
    if not on_cuda:
        most = max((counts["operations"] for counts in steps), default=0)
        return outcome(
            "good", f"{most:.0f} operations of torch a forward; launches are seen on CUDA only", **figures
        )
    most, waits = (max((counts[name] for counts in steps), default=0) for name in ("launches", "waits"))
    says = f"{most:.0f} launches and {waits:.1f} waits a forward at most, {expected} launches predicted"
    return outcome("good" if most <= MORE * expected and waits <= 3 else "bad", says, **figures)


def _counted(events: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    for event in events:
        counts["operations"] += event.name.startswith("aten::") and event.cpu_parent is None
        counts["launches"] += event.name in LAUNCHES
        counts["waits"] += event.name in WAITS
    return counts


def speed(place: Place) -> Outcome:
    """Seconds of each kind of forward as a share of the bandwidth measured here, and batches beside the prediction."""
    engine = place.engine()
    device, shape, size = engine.transformer.device, engine.config.shape, engine.transformer.dtype.itemsize
    bandwidth = _bandwidth(device)
    name = card_reported(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    card = card_named(name) if name and size == 2 else None
    _decode(engine, 1, new_tokens=8)
    kinds, ratios = {}, []
    for kind, timed in _timed_kinds(engine).items():
        seconds, work = median(each for each, _ in timed), timed[-1][1]
        load_ = load_of(work, shape, 1, size)
        kinds[kind] = {
            "forwards": len(timed),
            "milliseconds": 1000 * seconds,
            "share_of_measured_bandwidth": load_.bytes / bandwidth / seconds,
        }
        if card:
            expected = predict(load_, card)
            kinds[kind] |= {"predicted_milliseconds": 1000 * expected.seconds}
            ratios += [seconds / expected.seconds] if kind != "prefill" else []
    batches = [_batch(engine, batch, card) for batch in BATCHES]
    figures = {"bandwidth": bandwidth, "card": name, "kinds": kinds, "batches": batches}
    share = max(
        (part["share_of_measured_bandwidth"] for kind, part in kinds.items() if kind != "prefill"), default=0
    )
    says = f"{bandwidth / 1e9:.0f} GB/s measured, of which a step reaches {share:.0%} at batch 1"
    if not ratios:
        return outcome("good", f"{says}; no card that predictions know", **figures)
    says += f"; steps take {max(ratios):.2f} of the predicted time at most"
    return outcome("good" if max(ratios) <= SLOWER else "bad", says, **figures)


def _bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, of the best of a few large copies."""
    count = (64 if device.type == "cpu" else 256) << 20
    source, target = (torch.zeros(count // 4, device=device) for _ in range(2))
    seconds = []
    for _ in range(6):
        _wait_for(device)
        start = time.perf_counter()
        target.copy_(source)
        _wait_for(device)
        seconds.append(time.perf_counter() - start)
    return 2 * count / min(seconds)


def _timed_kinds(engine: Engine) -> dict[str, list[tuple[float, Any]]]:
    """Seconds and work of every forward of one request, by kind."""
    timed: dict[str, list[tuple[float, Any]]] = defaultdict(list)
    for seconds, event in _timed(engine, engine.stream(_prompts(engine, 1), _settings(), batch_size=1)):
        if isinstance(event, StepEvent) and event.work is not None:
            timed[event.kind.value].append((seconds, event.work))
    return timed


def _timed(engine: Engine, events: Iterator[Any]) -> Iterator[tuple[float, Any]]:
    start = time.perf_counter()
    for event in events:
        _wait_for(engine.transformer.device)
        yield time.perf_counter() - start, event
        start = time.perf_counter()


def _batch(engine: Engine, batch: int, card: Any) -> Outcome:
    start = time.perf_counter()
    try:
        answers = _decode(engine, batch)
    except UnmaskError as error:
        return {"batch_size": batch, "error": str(error)}
    _wait_for(engine.transformer.device)
    seconds = time.perf_counter() - start
    tokens = sum(len(answer.ids) for answer in answers)
    figures = {"batch_size": batch, "tokens_per_second": tokens / seconds}
    if card:
        expected = predicted_seconds(answers[0].ledger, engine.config.shape, card, batch)
        figures["predicted_tokens_per_second"] = tokens / expected
    return figures


def graphs(place: Place) -> Outcome:  # noqa: ARG001 (what all parts take)
    """Captured steps beside eager ones, where this version has them."""
    return outcome("skipped", "this version captures no steps")


def published(place: Place, allowed: bool) -> Outcome:
    """Answers of the checkpoint's own code beside ours; it runs only where it is allowed to."""
    folder = find_checkpoint(place.model)
    if not (files := sorted(file.name for file in folder.glob("modeling*.py"))):
        return outcome("skipped", "the checkpoint's folder holds no code of its publisher")
    if find_spec("transformers") is None:
        return outcome("skipped", "transformers is not installed")
    if not allowed:
        return outcome("skipped", f"{files[0]} is run with --run-published-code only: it may do anything")
    load = PUBLISHED_CODE.get(read_config(folder).family.name)
    if load is None:
        return outcome(
            "skipped", "how to call the code of other publishers than Fast-dLLM v2's is not known here"
        )
    engine = place.engine()
    prompts, block = _prompts(engine, TRIED), engine.config.block_size
    stops = set(engine.config.stop_tokens)
    settings = {"max_new_tokens": NEW_TOKENS, "sub_block_size": 8, "threshold": 0.9}
    answers = [answer.ids for answer in engine.generate(prompts, settings, batch_size=1)]
    device, dtype = engine.transformer.device, engine.transformer.dtype
    del engine
    gc.collect()
    theirs = load(folder, device, dtype, block)
    return compared(prompts, answers, theirs, stops)


def _published_generate(
    folder: Path, device: torch.device, dtype: torch.dtype, block: int | None
) -> Callable[[list[int]], list[int]]:
    transformers = import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    kind = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, trust_remote_code=True, torch_dtype=dtype).to(device).eval()

    def generate(ids: list[int]) -> list[int]:
        given = torch.tensor([ids], device=device)
        made = model.generate(
            given,
            tokenizer=tokenizer,
            block_size=block,
            max_new_tokens=NEW_TOKENS,
            small_block_size=8,
            threshold=0.9,
        )
        return [int(token) for token in made[0][len(ids) :]]

    return generate


PUBLISHED_CODE = {"fast_dllm_v2": _published_generate}
"""How the code of a family's publisher is loaded and called."""


def compared(
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    theirs: Callable[[list[int]], list[int]],
    stops: set[int],
) -> Outcome:
    """How many answers are equal, token by token, as far as both go."""
    equal, parted = 0, []
    for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        other = theirs(prompt)
        ends = [place + 1 for place, token in enumerate(other) if token in stops]
        other = other[: ends[0]] if ends else other
        length = min(len(answer), len(other), NEW_TOKENS)
        first = next((place for place in range(length) if answer[place] != other[place]), None)
        equal += first is None
        parted += [] if first is None else [{"prompt": index, "token": first}]
    says = f"{equal} of {len(prompts)} answers equal token by token"
    if parted:
        says += "; in half precision a near tie may fall otherwise, and the rest of the answer with it"
    verdict = "good" if len(parted) <= MOST_DIFFERENT else "bad"
    return outcome(verdict, says, equal=equal, prompts=len(prompts), parted=parted)


def _decode(engine: Engine, batch: int, new_tokens: int = NEW_TOKENS) -> list[Any]:
    return engine.generate(_prompts(engine, batch), _settings(new_tokens), batch_size=batch)


def _settings(new_tokens: int = NEW_TOKENS) -> dict[str, Any]:
    return {"max_new_tokens": new_tokens, "stop_tokens": ()}


def _prompts(engine: Engine, count: int) -> list[list[int]]:
    """Different prompts of ordinary tokens, the same ones each time."""
    special = {engine.mask_token, *engine.config.stop_tokens}
    ordinary = [token for token in range(min(engine.config.vocab_size, 4096)) if token not in special]
    return [
        [
            ordinary[(31 * place + 17 * index + place * place) % len(ordinary)]
            for place in range(PROMPT_TOKENS + index % 3)
        ]
        for index in range(count)
    ]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


PARTS: dict[str, Callable[[Place], Outcome]] = {
    "device": device_facts,
    "memory": memory,
    "launches": launches,
    "speed": speed,
    "graphs": graphs,
}
"""All but `published`, which must be allowed."""
