"""The two decoders of `decode.py`, loaded with the same weights and asked the same way.

Knows how each is called and that their ids must be equal, nothing of cases or clocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import reference
import unmask
from random_checkpoint import embedded_in_fp32, random_checkpoint
from reference_network import ReferenceNetwork

Ids = list[list[int]]
Work = dict[str, dict[str, int]]


class TokensDifferError(Exception):
    """The contenders do not decode alike, so their times say nothing."""


@dataclass(frozen=True)
class Outcome:
    """What a decoding gave and what it took."""

    ids: Ids
    work: Work


Decoding = Callable[[Ids, unmask.DecodeSpec], Outcome]


@dataclass(frozen=True)
class Contenders:
    """One shape, loaded for both."""

    engine: unmask.Engine
    decodings: dict[str, Decoding]

    @classmethod
    def load(cls, shape: str, cache: Path) -> "Contenders":
        """Load the same weights twice."""
        trained = shape == "embedded"
        folder = embedded_in_fp32(cache) if trained else random_checkpoint(shape, cache)
        engine = unmask.load("embedded" if trained else folder, device="cpu", dtype="float32")
        network = ReferenceNetwork.load(folder)
        return cls(engine, {"unmask": unmask_decoding(engine), "reference": reference_decoding(network)})


def unmask_decoding(engine: unmask.Engine) -> Decoding:
    """Unmask's engine."""

    def run(prompts: Ids, spec: unmask.DecodeSpec) -> Outcome:
        answers = engine.generate(prompts, decode=spec, batch_size=len(prompts))
        ledger = answers[0].ledger
        for answer in answers[1:]:
            ledger = ledger.merged(answer.ledger)
        return Outcome([answer.ids for answer in answers], {"steps": ledger.steps(), "tokens": ledger.rows()})

    return run


def reference_decoding(network: ReferenceNetwork) -> Decoding:
    """The sampler of reference.py."""

    def run(prompts: Ids, spec: unmask.DecodeSpec) -> Outcome:
        settings = reference.Settings(
            threshold=spec.threshold, block_cache=spec.cache == "dual", stop_tokens=spec.stop_tokens or ()
        )
        ids, work = reference.decode(network, prompts, [spec.max_new_tokens] * len(prompts), settings)
        return Outcome(ids, {name: dict(counts) for name, counts in vars(work).items()})

    return run


def refuse_difference(outcomes: dict[str, Outcome]) -> None:
    """Stop where the contenders' ids differ."""
    ours, theirs = (outcome.ids for outcome in outcomes.values())
    for row, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        if left != right:
            alike = min(len(left), len(right))
            place = next((i for i in range(alike) if left[i] != right[i]), alike)
            raise TokensDifferError(
                f"Request {row} of {len(ours)}: the tokens differ from position {place} on, so no speed is given; "
                "either a bug or a tie within rounding on this machine (then another --seed agrees)."
            )
