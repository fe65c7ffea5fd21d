"""What a run that may end early leaves behind: the rows that it has scored, and why it was stopped.

Rows are added after each round, whole, so that other workers and every reader see the same beginning of the order.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from unmask.cost.work_sums import WorkRow
from unmask.errors import UnmaskError
from unmask.store.attempt import Attempt
from unmask.store.files import (
    append_durably,
    canonical,
    open_to_append,
    read_lines,
    read_struct,
    write_atomically,
)
from unmask.store.result import AccuracyResult, Number
from unmask.store.run_folder import RunFolder

ROWS, STOPPED = "rows.jsonl", "stopped.json"


class AnsweredRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of rows.jsonl: a row whose requests are answered, with the value of the headline metric."""

    row: str
    """Task and number of the sample."""
    value: Number
    """Value of the headline metric."""
    tokens: int | None = None
    """Accepted tokens of generated answers."""
    effect: WorkRow | None = None
    """Counted work of its requests, as in answers.jsonl."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """stopped.json: why an attempt ended before its last row; the run goes on from there when it is started again."""

    schema: int = 1
    """Version of the meaning of these fields."""
    rows: int = 0
    """Rows that were answered."""
    of: int = 0
    """Rows of the run."""
    round: int = 0
    """Rounds that were answered."""
    reason: str = "no reason is given"
    """One sentence for people."""
    time: str | None = None
    """When the attempt ended, in UTC."""


def add_rows(attempt: Attempt, rows: Sequence[AnsweredRow]) -> None:
    """Add the rows of a round; they are safe when this returns."""
    path = attempt.folder / ROWS
    try:
        stream = open_to_append(path)
    except OSError as error:
        raise UnmaskError(f"{path} cannot be written ({error.strerror}).") from error
    with stream:
        append_durably(stream, path, b"".join(canonical(row) + b"\n" for row in rows))


def stop(attempt: Attempt, rows: int, of: int, rounds: int, reason: str) -> None:
    """Write down that an attempt ends here, and why."""
    time = datetime.now(UTC).isoformat(timespec="seconds")
    stopped = Stopped(rows=rows, of=of, round=rounds, reason=reason, time=time)
    write_atomically(attempt.folder / STOPPED, canonical(stopped) + b"\n")


def stopped(attempt: Attempt) -> Stopped | None:
    """stopped.json, if the attempt was stopped; a damaged one counts as none, so that the run goes on."""
    try:
        return read_struct(attempt.folder / STOPPED, Stopped, "")
    except UnmaskError:
        return None


def rows_of(run: RunFolder) -> dict[str, AnsweredRow]:
    """The scored rows of a run by their names: those of all its attempts of one kind, and all where it is done.

    Answers of another kind of computation than the newest attempt's are computed again, so their rows do not count.
    Nothing uses a result that was retracted, so it has none.
    """
    if run.retraction() is not None:
        return {}
    attempts = run.attempts()
    kinds = [kind for attempt in attempts if (kind := attempt.computation()) is not None]
    rows: dict[str, AnsweredRow] = {}
    for attempt in attempts:
        if kinds and attempt.computation() == kinds[-1]:
            rows.update((row.row, row) for row in _rows_in(attempt))
    result = run.result()
    if isinstance(result, AccuracyResult) and result.attempt:
        for sample in run.attempt(result.attempt).samples():
            if sample.correct is not None and sample.id not in rows:
                rows[sample.id] = AnsweredRow(row=sample.id, value=sample.correct, tokens=sample.tokens)
    return rows


def _rows_in(attempt: Attempt) -> Iterator[AnsweredRow]:
    mend = f"delete the folder {attempt.folder} and run again: only its answers are computed anew"
    return read_lines(attempt.folder / ROWS, msgspec.json.Decoder(AnsweredRow).decode, mend)
