"""Runs vectors, or compares a checkpoint with itself: token for token in fp32, under forced tokens in other dtypes.

In fp32 a vector passes or fails. In another dtype rounding decides otherwise sooner or later and from
there on the answers have nothing in common, so the fp32 steps are forced on it and each prediction is
compared on the same state.

No vector knows the weights of a checkpoint of one's own. Its answers to single requests, in fp32 on the CPU, then stand
in for a vector: the same requests decoded together, on another device or in another dtype, must agree with them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from unmask.conformance.published import published_by, same_forwards
from unmask.conformance.vectors import ExpectedAnswer, Vector
from unmask.engine.engine import Engine
from unmask.engine.events import Finished, Generation, StepEvent, collect
from unmask.engine.monte_carlo import Draw, estimate
from unmask.engine.prompt import Request
from unmask.engine.score import ScoreRequest
from unmask.engine.unmasking import ForcedTokens
from unmask.loading import load
from unmask.model.device import choose_device
from unmask.model.synthetic import write_checkpoint
from unmask.spec import DecodeSpec

Script = dict[int, list[list[tuple[int, int]]]]
"""For each request, the positions and tokens of each step that made any known."""


NEW_TOKENS, DEFAULT_BLOCK = 48, 32
"""Tokens asked of a checkpoint of one's own, and its block where it names none."""
MOST_TOKENS = 4096
"""Tokens of the vocabulary that its prompts are made of: the first ones."""
SCORE_TOLERANCE = 1e-3
"""Largest difference of a log likelihood that still counts as equal; the values were recorded in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCheck:
    """What one vector gave."""

    vector: str
    tokens_equal: bool
    """Whether tokens, or scores within their tolerance, are those of the vector."""
    steps_equal: bool | None = None
    """None where the vector leaves the number of steps open."""
    first_difference: str | None = None
    smallest_margin: float | None = None
    positions: int | None = None
    """Positions compared under forced tokens, in dtypes other than fp32."""
    agreed: int | None = None
    """Those of them where both dtypes predict the same token."""

    @property
    def failed(self) -> bool:
        """Whether tokens or steps differ."""
        return not self.tokens_equal or self.steps_equal is False


def check(vector: Vector, scratch: Path, device: str | None = None, dtype: str = "float32") -> VectorCheck:
    """Run one vector; its checkpoint is written to `scratch`, where the next vector may find it."""
    folder = _checkpoint(vector, scratch)
    if vector.likelihood:
        return _check_likelihoods(vector, load(folder, device, "float32"))
    if vector.estimator is not None:
        return _check_scores(vector, load(folder, device, "float32"))
    generations, script = record(load(folder, device, "float32"), vector)
    difference = _first_difference(vector.expect, generations)
    differently_written = _differently_written(vector, script)
    positions = agreed = None
    if dtype != "float32":
        rule = ForcedTokens(script)
        record(load(folder, device, dtype), vector, rule)
        positions, agreed = rule.positions, rule.agreed
    return VectorCheck(
        vector=vector.name,
        tokens_equal=difference is None,
        steps_equal=_steps_equal(vector, generations, differently_written),
        first_difference=difference or differently_written,
        smallest_margin=vector.smallest_margin,
        positions=positions,
        agreed=agreed,
    )


def _check_scores(vector: Vector, engine: Engine) -> VectorCheck:
    requests = [ScoreRequest(row.prefix, row.target) for row in vector.rows]
    estimator: Any = vector.estimator
    given = [score.logprob for score in engine.score(requests, estimator).scores]
    return _compared(vector, given, [row.loglikelihood for row in vector.rows])


def _check_likelihoods(vector: Vector, engine: Engine) -> VectorCheck:
    given = [
        estimate(
            engine,
            [ScoreRequest(row.prefix, row.target)],
            [[Draw(tuple(masked), share) for masked, share in zip(row.masked, row.p_mask, strict=True)]],
            DecodeSpec(guidance=row.cfg_scale),
        )[0].logprob
        for row in vector.likelihood
    ]
    return _compared(vector, given, [row.value for row in vector.likelihood])


def _compared(vector: Vector, given: Sequence[float], expected: Sequence[float]) -> VectorCheck:
    differing = (
        f"row {number}: {got:.4f}, expected {value:.4f}"
        for number, (got, value) in enumerate(zip(given, expected, strict=True), 1)
        if not abs(got - value) <= SCORE_TOLERANCE
    )
    difference = next(differing, None)
    return VectorCheck(vector=vector.name, tokens_equal=difference is None, first_difference=difference)


def _checkpoint(vector: Vector, scratch: Path) -> Path:
    recipe = vector.checkpoint.values
    if "eot_token_id" in vector.decode:
        ends = [vector.decode["eos_token_id"], vector.decode["eot_token_id"]]
        recipe = recipe | {"config": recipe["config"] | {"eos_token_id": ends}}
    folder = scratch / sha256(msgspec.json.encode(recipe, order="sorted")).hexdigest()
    return folder if folder.exists() else write_checkpoint(recipe, folder)


def record(
    engine: Engine, vector: Vector, rule: ForcedTokens | None = None
) -> tuple[list[Generation], Script]:
    """Decode all prompts of a vector together, writing down every step."""
    requests = [
        Request(prompt, budget) for prompt, budget in zip(vector.prompts, vector.max_new_tokens, strict=True)
    ]
    return _decoded(engine, requests, vector.decode_spec, vector.policy, rule)


def _decoded(
    engine: Engine,
    requests: Sequence[Request],
    decode: DecodeSpec,
    policy: Any = None,
    rule: ForcedTokens | None = None,
) -> tuple[list[Generation], Script]:
    script: Script = {index: [] for index in range(len(requests))}

    def noted(events: Iterator[StepEvent | Finished]) -> Iterator[StepEvent | Finished]:
        for event in events:
            if isinstance(event, StepEvent) and event.positions:
                script[event.request].append(list(zip(event.positions, event.tokens, strict=True)))
            yield event

    events = engine.stream(requests, decode, policy, rule=rule)
    return collect(noted(events)), script


def check_own(model: str | Path, device: str | None = None, dtype: str = "float32") -> list[VectorCheck]:
    """Compare a checkpoint's answers to requests that come together with those to each of them alone on the CPU."""
    reference = load(model, "cpu", "float32")
    decode, requests = DecodeSpec(), _own_requests(reference)
    alone = [_decoded(reference, [request], decode) for request in requests]
    on_cpu = choose_device(device).type == "cpu"
    other = reference if on_cpu or dtype != "float32" else load(model, device, "float32")
    together, _ = _decoded(other, requests, decode)
    low = load(model, device, dtype) if dtype != "float32" else None
    return [
        _own_check(request, *single, given, decode, low)
        for request, single, given in zip(requests, alone, together, strict=True)
    ]


