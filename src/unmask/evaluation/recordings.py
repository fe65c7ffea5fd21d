"""Recordings: samples of a run decoded again with every step written down, for the report's viewer.

Knows the engine's events and the rules of blocks, and how a run's settings become a decoding. A recording is made once
and kept in its run's folder; `unmask report` starts this module as a process of its own. A sample is decoded under the
frozen settings of its run, and only as many tokens as the run's answer has are asked for: that ends the decoding at the
same step, whatever had ended the answer, without the task's stop strings. On a canvas the length asked for is part of
the question, so it stays.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from unmask.engine.engine import Engine
from unmask.engine.events import StepEvent, collect
from unmask.engine.prompt import Request
from unmask.engine.step_plan import Op
from unmask.errors import UnmaskError
from unmask.spec import DecodeSpec, build
from unmask.spec.lock import read_lock
from unmask.spec.sweep import revision_change
from unmask.store import RunFolder, canonical
from unmask.store.attempt import Sample
from unmask.store.traces import with_traces

LETTERS = {Op.COMPUTE: "c", Op.REFRESH: "f", Op.REPLAY: "p"}
"""One letter for each operation of a layer."""
DIGITS = 4
"""Decimals of a confidence."""


def make_recordings(wanted: Iterable[tuple[RunFolder, list[str]]], largest: int | None = None) -> list[Path]:
    """Record samples that have no recording yet; checkpoints with more than `largest` bytes of weights are refused."""
    engines: dict[str, Engine] = {}
    made = []
    for run, samples in wanted:
        missing = [sample for sample in samples if run.recording(sample) is None]
        if not missing:
            continue
        key = canonical([run.worker.checkpoint, _dtype(run), run.worker.device])
        name = key.decode()
        if name not in engines:
            engines[name] = _engine(run, largest)
        made += [_make(run, sample, engines[name]) for sample in _samples(run, missing)]
    return made


def _make(run: RunFolder, sample: Sample, engine: Engine) -> Path:
    identity = run.identity
    task = identity["task"]
    ids = engine.tokenizer.encode(sample.prompt, special=not task.get("chat"))
    decode = {
        **identity["decode"],
        "max_new_tokens": sample.asked or max(1, sample.tokens or 0),
        "stop_strings": (),
        "temperature": float((identity.get("generation") or {}).get("temperature") or 0.0),
    }
    decoding = record_decoding(engine, ids, decode, with_traces(run.store, identity["policy"]))
    text, answer = str(decoding["text"]), sample.answer
    recording = {
        "correct": sample.correct,
        "prompt": sample.prompt,
        "answer": answer,
        "target": sample.target,
        "same": text.startswith(answer) if sample.finish == "stop_string" else text == answer,
        **decoding,
    }
    return run.keep_recording(sample.id, recording)


def _samples(run: RunFolder, names: list[str]) -> list[Sample]:
    result = run.result()
    stored = run.attempt(result.attempt).samples() if result and result.attempt else iter(())
    samples = {
        sample.id: sample
        for sample in stored
        if sample.id in names and sample.tokens and sample.scores is None
    }
    for name in names:
        if name not in samples:
            raise UnmaskError(f"{run.name} has no generated answer to {name}, so it cannot be recorded.")
    return [samples[name] for name in names]


def _engine(run: RunFolder, largest: int | None) -> Engine:
    # Imported here: the hub must be told to stay offline before its package is loaded.
    from unmask.evaluation.lock import check_checkpoint
    from unmask.loading import load
    from unmask.model.hub import find_checkpoint

    identity, worker = run.identity, run.worker
    if change := revision_change(identity):
        raise UnmaskError(f"{run.name} was decoded by another version of Unmask ({change}).")
    locked = read_lock(Path(worker.lock)).with_weights(identity.get("weights"))
    if locked is None:
        raise UnmaskError(f"The lock does not hold the weights that {run.name} was decoded with.")
    folder = find_checkpoint(worker.checkpoint, locked.revision)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if largest is not None and size > largest:
        raise UnmaskError(
            f"The checkpoint has {size / 1e9:.1f} GB of weights; name a number with --replay to load it all the same."
        )
    check_checkpoint(locked, folder)
    return load(folder, worker.device, _dtype(run), identity.get("mask_token_id"))


def _dtype(run: RunFolder) -> str | None:
    """The number format that the result was computed in, whoever chose it."""
    result = run.result()
    return run.identity.get("dtype") or (result.environment.dtype if result else None)


# One decoding, step by step, as plain data.


def record_decoding(
    engine: Engine, prompt: Sequence[int], decode: DecodeSpec | Mapping[str, Any], policy: Any = None
) -> dict[str, Any]:
    """Decode one prompt and describe every step; positions count from the prompt's start."""
    spec = decode if isinstance(decode, DecodeSpec) else build(DecodeSpec, decode, "Decode settings")
    spec = engine.config.decoded(spec)
    events = list(engine.stream([Request(list(prompt))], spec, policy, batch_size=1))
    (answer,) = collect(events)
    texts = texts_of(engine, answer.ids)

    def text_at(position: int, token: int) -> str:
        index = position - len(prompt)
        return texts[index] if index in texts else text_of_one(engine, token)

    return {
        **({"end": len(prompt) + spec.max_new_tokens} if spec.block_size is None else {}),
        "prompt_tokens": len(prompt),
        "block_size": spec.block_size,
        "sub_block_size": spec.sub_block_size,
        "layers": engine.config.num_layers,
        "threshold": spec.threshold,
        "tokens": len(answer.ids),
        "finish": answer.finish_reason,
        "text": answer.text,
        "steps": [step_as_data(event, text_at) for event in events if isinstance(event, StepEvent)],
    }


