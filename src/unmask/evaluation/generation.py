"""What a task asks of a generation, made into decode settings, and run through the engine.

Knows lm-eval's generation arguments by name, but not lm-eval. An argument that the decoder cannot honour
is refused, because an answer given under other settings than asked for is a wrong answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from unmask.engine.engine import Engine
from unmask.engine.events import Finished, Generation
from unmask.engine.prompt import Request
from unmask.errors import UnmaskError
from unmask.evaluation.throughput import Meter
from unmask.spec import DecodeSpec

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the same limit; the first that is given counts."""
KNOWN = {*LENGTHS, "until", "do_sample", "temperature", "top_p"}


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
        top_p=float(arguments.get("top_p", default.top_p)),
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
                "do_sample is on but temperature is 0; give a temperature above 0, or switch it off."
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


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with the settings of its answer."""

    ids: tuple[int, ...]
    decode: DecodeSpec
    repeat: int = 0
    """Which of the equal prompts this is; draws differ between them."""


def numbered(tasks: Sequence[Task]) -> list[Task]:
    """Tell equal prompts apart, in their order."""
    seen: Counter[Task] = Counter()
    found = []
    for task in tasks:
        found.append(replace(task, repeat=seen[task]))
        seen[task] += 1
    return found


def generate(
    engine: Engine,
    tasks: Sequence[Task],
    policy: Any,
    batch_size: int,
    meter: Meter,
    answered: Callable[[int, Generation], None],
) -> None:
    """Answer all prompts, those of equal settings together and the longest first.

    `answered` is told the place of each prompt as soon as its answer is whole; it is outside the clock.
    """
    groups: dict[DecodeSpec, list[int]] = {}
    for place, task in enumerate(tasks):
        groups.setdefault(task.decode, []).append(place)
    for decode, places in groups.items():
        order = sorted(places, key=lambda place: -len(tasks[place].ids))
        requests = [Request(tasks[place].ids, repeat=tasks[place].repeat) for place in order]
        for event in meter.timed(engine.stream(requests, decode, policy, batch_size)):
            if isinstance(event, Finished):
                answered(order[event.request], event.generation)
