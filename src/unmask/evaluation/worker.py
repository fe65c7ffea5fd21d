"""Executes one run of the store: settings are read from its folder, and answers, samples and result are left there.

Knows how an identity becomes an evaluation. Whether and where it runs was decided elsewhere; device and
number format are chosen here, because only here is it known what the machine has.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch

from unmask.engine.engine import Engine
from unmask.errors import UnmaskError
from unmask.evaluation.clock import Meter, reset_peak_memory
from unmask.evaluation.engines import LoadedEngines, checkpoints_of
from unmask.evaluation.harness import Options
from unmask.evaluation.journal import Journal
from unmask.evaluation.lm import UnmaskLM
from unmask.evaluation.lock import check_checkpoint, check_rows
from unmask.evaluation.results import evaluate, result_of, samples_of
from unmask.evaluation.rounds import Decided, FirstRows, Rounds
from unmask.evaluation.task_data import Loaded, load_tasks, work_offline
from unmask.evaluation.timing import time_all
from unmask.model.hub import find_checkpoint
from unmask.policies.registry import policy_spec
from unmask.spec import DecodeSpec, build
from unmask.spec.conduct import answer_order
from unmask.spec.lock import Lock, read_lock
from unmask.spec.rule import rule_spec
from unmask.spec.sweep import revision_change
from unmask.store.attempt import Attempt
from unmask.store.environment import computation, environment
from unmask.store.export import summary_of, summary_text
from unmask.store.result import AccuracyResult, AnyResult, TimingResult
from unmask.store.run_folder import RunFolder, Terms, WorkerSettings
from unmask.store.stopping import AnsweredRow, add_rows, stop
from unmask.store.traces import check_traces, with_traces

Judge = Callable[[RunFolder], str | None]
"""Why a run may end now, by what lies in the store; None where it must go on."""


def complete(
    run: RunFolder, attempt: Attempt, judge: Judge | None = None, loaded: LoadedEngines | None = None
) -> bool:
    """Execute a run and publish its result; False if another worker published one first, or the judge ended it.

    `loaded` is what this process has in memory from earlier runs.
    """
    memory = loaded or LoadedEngines()
    try:
        with memory.watching_memory():
            result = execute(run, attempt, memory, judge)
    except Decided as end:
        stop(attempt, end.rows, end.of, end.rounds, end.reason)
        return False
    published = run.publish(result)
    if published and isinstance(result, AccuracyResult):
        names = run.worker.configuration, run.worker.experiment
        run.write_summary(summary_text(summary_of(result, *names)))
    return published


def execute(run: RunFolder, attempt: Attempt, memory: LoadedEngines, judge: Judge | None = None) -> AnyResult:
    """Compute the result of a run; nothing is published here."""
    start = time.perf_counter()
    identity, worker = run.identity, run.worker
    if change := revision_change(identity):
        raise UnmaskError(
            f"{run.name} was planned by another version of Unmask ({change}); run its recipe again."
        )
    _check_code(identity, run.store)
    lock = read_lock(Path(worker.lock))
    checkpoints = checkpoints_of(identity, lock)
    if lock.datasets or any(checkpoint.revision for checkpoint in checkpoints.values()):
        work_offline()
    meter = Meter()
    with meter.phase("tasks"):
        loaded = _tasks(identity, worker, lock)
    with meter.phase("loading"):
        engines = memory.load(run, checkpoints)
    engine = engines[""]
    reset_peak_memory(engine)
    transformer = engine.transformer
    dtype = str(transformer.dtype).removeprefix("torch.")
    attempt.compute_as(computation(device=transformer.device.type, dtype=dtype))
    result: AnyResult = (
        _timing(_with_traces(run), engines, loaded, attempt)
        if identity["kind"] == "timing"
        else _accuracy(_with_traces(run), worker, engine, loaded, attempt, run, meter, judge)
    )
    return msgspec.structs.replace(
        result,
        id=run.id,
        identity=identity,
        attempt=attempt.number,
        seconds=time.perf_counter() - start - memory.loading_seconds,
        loading_seconds=memory.loading_seconds,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment(
            device=str(transformer.device),
            dtype=dtype,
            threads=torch.get_num_threads(),
            batch_size=identity.get("batch_size", worker.batch_size),
            seed=(identity.get("decode") or {}).get("seed"),
            cuda=torch.version.cuda,
            layouts=transformer.layouts,
        ),
    )


def _with_traces(run: RunFolder) -> dict[str, Any]:
    """The identity with the traces that its policies name, wherever this store lies."""
    store, identity = run.store, run.identity
    if "policy" in identity:
        return {**identity, "policy": with_traces(store, identity["policy"])}
    parts = identity["configurations"].items()
    configurations = {name: {**each, "policy": with_traces(store, each["policy"])} for name, each in parts}
    return {**identity, "configurations": configurations}


def _check_code(identity: dict[str, Any], store: Path) -> None:
    """Refuse a policy or rule whose code or trace is not the one that the run was planned with."""
    for settings in identity.get("configurations", {"": identity}).values():
        check_traces(store, settings["policy"])
        rule = settings["decode"].get("rule")
        parts = [("policy", policy_spec(settings["policy"]))] + ([("rule", rule_spec(rule))] if rule else [])
        for noun, spec in parts:
            for name, value in spec.depends_on().items():
                if settings.get(name) != value:
                    raise UnmaskError(
                        f"The {noun} {msgspec.to_builtins(spec)} was edited since this run was planned ({name} "
                        "differs); run the recipe again, which makes a new run of it."
                    )


def _tasks(identity: dict[str, Any], worker: WorkerSettings, lock: Lock) -> Loaded:
    """The loaded tasks, whose samples must be those that the identity names, as the checkpoints must."""
    task = identity["task"]
    data = Path(worker.data) if worker.data else None
    loaded = load_tasks(
        [task["name"]],
        data,
        task["limit"],
        worker.allow_code,
        bool(worker.allow_unsafe_code),
        lock.datasets or None,
    )
    for checkpoint in {each.model: each for each in checkpoints_of(identity, lock).values()}.values():
        check_checkpoint(checkpoint, find_checkpoint(checkpoint.model, checkpoint.revision))
    check_rows(lock, loaded)
    names = task["rows_sha256"]
    held = {
        "rows_sha256": {name: lock.tasks.get(name) for name in names},
        "version": {name: lock.versions.get(name) for name in names},
        "lm_eval": lock.lm_eval,
    }
    if any(task[part] != value for part, value in held.items()):
        raise UnmaskError("The lock has changed since this run was planned; plan and run the recipe again.")
    return loaded


def _options(task: dict[str, Any], generation: dict[str, Any]) -> Options:
    return Options(
        limit=task["limit"],
        num_fewshot=task["num_fewshot"],
        chat=task["chat"],
        system_instruction=task["system_instruction"],
        generation=generation,
    )


def _accuracy(
    identity: dict[str, Any],
    worker: WorkerSettings,
    engine: Any,
    loaded: Loaded,
    attempt: Attempt,
    run: RunFolder,
    meter: Meter,
    judge: Judge | None,
) -> AccuracyResult:
    task = identity["task"]
    lm = UnmaskLM(
        engine=engine,
        policy=policy_spec(identity["policy"]),
        decode=decode_settings(identity["decode"]),
        estimator=task["estimator"],
        order=task["order"],
        batch_size=worker.batch_size,
        meter=meter,
        journal=_journal(run, attempt),
        rounds=_rounds(run, attempt, judge),
    )
    evaluation = evaluate(lm, loaded, _options(task, identity["generation"]))
    attempt.write_samples(samples_of(evaluation, lm, task["metric"]))
    return result_of(evaluation, lm, task["name"], task["metric"])


def _rounds(run: RunFolder, attempt: Attempt, judge: Judge | None) -> Rounds | None:
    """The rounds of a run that may end early; its rows are on disk before anybody judges them."""
    terms, task, beginning = run.worker.until_decided, run.identity["task"], run.identity.get("first_rows")
    if beginning is not None:
        return FirstRows(answer_order(task, beginning["seed"]), beginning["rows"], None, _nobody_asks)
    if judge is None or not isinstance(terms, Terms):
        return None
    order = answer_order(task, terms.seed)

    def ended(number: int, rows: Sequence[AnsweredRow]) -> None:
        add_rows(attempt, rows)
        answered = min(number * terms.rows, len(order))
        if answered < len(order) and (reason := judge(run)) is not None:
            raise Decided(answered, len(order), number, reason)

    return Rounds(order, terms.rows, task["metric"], ended)


def _nobody_asks(number: int, rows: Sequence[AnsweredRow]) -> None:
    del number, rows


def _journal(run: RunFolder, attempt: Attempt) -> Journal:
    """The answers that this attempt takes over: those of earlier attempts that were computed in the same way."""
    kind = attempt.computation()
    assert kind is not None, "it is written when the model is loaded"
    others = run.answers_of_other_kinds(kind)
    for change, keys in others.items():
        print(f"Answers of another kind of computation ({change}) are not taken over: {len(keys)}.")

    return Journal(run.answers(kind), attempt.answer, attempt.progress, frozenset().union(*others.values()))


def _timing(
    identity: dict[str, Any], engines: dict[str, Engine], loaded: Loaded, attempt: Attempt
) -> TimingResult:
    options = _options(identity["task"], {})
    return time_all(engines, loaded, options, identity, attempt.progress)


def decode_settings(values: dict[str, Any]) -> DecodeSpec:
    """The frozen settings; a temperature comes with the task's arguments, as in `unmask eval`."""
    return build(DecodeSpec, {**values, "temperature": 0.0}, "decode")
