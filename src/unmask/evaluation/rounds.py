"""Answers a run's rows in rounds: lm-eval builds all requests, a given order says which of them are answered when.

After each round its rows are scored by their task, as lm-eval would score them at the end, and handed on; whoever
takes them may end the run. Which order that is and when a run may end is not known here.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance

from unmask.cost.work_sums import WorkSums
from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import metric_of
from unmask.store.stopping import AnsweredRow

TWIN = "a twin answers no more"


class Decided(BaseException):
    """Ends a run between two rounds, because its fate is certain."""

    def __init__(self, rows: int, of: int, rounds: int, reason: str) -> None:
        super().__init__(reason)
        self.rows, self.of, self.rounds, self.reason = rows, of, rounds, reason


def row_of(request: Instance) -> str:
    """The name of the row that a request belongs to."""
    return f"{request.task_name or 'unnamed'}/{request.doc_id}"


@dataclass(slots=True)
class Rounds:
    """The rounds of one run."""

    order: Sequence[str]
    """All rows by their names."""
    size: int
    metric: str | None
    """That of the run; None takes the usual one of each task."""
    ended: Callable[[int, Sequence[AnsweredRow]], None]
    """Called after each round with its number, from 1, and its rows; an error that it raises ends the run."""
    tasks: Mapping[str, Any] = field(default_factory=dict)
    """lm-eval's tasks, once they are set up."""
    _work: dict[str, tuple[WorkSums, int | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return -(-len(self.order) // self.size)

    def parts(self, rows: Sequence[Collection[str]]) -> list[list[int]]:
        """The places of items that each round needs; an item of several rows is answered with the first of them."""
        numbers = {row: place // self.size for place, row in enumerate(self.order)}
        parts: list[list[int]] = [[] for _ in range(len(self))]
        for place, of_item in enumerate(rows):
            try:
                parts[min(numbers[row] for row in of_item)].append(place)
            except KeyError as error:
                raise UnmaskError(
                    f"The order of the rows does not hold {error.args[0]}; run the recipe again without until_decided."
                ) from None
        return parts

    def count(self, row: str, effect: WorkSums, tokens: int | None = None) -> None:
        """Count the work of an answer to a request of a row."""
        before = self._work.get(row)
        if before is not None:
            effect.add(before[0])
            tokens = None if tokens is None else tokens + (before[1] or 0)
        self._work[row] = (effect, tokens)

    def end(self, number: int, requests: Sequence[Instance], answers: Mapping[int, Any]) -> None:
        """Score the rows of a round, whose requests are all answered by now, and hand them on."""
        wanted = set(self.order[(number - 1) * self.size : number * self.size])
        rows: dict[str, dict[int, Instance]] = {}
        for place, request in enumerate(requests):
            row = row_of(request)
            if row not in wanted:
                continue
            # lm-eval asks a request again under the same instance where a task wants several answers.
            of_row = rows.setdefault(row, {})
            if id(request) not in of_row:
                of_row[id(request)] = scored = copy.copy(request)
                scored.resps, scored.filtered_resps = [], {}
            of_row[id(request)].resps.append(answers[place])
        self.ended(number, [self._scored(row, list(rows[row].values())) for row in self.order if row in rows])

    def _scored(self, row: str, instances: list[Instance]) -> AnsweredRow:
        instances.sort(key=lambda instance: instance.idx)
        name = instances[0].task_name or ""
        task = self.tasks[name]
        metric, _, chosen = (self.metric or metric_of(name)).partition(",")
        for ensemble in task._filters:
            if ensemble.name == chosen:
                ensemble.apply(instances)
        answers = [instance.filtered_resps[chosen] for instance in instances]
        value = task.process_results(instances[0].doc, answers).get(metric)
        if not isinstance(value, int | float):
            raise UnmaskError(f"{row} has no number for {metric}, so its run cannot end when it is decided.")
        effect, tokens = self._work.get(row, (None, None))
        return AnsweredRow(
            row=row, value=float(value), tokens=tokens, effect=effect.as_row() if effect else None
        )


class FirstRows(Rounds):
    """What a twin answers: one round, whose answers are compared with those of the run that stands for it."""

    __slots__ = ()

    def end(self, number: int, requests: Sequence[Instance], answers: Mapping[int, Any]) -> None:
        """Its rows are answered; nobody scores them."""
        del requests, answers
        raise Decided(min(self.size, len(self.order)), len(self.order), number, TWIN)
