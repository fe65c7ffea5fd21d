"""The first hour on a new machine: parts in processes of their own, a verdict for each, one folder to send back.

A part that fails, hangs or takes the device down with it ends alone. What is written names no secret, no home folder
and no host. The parts themselves are other verbs, or stand in evaluation/device_parts.py.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unmask.errors import UnmaskError
from unmask.lab.gpu_parts import NAMES, CheckPart, CheckRequest, Done, PartVerdict, parts_of
from unmask.launch.processes import reap_group
from unmask.store.files import make_folder, write_atomically
from unmask.version import __version__

LEAST_SECONDS = 10.0
"""A part that has less left is not begun."""


def gpu_check(wanted: CheckRequest) -> Iterator[PartVerdict | str]:
    """Run all parts; yield the name of each before it begins and what came of it afterwards."""
    if wanted.folder.exists():
        raise UnmaskError(f"{wanted.folder} is there already; name a new folder by --output.")
    make_folder(wanted.folder / "logs")
    findings: list[PartVerdict] = []
    end = time.monotonic() + wanted.seconds
    used = {"device": wanted.device, "dtype": wanted.dtype}
    with TemporaryDirectory(prefix="unmask-gpu-check-", ignore_cleanup_errors=True) as scratch:
        for name in NAMES:
            part = parts_of(wanted, used, Path(scratch))[name]
            yield name
            finding = _run(part, wanted, end - time.monotonic(), used["device"])
            findings.append(finding)
            if name == "device" and finding.verdict == "good":
                used = {key: finding.figures[key] for key in used}
            _write(wanted, findings)
            yield finding


def _run(part: CheckPart, wanted: CheckRequest, left: float, device: str | None) -> PartVerdict:
    if not part.command:
        return PartVerdict(part.name, "skipped", "the working format is float32")
    if left < LEAST_SECONDS:
        return PartVerdict(part.name, "skipped", "no time was left")
    start = time.monotonic()
    done = _execute(part, wanted, min(part.seconds, left), device)
    try:
        if done.code is None:
            finding = PartVerdict(
                part.name, "failed", f"it took longer than {min(part.seconds, left):.0f} seconds"
            )
        else:
            finding = part.judge(done)
    except (ValueError, KeyError, TypeError, AttributeError):
        finding = PartVerdict(
            part.name, "failed", _last_line(wanted, part.name) or f"it ended with exit code {done.code}"
        )
    finding.seconds = time.monotonic() - start
    return finding


def _execute(part: CheckPart, wanted: CheckRequest, seconds: float, device: str | None) -> Done:
    """Run a part's command to its end or to the end of its time; what it says beside its answer goes into a log."""
    environment = dict(os.environ)
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    log = _log(wanted, part.name)
    command = [sys.executable, "-m", "unmask", *part.command]
    with (
        log.with_suffix(".raw").open("w+b") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        code: int | None = None
        output = b""
        try:
            output, _ = process.communicate(timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            pass  # code says so
        finally:
            reap_group(process)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    log.with_suffix(".raw").unlink()
    text = output.decode("utf-8", "replace")
    write_atomically(log, _without_names("\n".join(_telling(said)) + "\n" + text, wanted), durable=False)
    return Done(code, text)


def _telling(said: str) -> list[str]:
    """Lines but those that torch's profiler writes for tracing programs."""
    return [line for line in said.splitlines() if not line.startswith("USDT:")]


def _log(wanted: CheckRequest, name: str) -> Path:
    return wanted.folder / "logs" / f"{name.replace(' ', '-')}.txt"


def _last_line(wanted: CheckRequest, name: str) -> str | None:
    lines = [
        line.strip() for line in _log(wanted, name).read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    return lines[-1] if lines else None


def _without_names(text: str, wanted: CheckRequest) -> str:
    """The text without the places and the name of this machine."""
    places = {str(wanted.folder.absolute()): wanted.folder.name, str(Path.cwd()): ".", str(Path.home()): "~"}
    with suppress(OSError):
        places[str(Path(wanted.model).expanduser().resolve(strict=True))] = Path(wanted.model).name
    for place, short in sorted(places.items(), key=lambda each: -len(each[0])):
        text = text.replace(place, short) if len(place) > 1 else text
    return text.replace(platform.node(), "this-host") if platform.node() else text


def _write(wanted: CheckRequest, findings: Sequence[PartVerdict]) -> None:
    """Both summaries, after every part."""
    about = {
        "unmask": __version__,
        "checkpoint": Path(wanted.model).name,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "parts": [asdict(finding) for finding in findings],
    }
    text = _without_names(json.dumps(about, indent=1, sort_keys=True), wanted)
    write_atomically(wanted.folder / "summary.json", text + "\n")
    write_atomically(wanted.folder / "summary.md", _without_names(_page(about, findings), wanted))


def _page(about: Mapping[str, Any], findings: Sequence[PartVerdict]) -> str:
    lines = [
        f"# GPU check of {about['checkpoint']}",
        "",
        f"Unmask {about['unmask']}, {about['written']}. `summary.json` holds every figure, `logs/` what was printed.",
        "",
        "| part | verdict | seconds | what it says |",
        "|---|---|---|---|",
        *(
            f"| {each.part} | {each.verdict} | {each.seconds:.0f} | {each.says.replace('|', '/')} |"
            for each in findings
        ),
    ]
    for finding in findings:
        for title in ("kinds", "batches"):
            rows = finding.figures.get(title)
            named = [{"kind": kind} | row for kind, row in rows.items()] if isinstance(rows, dict) else rows
            if named:
                lines += ["", f"## {finding.part.capitalize()}: {title}", "", *_table(named)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    yield "| " + " | ".join(name.replace("_", " ") for name in columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        cells = (row.get(name, "") for name in columns)
        yield (
            "| "
            + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells)
            + " |"
        )
