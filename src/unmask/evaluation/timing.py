"""A timing run: one process, one device, one loaded model, all configurations by turns over the same prompts.

Every configuration runs once to warm up, which also gives its answers; then each round runs all configurations, in
alternating order. A configuration that answers otherwise in a round than in its warm-up ends the run with an error.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, NamedTuple

import msgspec

from unmask.cost import Ledger, Sharing
from unmask.cost.median import median_interval
from unmask.cost.work_sums import WorkSums
from unmask.engine.engine import Engine
from unmask.engine.score import ScoreRequest
from unmask.errors import UnmaskError
from unmask.evaluation.answering import (
    GenerationRequest,
    Scorer,
    decode_settings,
    generate,
    numbered,
    prefix_groups,
)
from unmask.evaluation.clock import MachineState, Meter, peak_memory, reset_peak_memory, waiting_for
from unmask.evaluation.harness import Options, collect
from unmask.evaluation.lm import UnmaskLM
from unmask.evaluation.proof import shared_work
from unmask.evaluation.task_data import Loaded
from unmask.policies.registry import policy_spec
from unmask.spec import DecodeSpec, build
from unmask.store.result import (
    CountedWork,
    MeasuredSpeedup,
    PathName,
    RateInterval,
    SharedWork,
    TimedConfiguration,
    TimingResult,
)


class Questions(NamedTuple):
    """What one engine is asked."""

    path: PathName
    lm: UnmaskLM
    requests: Sequence[Any]


class Answered(NamedTuple):
    """What one pass over all prompts gave."""

    digest: str
    """Of the answers."""
    effect: WorkSums
    shared: SharedWork


@dataclass(slots=True)
class ConfigurationRounds:
    """One configuration: how it runs once, and what its rounds took."""

    run_once: Callable[[Meter], Answered]
    """Answers all prompts on the given clock."""
    warm_up: Answered | None = None
    """Every round must repeat its answers."""
    rounds: list[Meter] = field(default_factory=list)
    """The clock of each round."""


def time_all(
    engines: Mapping[str, Engine],
    loaded: Loaded,
    options: Options,
    identity: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> TimingResult:
    """Run all configurations by turns and compare them with the control.

    The engine without a name serves all configurations that have none of their own.
    """
    task, rounds, engine = identity["task"], identity["repeats"], engines[""]
    questions = {name: _questions(each, loaded, options, identity) for name, each in engines.items()}
    path, _, requests = questions[""]
    configurations = {
        name: ConfigurationRounds(_runner(*questions.get(name, questions[""]), settings, task))
        for name, settings in identity["configurations"].items()
    }
    total = len(configurations) * (rounds + 1)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    wait = waiting_for(engine.transformer.device)
    warm_up = Meter(wait=wait)
    with warm_up.phase("warm_up"):
        for configuration in configurations.values():
            configuration.warm_up = configuration.run_once(Meter())
            tick()
    reset_peak_memory(engine)
    state = MachineState.now()
    for number in range(rounds):
        names = list(configurations) if number % 2 == 0 else list(reversed(configurations))
        for name in names:
            configurations[name].rounds.append(_timed(name, configurations[name], Meter(wait=wait)))
            tick()
    return TimingResult(
        task=task["name"],
        path=path,
        prompts=len(requests),
        repeats=rounds,
        control=identity["control"],
        warm_up_seconds=warm_up.phases["warm_up"],
        configurations=_compared(configurations, identity["control"], path),
        conditions=state.until_now(),
        peak_memory=peak_memory(engine),
    )


def _timed(name: str, configuration: ConfigurationRounds, meter: Meter) -> Meter:
    assert configuration.warm_up is not None  # that of every configuration comes first
    if configuration.run_once(meter).digest != configuration.warm_up.digest:
        raise UnmaskError(
            f"{name} gave other answers in a timed round than in its warm-up, so its speed means nothing."
        )
    return meter


def _questions(engine: Engine, loaded: Loaded, options: Options, identity: Mapping[str, Any]) -> Questions:
    """The task's requests as one engine reads them: a chat is rendered by the template of its own checkpoint."""
    lm = UnmaskLM(engine=engine, decode=DecodeSpec(), batch_size=identity["batch_size"])
    path, requests = collect(lm, loaded, options)
    return Questions(path, lm, requests)


