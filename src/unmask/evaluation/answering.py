"""Requests of a benchmark, answered by the engine: generations and log likelihoods, many at a time.

Knows lm-eval's generation arguments by name, but not lm-eval. An argument that the decoder cannot honour is
refused, because an answer given under other settings than asked for is a wrong answer. Does not know where
answers are kept: every function hands them on as soon as they are whole.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from unmask.cost import Ledger, Sharing
from unmask.engine.engine import Engine
from unmask.engine.events import Finished, Generation
from unmask.engine.prompt import Request
from unmask.engine.score import Score, ScoreRequest, Scores
from unmask.errors import UnmaskError
from unmask.evaluation.clock import Meter
from unmask.spec import DecodeSpec
from unmask.spec.family import EstimatorName
from unmask.spec.recipe import OrderName

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the same limit; the first that is given counts."""
KNOWN = {*LENGTHS, "until", "do_sample", "temperature", "top_p"}
PART = 32
"""Batches that are scored in one call of the engine. Their answers are kept should a later call fail."""
PrefixGroup = list[int]
"""Places (indices) of the score requests that share a prefix."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt with the settings of its answer."""

    ids: tuple[int, ...]
    decode: DecodeSpec
    repeat: int = 0
    """Which of the equal requests this is; random draws differ between them."""


def decode_settings(arguments: Mapping[str, Any], default: DecodeSpec, engine: Engine) -> DecodeSpec:
    """The decode settings of a request: what the task asks for, and the defaults where it asks for nothing."""
    unknown = sorted(set(arguments) - KNOWN)
    if unknown:
        raise UnmaskError(
            f"The generation argument {unknown[0]} cannot be honoured; the decoder knows {', '.join(sorted(KNOWN))}."
        )
    strings, tokens = _stops(arguments.get("until"), default, engine)
    limit = next((arguments[name] for name in LENGTHS if arguments.get(name) is not None), None)
    return msgspec.structs.replace(
        default,
        max_new_tokens=default.max_new_tokens if limit is None else int(limit),
        temperature=_temperature(arguments, default),
        top_p=default.top_p if arguments.get("top_p") is None else float(arguments["top_p"]),
        stop_strings=strings,
        stop_tokens=tokens,
    )


def _temperature(arguments: Mapping[str, Any], default: DecodeSpec) -> float:
    sample, temperature = arguments.get("do_sample"), arguments.get("temperature")
    if sample is False:
        return 0.0
    if temperature is not None:
        if sample and float(temperature) == 0:
            raise UnmaskError(
                "do_sample is on but temperature is 0; give a temperature above 0, or switch do_sample off."
            )
        return float(temperature)
    return (default.temperature or 1.0) if sample else default.temperature


def _stops(
    until: str | Sequence[str] | None, default: DecodeSpec, engine: Engine
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Stop strings, and stop tokens: a special token has no text in an answer, so it stops by its id."""
    wanted = [until] if isinstance(until, str) else list(until or ())
    stop_tokens = engine.config.stop_tokens if default.stop_tokens is None else default.stop_tokens
    strings, tokens = list(default.stop_strings), list(stop_tokens)
    for text in filter(None, wanted):
        token = engine.tokenizer.token_id(text)
        if token is not None and not engine.tokenizer.decode([token]):
            tokens.append(token)
        else:
            strings.append(text)
    return tuple(dict.fromkeys(strings)), tuple(dict.fromkeys(tokens))


def check_room(engine: Engine, prompt: int, wanted: int, task: str) -> None:
    """Refuse a canvas that is too long before the first answer is given, not when its turn comes."""
    room = engine.config.max_positions
    if engine.config.family.canvas and prompt + wanted > room:
        raise UnmaskError(
            f"A prompt of {task} has {prompt} tokens, and with {wanted} new ones it makes a canvas of "
            f"{prompt + wanted} positions, but the model has {room}; lower --num-fewshot or max_new_tokens."
        )


def numbered(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    """The requests in their order, with equal ones counted in `repeat`."""
    seen: Counter[GenerationRequest] = Counter()
    counted = []
    for request in requests:
        counted.append(replace(request, repeat=seen[request]))
        seen[request] += 1
    return counted


def generate(
    engine: Engine,
    requests: Mapping[int, GenerationRequest],
    policy: Any,
    batch_size: int,
    meter: Meter,
    answered: Callable[[int, Generation], None],
) -> None:
    """Answer requests, given by their places: those of equal settings together and the longest first.

    `answered` is called with a request's place and its answer as soon as the answer is whole; the time that
    it takes is outside the clock.
    """
    by_settings: dict[DecodeSpec, list[int]] = {}
    for place, request in requests.items():
        by_settings.setdefault(request.decode, []).append(place)
    for decode, places in by_settings.items():
        order = sorted(places, key=lambda place: -len(requests[place].ids))
        prompts = [Request(requests[place].ids, repeat=requests[place].repeat) for place in order]
        for event in meter.timed(engine.stream(prompts, decode, policy, batch_size)):
            if isinstance(event, Finished):
                answered(order[event.request], event.generation)


def prefix_groups(requests: Sequence[ScoreRequest]) -> list[PrefixGroup]:
    """Requests with equal prefixes together, the longest prefix first."""
    groups: dict[tuple[int, ...], PrefixGroup] = {}
    for place, request in enumerate(requests):
        groups.setdefault(tuple(request.prefix), []).append(place)
    return [group for _, group in sorted(groups.items(), key=lambda item: -len(item[0]))]


@dataclass(frozen=True, slots=True)
class Scorer:
    """The engine's scorer with the settings of a run."""

    engine: Engine
    decode: DecodeSpec
    policy: Any
    estimator: EstimatorName
    order: OrderName
    batch_size: int
    meter: Meter

    def run(
        self,
        requests: Sequence[ScoreRequest],
        groups: Sequence[PrefixGroup],
        scored: Callable[[PrefixGroup, list[Score], Ledger, Sharing, str | None], None],
        progress: Callable[[int], None],
    ) -> None:
        """Score these groups of the requests.

        `scored` is called for each group with its scores, the work behind them, what was shared, and the reason why
        the policy could not act, if there is one.
        """
        for part in _filled(groups, PART * self.batch_size):
            members = [requests[place] for group in part for place in group]
            answer = self.meter.scored(
                lambda members=members: self._score(members, progress),  # type: ignore[misc]
                sum(len(request.target) for request in members),
            )
            scores = iter(answer.scores)
            for group in part:
                own = [_finite(next(scores)) for _ in group]
                ledger, sharing = Ledger(self.engine.config.num_layers), Sharing()
                for number in {score.group for score in own}:
                    ledger = ledger.merged(answer.ledgers[number])
                    sharing.add(answer.sharing[number])
                scored(group, own, ledger, sharing, answer.inactive)

    def _score(self, part: Sequence[ScoreRequest], progress: Callable[[int], None]) -> Scores:
        return self.engine.score(
            part, self.estimator, self.order, self.decode, self.policy, self.batch_size, progress
        )


def _filled(groups: Sequence[PrefixGroup], at_least: int) -> Iterator[list[PrefixGroup]]:
    """Groups in parts of at least so many requests; the last part may be smaller, and no group is divided."""
    part: list[PrefixGroup] = []
    for group in groups:
        part.append(group)
        if sum(map(len, part)) >= at_least:
            yield part
            part = []
    if part:
        yield part


def _finite(score: Score) -> Score:
    if not math.isfinite(score.logprob):
        raise UnmaskError(
            f"A log likelihood is {score.logprob}; the model's logits are not finite, so use float32."
        )
    return score
