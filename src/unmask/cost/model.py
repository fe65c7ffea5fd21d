"""How long work takes on a machine that was measured: rates times the quantities of a demand.

`benchmarks/cost.py` fits the rates and writes the file that is read here. Knows neither recipes nor stores nor how
anything is measured.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from unmask.cost.demand import QUANTITIES, Demand
from unmask.cost.shape import ModelShape
from unmask.errors import UnmaskError
from unmask.spec.build import build

SCHEMA = 1
SHIPPED = Path(__file__).parents[1] / "assets" / "machine.json"
GIGABYTE = 1e9
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds for one unit of each quantity of a demand."""

    forwards: NotNegative
    layer_calls: NotNegative
    requests: NotNegative
    weight_bytes: NotNegative
    key_bytes: NotNegative
    activation_bytes: NotNegative
    layer_flops: NotNegative
    attention_flops: NotNegative
    head_flops: NotNegative


class MachineModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured on one machine: the content of machine.json."""

    schema: int = SCHEMA
    machine: str
    threads: int
    device: str
    dtype: str
    date: str
    commit: str
    rates: Rates
    start_up_seconds: NotNegative
    """Of a worker, before the clock of its run begins."""
    opening_seconds: NotNegative
    """Of a run, before its checkpoint is loaded: tasks and their checks."""
    load_seconds: NotNegative
    """For each gigabyte of weights in the working dtype."""
    median_error: NotNegative
    """Relative, of forwards that a fit had not seen."""
    worst_error: NotNegative

    def seconds(self, demand: Demand) -> float:
        """How long some work takes."""
        return float(sum(getattr(self.rates, name) * getattr(demand, name) for name in QUANTITIES))

    def opening(self, shape: ModelShape, element_bytes: int) -> float:
        """How long a run takes before its first forward."""
        gigabytes = element_bytes * shape.weights / GIGABYTE
        return self.opening_seconds + self.load_seconds * gigabytes

    def __str__(self) -> str:
        told = f"{self.machine}, {self.threads} thread{'s' * (self.threads != 1)}, {self.date}"
        return f"{told}, forwards within {self.median_error:.0%} in the median"


@dataclass(frozen=True, slots=True)
class Found:
    """A machine model and where it was found."""

    model: MachineModel
    source: str
    """As it is called in a sentence."""


def machine_model() -> Found:
    """What was measured for this user, or what ships with the package."""
    file = user_file()
    try:
        if not file.exists():
            model = read_machine_model(SHIPPED)
            return Found(model, f"the cost model that ships with the package ({model})")
        model = read_machine_model(file)
    except (UnmaskError, OSError):
        model = read_machine_model(SHIPPED)
        return Found(model, f"the shipped cost model ({model}), since {file} is not readable as one")
    return Found(model, f"the cost model measured here ({model})")


def user_file() -> Path:
    """Where `benchmarks/cost.py --write` leaves what it measured."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "unmask" / "machine.json"


def read_machine_model(file: Path) -> MachineModel:
    """Read a machine model, or say in one sentence why it is none."""
    advice = "measure again with `python benchmarks/cost.py --write`, or delete it"
    try:
        values = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise UnmaskError(f"{file} cannot be read ({error.strerror}); {advice}.") from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise UnmaskError(f"{file} is no JSON; {advice}.") from None
    schema = values.get("schema") if isinstance(values, dict) else None
    if schema != SCHEMA:
        raise UnmaskError(f"{file} is no cost model of this version (schema {schema!r}); {advice}.")
    return build(MachineModel, values, str(file), strict=True)


def as_text(model: MachineModel) -> str:
    """The text of machine.json."""
    return json.dumps(msgspec.to_builtins(model), indent=1) + "\n"