def _runner(
    path: str, lm: UnmaskLM, requests: Sequence[Any], settings: Mapping[str, Any], task: Mapping[str, Any]
) -> Callable[[Meter], Answered]:
    engine, policy = lm.engine, policy_spec(settings["policy"])
    decode = build(DecodeSpec, {**settings["decode"], "temperature": 0.0}, "decode")
    if path == "generation":
        prompts = [
            GenerationRequest(
                lm.prompt_ids(request),
                decode_settings({**request.args[1], **settings["generation"]}, decode, engine),
            )
            for request in requests
        ]
        return lambda meter: _generated(engine, numbered(prompts), policy, lm.batch_size, meter)
    pairs = [ScoreRequest(*lm.encoded(*request.args)) for request in requests]
    estimator, order = task["estimator"], task["order"]

    def once(meter: Meter) -> Answered:
        return _scored(Scorer(engine, decode, policy, estimator, order, lm.batch_size, meter), pairs)

    return once


def _generated(
    engine: Engine, requests: Sequence[GenerationRequest], policy: Any, batch_size: int, meter: Meter
) -> Answered:
    answers: dict[int, list[int]] = {}
    effect, spared = WorkSums(engine.config.num_layers), Sharing()

    def answered(place: int, generation: Any) -> None:
        answers[place] = generation.ids
        effect.add(WorkSums.of(generation.ledger, engine.config.shape))
        spared.add(generation.sharing)

    generate(engine, dict(enumerate(requests)), policy, batch_size, meter, answered)
    return Answered(_digest(sorted(answers.items())), effect, shared_work(spared, engine.config.shape))


def _scored(scorer: Scorer, requests: Sequence[ScoreRequest]) -> Answered:
    answers: dict[int, tuple[float, bool]] = {}
    shape = scorer.engine.config.shape
    effect, spared = WorkSums(shape.layers), Sharing()

    def scored(
        group: list[int], scores: list[Any], ledger: Ledger, sharing: Sharing, inactive: str | None
    ) -> None:
        del inactive
        spared.add(sharing)
        answers.update({place: (s.logprob, s.is_greedy) for place, s in zip(group, scores, strict=True)})
        effect.add(WorkSums.of(ledger, shape, len(group)))

    scorer.run(requests, prefix_groups(requests), scored, lambda _: None)
    return Answered(_digest(sorted(answers.items())), effect, shared_work(spared, shape))


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _compared(
    configurations: Mapping[str, ConfigurationRounds], control: str, path: PathName
) -> dict[str, TimedConfiguration]:
    paces = {name: _pace(configuration, path) for name, configuration in configurations.items()}
    return {
        name: _summary(
            configuration, path, [base / own for base, own in zip(paces[control], paces[name], strict=True)]
        )
        for name, configuration in configurations.items()
    }


def _pace(configuration: ConfigurationRounds, path: str) -> list[float]:
    """Seconds for a token, or for a scored request, in each round."""
    if path == "generation":
        return [meter.decoding.seconds / max(1, meter.decoding.tokens) for meter in configuration.rounds]
    return [meter.scoring.seconds / max(1, meter.scoring.requests) for meter in configuration.rounds]


def _summary(configuration: ConfigurationRounds, path: PathName, ratios: list[float]) -> TimedConfiguration:
    assert configuration.warm_up is not None  # that of every configuration comes first
    answers, effect, shared = configuration.warm_up
    parts = [meter.decoding if path == "generation" else meter.scoring for meter in configuration.rounds]
    tokens, requests = parts[0].tokens, parts[0].requests
    seconds = [part.seconds for part in parts]
    rates = [(tokens if path == "generation" else requests) / spent for spent in seconds]
    return TimedConfiguration(
        tokens=tokens,
        requests=requests,
        forwards=effect.forwards,
        seconds=list(seconds),
        prefill_seconds=[meter.decoding.prefill_seconds for meter in configuration.rounds],
        tokens_per_second=median(tokens / spent for spent in seconds),
        requests_per_second=median(requests / spent for spent in seconds),
        interval=RateInterval(**asdict(median_interval(rates))),
        speedup=MeasuredSpeedup(median=median(ratios), **asdict(median_interval(ratios))),
        tokens_per_forward=tokens / effect.forwards if effect.forwards else None,
        effect=msgspec.convert(effect.as_dict(), CountedWork),
        shared=shared,
        answers_sha256=answers,
    )