def step_as_data(event: StepEvent, text_at: Callable[[int, int], str]) -> dict[str, Any]:
    """One step as plain data, with the text of a token at a position; what nothing special happened to is left out."""
    step: dict[str, Any] = {"kind": event.kind.value, "fed": [event.fed.start, event.fed.stop]}
    plan = event.plan
    if plan.ops:
        # Replaying the output of some layers means that no layer is computed.
        operations = [Op.REPLAY] * len(plan.ops) if plan.replays_everything else plan.ops
        step["ops"] = run_lengths("".join(LETTERS[op] for op in operations))
        step["unit"] = plan.unit.value
    if plan.rows is not None:
        start = event.block
        step["rows"] = [start + position for position in plan.rows.always]
        if plan.rows.count:
            step["among"] = [start + position for position in plan.rows.among]
            step["count"] = plan.rows.count
            step["probe"] = plan.rows.probe_layer
    step["written"] = [
        [position, text_at(position, token), round(confidence, DIGITS)]
        for position, token, confidence in zip(event.positions, event.tokens, event.confidences, strict=True)
    ]
    return step


def run_lengths(letters: str) -> str:
    """Equal letters counted: cccpp is c3p2."""
    return "".join(f"{letter}{len(list(same))}" for letter, same in groupby(letters))


def texts_of(engine: Engine, ids: Sequence[int]) -> dict[int, str]:
    """The text that each token adds to the answer; a letter made of several tokens is given to the last of them."""
    if not engine.has_tokenizer:
        return {}
    pieces = enumerate(_pieces(engine, ids))
    # A token that has no text even by itself, such as the one that ends the answer, is shown by its own name.
    return {index: piece for index, piece in pieces if piece or engine.decode_text([ids[index]])}


def _pieces(engine: Engine, ids: Sequence[int]) -> Iterator[str]:
    before = ""
    for end in range(1, len(ids) + 1):
        now = engine.decode_text(list(ids[:end]))
        whole = not now.endswith("\N{REPLACEMENT CHARACTER}") or end == len(ids)
        yield now[len(before) :] if whole else ""
        before = now if whole else before


def text_of_one(engine: Engine, token: int) -> str:
    """The text of one token: beyond the answer's end, or where the token adds no text."""
    if token in engine.config.stop_tokens:
        return "⟨end⟩"
    text = engine.decode_text([token]) if engine.has_tokenizer else ""
    return text or f"⟨{token}⟩"


def main() -> None:
    """Take {"runs": [[folder, [sample, ...]], ...], "largest": bytes or null} from stdin; print what went wrong."""
    # A report never downloads anything.
    os.environ["HF_HUB_OFFLINE"] = "1"
    request = json.load(sys.stdin)
    wanted = [(RunFolder(Path(folder)), list(samples)) for folder, samples in request["runs"]]
    try:
        make_recordings(wanted, request.get("largest"))
    except UnmaskError as error:
        sys.exit(" ".join(str(error).split()))


if __name__ == "__main__":
    main()
