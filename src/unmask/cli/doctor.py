"""`unmask doctor`: versions, data, token, disk and GPU at a glance, with what to do where something is amiss."""

import json
import os
import platform
import shutil
from dataclasses import asdict
from pathlib import Path

import click

from unmask.cli.machine import Finding, judge_gpu, package_findings, read_gpu
from unmask.errors import UnmaskError

GIB = 1 << 30
LITTLE_BYTES = 20 * GIB
MARKS = {True: "ok", False: "!!", None: "--"}


@click.command(short_help="Check versions, data, token, disk and GPU.")
@click.option("--tasks", "-t", metavar="NAME,NAME", help="Check the local data of these tasks.")
@click.option("--data", type=Path, metavar="DIR", help="Local data. [UNMASK_DATA]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def doctor(ctx: click.Context, tasks: str | None, data: Path | None, as_json: bool) -> None:
    """Show whether this machine is ready; the exit code is 1 if something is amiss.

    A token is only looked for: its value is neither read nor shown.

    \b
    Examples:
      unmask doctor
      unmask doctor --tasks gsm8k,gpqa_diamond_zeroshot --data path/to/data
    """
    folder = data or (Path(os.environ["UNMASK_DATA"]) if os.environ.get("UNMASK_DATA") else None)
    findings = [
        Finding("python", True, platform.python_version()),
        *package_findings(),
        judge_gpu(read_gpu()),
        _disk(),
        _token(),
        *_data(tasks, folder),
    ]
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            click.echo(f"{MARKS[finding.well]}  {finding.name:16} {finding.says}")
    ctx.exit(1 if any(finding.well is False for finding in findings) else 0)


def _disk() -> Finding:
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache"))
    place = next(parent for parent in (home, *home.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    advice = "" if free >= LITTLE_BYTES else "; a 7B checkpoint needs 15 GiB, so set HF_HOME to a larger disk"
    return Finding("disk", free >= LITTLE_BYTES, f"{free / GIB:.1f} GiB free for downloads{advice}")


def _token() -> Finding:
    from unmask.evaluation.task_data import has_token

    says = "present" if has_token() else "none: only GPQA and private checkpoints need one"
    return Finding("hub token", None, says)


def _data(tasks: str | None, folder: Path | None) -> list[Finding]:
    if not tasks:
        says = f"{folder} for all that lies there, the hub for the rest" if folder else "taken from the hub"
        return [Finding("data", None, says)]
    from unmask.evaluation.task_files import check_names

    return [_task(name, folder) for name in check_names(tasks.split(","))]


def _task(name: str, folder: Path | None) -> Finding:
    from unmask.evaluation.catalogue import members_of
    from unmask.evaluation.task_files import local_files

    try:
        for source in members_of(name):
            if folder and source.stock:
                local_files(source, folder)
    except UnmaskError as error:
        return Finding(name, False, str(error))
    return Finding(name, True, "data found" if folder else "data taken from the hub")