def _own_requests(engine: Engine) -> list[Request]:
    """Prompts of lengths around whole blocks, made of ordinary tokens."""
    block = engine.config.block_size or DEFAULT_BLOCK
    special = {engine.mask_token, *engine.config.stop_tokens}
    ordinary = [token for token in range(min(engine.config.vocab_size, MOST_TOKENS)) if token not in special]
    lengths = (1, block - 1 or 1, block, block + 1, 2 * block + block // 2)
    return [
        Request([ordinary[(31 * place + length) % len(ordinary)] for place in range(length)], NEW_TOKENS)
        for length in dict.fromkeys(lengths)
    ]


def _own_check(
    request: Request,
    single: list[Generation],
    script: Script,
    given: Generation,
    decode: DecodeSpec,
    low: Engine | None,
) -> VectorCheck:
    expected = [ExpectedAnswer(ids=list(each.ids), finish=each.finish_reason) for each in single]
    difference = _first_difference(expected, [given])
    positions = agreed = None
    if low is not None:
        rule = ForcedTokens(script)
        _decoded(low, [request], decode, rule=rule)
        positions, agreed = rule.positions, rule.agreed
    return VectorCheck(
        vector=f"prompt of {len(request.prompt)} token{'s' * (len(request.prompt) > 1)}",
        tokens_equal=difference is None,
        steps_equal=single[0].ledger.steps() == given.ledger.steps(),
        first_difference=difference,
        positions=positions,
        agreed=agreed,
    )


def _first_difference(expected: list[ExpectedAnswer], given: list[Generation]) -> str | None:
    for number, (answer, generation) in enumerate(zip(expected, given, strict=True), 1):
        place = f"prompt {number}, " if len(expected) > 1 else ""
        for position, (want, got) in enumerate(zip(answer.ids, generation.ids, strict=False)):
            if want != got:
                return f"{place}position {position}: {got}, expected {want}"
        if len(answer.ids) != len(generation.ids):
            position = min(len(answer.ids), len(generation.ids))
            return f"{place}position {position}: {len(generation.ids)} tokens, expected {len(answer.ids)}"
        if answer.finish not in (None, generation.finish_reason):
            return f"{place}finished by {generation.finish_reason}, expected {answer.finish}"
    return None


def _steps_equal(
    vector: Vector, generations: list[Generation], differently_written: str | None
) -> bool | None:
    """Whether forwards and what each of them wrote are those of the vector; None where it says neither."""
    if vector.forwards is None:
        return None if vector.written is None else differently_written is None
    published = published_by(vector.family)
    total: dict[str, int] = {}
    for generation in generations:
        for kind, count in published.forwards(generation.ledger).items():
            total[kind] = total.get(kind, 0) + count
    return same_forwards(published.expected(vector.forwards), total) and differently_written is None


def _differently_written(vector: Vector, script: Script) -> str | None:
    """The first step that did not write what the vector says."""
    if vector.written is None:
        return None
    given = [[position for position, _ in step] for step in script[0]]
    for number, (want, got) in enumerate(zip_longest(vector.written, given), 1):
        if sorted(want or ()) != sorted(got or ()):
            return f"step {number} wrote {_listed(got)}, expected {_listed(want)}"
    return None


def _listed(positions: list[int] | None) -> str:
    return ", ".join(map(str, positions or ())) or "nothing"
