"""How a sweep is conducted, as its recipe says it: how tasks are put to the model, what is timed, when runs may end.

Beside these parts of a recipe: the order in which rows are answered where runs may end early, the same for every
configuration, so that rows stay paired however far two runs have come.
"""

import random
import re
from collections.abc import Mapping

from unmask.errors import UnmaskError
from unmask.spec.build import Count, Part, Positive, shown

DEVICE = re.compile(r"cpu|mps|cuda(:[0-9]{1,3})?")
NO_CRITERION = (
    "The runs can only end when they are decided if there is a criterion; give the recipe a [success] table, or leave "
    "out until_decided."
)
FEWEST_IN_A_ROUND, BATCHES_IN_A_ROUND = 32, 4
"""Rows of a round where none are named: a look costs nothing, but the end of a round leaves places of a batch empty."""


class EvaluationSpec(Part, frozen=True, kw_only=True):
    """How tasks are put to the model, the same for all of them."""

    batch_size: Positive = 16
    """Requests that decode together; answers do not depend on it."""
    chat: bool = False
    """Whether prompts go through the checkpoint's chat template."""
    system_instruction: str | None = None
    """Text in front of every prompt."""
    allow_code: bool = False
    """Whether tasks may run programs that the model writes, in bubblewrap."""
    allow_unsafe_code: bool = False
    """Whether they may run without isolation where bubblewrap does not work."""
    data: str | None = None
    """Folder with local data, relative to the recipe; None takes the hub."""
    device: str | None = None
    """`cpu`, `cuda`, `cuda:1` or `mps`; None takes the best one present."""

    def __post_init__(self) -> None:
        """Refuse a device that no machine has."""
        if self.device is not None and not DEVICE.fullmatch(self.device):
            raise UnmaskError(
                f"evaluation.device is {shown(self.device)}; use cpu, cuda, cuda:1 or mps, or leave it out."
            )


class TimingSpec(Part, frozen=True, kw_only=True):
    """A timing run: all configurations in turns over the same prompts in one process."""

    task: str
    """The task whose prompts are timed."""
    name: str = "timing"
    """Tells several timing runs of one task apart."""
    prompts: Positive = 16
    """Rows to time, of each subtask."""
    repeats: Positive = 5
    """Rounds in which all configurations run; six give an interval of 95 %."""
    batch_size: Positive = 1
    """Requests that decode together."""
    control: str | None = None
    """The configuration that speeds are compared with; None takes that of the criteria, or the first."""
    configurations: tuple[str, ...] = ("*",)
    """Patterns of names."""


class UntilDecidedSpec(Part, frozen=True, kw_only=True):
    """That runs end as soon as it is certain whether they meet the criterion, and how often that is looked at."""

    rows: Positive | None = None
    """Rows of a round; None takes four batches, and at least 32 rows."""
    seed: Count = 0
    """Of the order in which rows are answered."""

    def round_of(self, task: str, rows: int, batch_size: int) -> int:
        """Rows of a round of a task."""
        if self.rows is None:
            return min(rows, max(FEWEST_IN_A_ROUND, BATCHES_IN_A_ROUND * batch_size))
        if self.rows > rows:
            raise UnmaskError(
                f"until_decided.rows is {self.rows}, but {task} asks {rows} rows; make a round smaller than that."
            )
        return self.rows


def answer_order(task: Mapping[str, object], seed: int) -> list[str]:
    """The rows of a task, as an identity describes it, by their names (`subtask/number`) in a random order.

    Subtasks come in proportion to their rows: any beginning of the order holds about the same share of each.
    """
    sizes, limit = task["rows"], task["limit"]
    assert isinstance(sizes, Mapping)
    draws = random.Random(seed)
    places: list[tuple[float, str]] = []
    for name in sorted(sizes):
        count = min(sizes[name], limit) if isinstance(limit, int) else sizes[name]
        numbers = list(range(count))
        draws.shuffle(numbers)
        places += [
            ((place + draws.random()) / count, f"{name}/{number}") for place, number in enumerate(numbers)
        ]
    return [row for _, row in sorted(places)]
