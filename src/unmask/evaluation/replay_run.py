"""Replays of a run's samples, made once and kept in its folder. Started by `unmask report` as a process of its own.

A replay decodes a row again under the frozen settings of its run. Only as many tokens as the run's answer has are
asked for: that ends it at the same step, whatever had ended the answer, without the task's stop strings.
"""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.errors import UnmaskError
from unmask.evaluation.replay_files import SCHEMA, belongs_to, replay_file, stored_replay
from unmask.store import RunFolder, canonical, write_atomically
from unmask.store.attempt import Sample
from unmask.store.files import make_folder

if TYPE_CHECKING:
    from unmask.engine.engine import Engine


def make_replays(wanted: Iterable[tuple[RunFolder, list[str]]], largest: int | None = None) -> list[Path]:
    """Decode samples of runs again; `largest` refuses checkpoints with more bytes of weights."""
    engines: dict[str, Engine] = {}
    made = []
    for run, samples in wanted:
        missing = [sample for sample in samples if stored_replay(run, sample) is None]
        if not missing:
            continue
        key = canonical([run.worker.get("checkpoint"), run.identity.get("dtype"), run.worker.get("device")])
        name = key.decode()
        if name not in engines:
            engines[name] = _engine(run, largest)
        made += [_make(run, sample, engines[name]) for sample in _samples(run, missing)]
    return made


def _make(run: RunFolder, sample: Sample, engine: "Engine") -> Path:
    from unmask.evaluation.replay import replay

    identity = run.identity
    task = identity["task"]
    ids = engine.tokenizer.encode(sample.prompt, special=not task.get("chat"))
    decode = {
        **identity["decode"],
        "max_new_tokens": max(1, sample.tokens or 0),
        "stop_strings": (),
        "temperature": float((task.get("generation") or {}).get("temperature") or 0.0),
    }
    told = replay(engine, ids, decode, identity["policy"])
    text, answer = str(told["text"]), sample.answer
    document = {
        "schema": SCHEMA,
        "of": belongs_to(run),
        "run": run.id,
        "sample": sample.id,
        "correct": sample.correct,
        "prompt": sample.prompt,
        "answer": answer,
        "target": sample.target,
        "same": text.startswith(answer) if sample.finish == "stop_string" else text == answer,
        **told,
    }
    file = replay_file(run, sample.id)
    make_folder(file.parent)
    write_atomically(file, canonical(document) + b"\n")
    return file


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
            raise UnmaskError(f"{run.name} has no generated answer to {name}, so it cannot be replayed.")
    return [samples[name] for name in names]


def _engine(run: RunFolder, largest: int | None) -> "Engine":
    from unmask.evaluation.lock import file_sha256
    from unmask.model.hub import find_checkpoint
    from unmask.spec.lock import read_lock
    from unmask.spec.sweep import ENGINE_REVISION

    identity, worker = run.identity, run.worker
    if identity.get("engine") != ENGINE_REVISION:
        raise UnmaskError(
            f"{run.name} was decoded by engine revision {identity.get('engine')} and this is {ENGINE_REVISION}."
        )
    lock = read_lock(Path(str(worker.get("lock"))))
    folder = find_checkpoint(str(worker.get("checkpoint")), lock.revision)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if largest is not None and size > largest:
        raise UnmaskError(
            f"The checkpoint has {size / 1e9:.1f} GB of weights; name a number with --replay to load it all the same."
        )
    files = {name: folder / name for name in lock.files}
    changed = [n for n, file in files.items() if not file.is_file() or file_sha256(file) != lock.files[n]]
    if lock.weights != identity.get("weights") or changed:
        raise UnmaskError(f"{folder} does not hold the weights that {run.name} was decoded with.")
    from unmask.loading import load

    return load(folder, worker.get("device"), identity.get("dtype"), identity.get("mask_token_id"))


def main() -> None:
    """Take {"runs": [[folder, [sample, ...]], ...], "largest": bytes or null} from stdin; print what went wrong."""
    # A report never downloads anything.
    os.environ["HF_HUB_OFFLINE"] = "1"
    request = json.load(sys.stdin)
    wanted = [(RunFolder(Path(folder)), list(samples)) for folder, samples in request["runs"]]
    try:
        make_replays(wanted, request.get("largest"))
    except UnmaskError as error:
        sys.exit(" ".join(str(error).split()))


if __name__ == "__main__":
    main()
