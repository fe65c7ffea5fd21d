"""The parts of `unmask gpu-check`: what each runs, how long it may take, and how its answer is judged.

Most are other verbs of the command line; what measures a device stands in evaluation/device_parts.py.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unmask.spec.recipe import EMBEDDED
from unmask.store.files import make_folder, write_atomically

Verdict = Literal["good", "bad", "skipped", "failed"]
TOTAL_SECONDS = 600.0
VECTORS = Path(__file__).parents[3] / "tests" / "golden"
"""Where a source tree has its golden vectors."""
EVERY = 6
"""Of the vectors, one in so many is run: all of them take too long for one part."""
FLOORS = {"float16": 0.97, "bfloat16": 0.93}
"""Share of tokens on which a number format must agree with fp32 (tests/engine/test_low_precision.py)."""

RECIPE = """name = "gpu_check"
hypothesis = "A sweep runs on this machine."

[model]
checkpoint = {checkpoint}
dtype = {dtype}

[decode]
max_new_tokens = 64

[evaluation]
batch_size = 4

[[tasks]]
name = "unmask_arith"
limit = 8

[[configurations]]
name = "full"

[[configurations]]
name = "reused"
policy = {{ kind = "layer_reuse", k = 2, unit = "output" }}
"""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What is to be checked."""

    model: str
    device: str | None
    dtype: str | None
    folder: Path
    vectors: Path | None = None
    run_published_code: bool = False
    seconds: float = TOTAL_SECONDS


@dataclass(frozen=True, slots=True)
class Done:
    """How a part's process ended."""

    code: int | None
    """None: its time was up."""
    output: str

    @property
    def document(self) -> Any:
        """The JSON document that it printed last."""
        return json.loads(self.output[self.output.index("{" if "{" in self.output else "[") :])


@dataclass(slots=True)
class PartVerdict:
    """A part's verdict."""

    part: str
    verdict: Verdict
    says: str
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckPart:
    """One thing to find out: a command, its time, and how its answer is judged."""

    name: str
    seconds: float
    command: tuple[str, ...]
    judge: Callable[[Done], PartVerdict]


NAMES = (
    "doctor",
    "device",
    "conformance in float32",
    "conformance in the working format",
    "memory",
    "launches",
    "speed",
    "graphs",
    "published code",
    "canary sweep",
)


def parts_of(wanted: CheckRequest, used: Mapping[str, str | None], scratch: Path) -> dict[str, CheckPart]:
    """All parts by their names; `used` says which device and number format they compute with, where that is known."""
    device = ["--device", used["device"]] if used["device"] else []
    dtype = ["--dtype", used["dtype"]] if used["dtype"] else []
    place = [wanted.model, *device, *dtype]
    known = _known_decodings(wanted, scratch)
    half = used["dtype"] if used["dtype"] in FLOORS else None
    measured = {
        name: ("gpu-check", *place, "--part", name)
        for name in ("device", "memory", "launches", "speed", "graphs")
    }
    code = ("--run-published-code",) if wanted.run_published_code else ()
    parts = (
        CheckPart("doctor", 60, ("doctor", "--json"), lambda done: _doctor(done, used["device"])),
        CheckPart("device", 60, measured["device"], _measured("device")),
        CheckPart("conformance in float32", 120, ("conformance", *known, *device, "--json"), _equal),
        CheckPart(
            "conformance in the working format",
            120,
            ("conformance", *known, *device, "--dtype", half or "float32", "--json") if half else (),
            lambda done: _agreeing(done, half),
        ),
        *(CheckPart(name, seconds, measured[name], _measured(name)) for name, seconds in TIMES.items()),
        CheckPart(
            "published code",
            200,
            ("gpu-check", *place, "--part", "published", *code),
            _measured("published code"),
        ),
        CheckPart(
            "canary sweep",
            200,
            (
                "run",
                _recipe(wanted, used["dtype"], scratch),
                "--canary",
                "4",
                "--store",
                str(scratch / "store"),
            ),
            _swept,
        ),
    )
    return {part.name: part for part in parts}


TIMES = {"memory": 90.0, "launches": 90.0, "speed": 150.0, "graphs": 90.0}


def _known_decodings(wanted: CheckRequest, scratch: Path) -> list[str]:
    """Golden vectors where they are, chosen evenly; else the built-in model against itself."""
    folder = wanted.vectors or VECTORS
    files = sorted(folder.glob("*.json"))
    if not files:
        return ["--model", EMBEDDED[0]]
    chosen = scratch / "vectors"
    make_folder(chosen)
    for file in files[::EVERY]:
        write_atomically(chosen / file.name, file.read_bytes(), durable=False, verbatim=True)
    return [str(chosen)]


def _recipe(wanted: CheckRequest, dtype: str | None, scratch: Path) -> str:
    """Write the recipe of the canary sweep."""
    path, file = Path(wanted.model).expanduser(), scratch / "recipe.toml"
    checkpoint = json.dumps(str(path.absolute()) if path.exists() else wanted.model)
    write_atomically(
        file, RECIPE.format(checkpoint=checkpoint, dtype=json.dumps(dtype or "float32")), durable=False
    )
    return str(file)


def _doctor(done: Done, device: str | None) -> PartVerdict:
    checks = json.loads(done.output)
    wrong = [check for check in checks if check["well"] is False]
    needed = [check for check in wrong if check["name"] in ("torch", "tokenizers", "safetensors", "GPU")]
    gpu = next(check for check in checks if check["name"] == "GPU")
    figures = {"checks": checks}
    if needed:
        says = "; ".join(f"{check['name']}: {check['says']}" for check in needed)
        return PartVerdict("doctor", "bad", says, figures=figures)
    if gpu["well"] is None and device != "cpu":
        return PartVerdict(
            "doctor", "bad", "no GPU is seen; give --device cpu to rehearse without one", figures=figures
        )
    names = ", ".join(check["name"] for check in wrong)
    return PartVerdict(
        "doctor",
        "good",
        f"GPU: {gpu['says']}" + (f"; not needed here: {names}" if names else ""),
        figures=figures,
    )


def _equal(done: Done) -> PartVerdict:
    document = done.document
    equal, different = document["equal"], document["different"]
    says = f"{equal} of {equal + different} decodings are the recorded ones"
    figures = {name: document[name] for name in ("equal", "different", "vectors")}
    return PartVerdict("conformance in float32", "bad" if different else "good", says, figures=figures)


def _agreeing(done: Done, dtype: str | None) -> PartVerdict:
    document = done.document
    agreed, positions = document["agreed"], document["positions"]
    share = agreed / positions
    says = f"{dtype} agrees with float32 on {agreed} of {positions} positions ({share:.2%})"
    verdict: Verdict = "good" if share >= FLOORS[dtype or ""] else "bad"
    figures = {"agreed": agreed, "positions": positions}
    return PartVerdict("conformance in the working format", verdict, says, figures=figures)


def _measured(name: str) -> Callable[[Done], PartVerdict]:
    def judge(done: Done) -> PartVerdict:
        document = done.document
        verdict, says = document.pop("verdict"), document.pop("says")
        return PartVerdict(name, verdict, says, figures=document)

    return judge


def _swept(done: Done) -> PartVerdict:
    if done.code not in (0, 1):
        raise ValueError
    says = (
        "two configurations of eight questions ran, from lock to table"
        if done.code == 0
        else "a guard objects"
    )
    return PartVerdict("canary sweep", "bad" if done.code else "good", says)
