"""`unmask eval`: benchmarks through lm-eval, with any policy, and the proof of what it did."""

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from unmask.cli.loading import load_with_bar
from unmask.cli.options import decode_options, decode_spec
from unmask.cli.results import as_lines, write_atomically
from unmask.errors import UnmaskError
from unmask.model.checkpoint import open_checkpoint
from unmask.model.config import read_config
from unmask.model.hub import EMBEDDED, find_checkpoint
from unmask.policies.text import read_policy

if TYPE_CHECKING:
    from unmask.evaluation.lock import Lock
    from unmask.evaluation.run import Outcome

GENERATION = {"max_new_tokens": "max_gen_toks", "temperature": "temperature", "top_p": "top_p"}
"""Options that, when given, win over what the tasks ask for, and lm-eval's names for them."""


@click.command(name="eval", short_help="Evaluate a checkpoint on benchmarks.")
@click.option("--tasks", "-t", required=True, metavar="NAME,NAME", help="Tasks and groups, with commas.")
@click.option(
    "--model", "-m", default=EMBEDDED, show_default=True, metavar="PATH_OR_HUB_ID", help="Checkpoint."
)
@click.option("--revision", help="Branch, tag or commit of a hub id.")
@click.option("--policy", metavar="POLICY", help="Reuse policy: short form, JSON or file. [none]")
@click.option("--limit", type=int, metavar="N", help="Rows of each task. [all]")
@click.option("--num-fewshot", type=click.IntRange(min=0), help="Examples in a prompt. [the task's]")
@click.option("--data", type=Path, metavar="DIR", help="Local data. [the hub]")
@click.option("--lock", type=Path, metavar="FILE", help="Work offline from a lock of `unmask prepare`.")
@click.option(
    "--estimator",
    type=click.Choice(["chain", "canvas", "first_token", "onepass"]),
    default="chain",
    show_default=True,
    help="How choices are scored.",
)
@click.option(
    "--order",
    type=click.Choice(["confidence", "left_to_right"]),
    default="confidence",
    show_default=True,
    help="Order of chain.",
)
@click.option("--apply-chat-template", is_flag=True, help="Put prompts through the chat template.")
@click.option("--system-instruction", metavar="TEXT", help="Put in front of every prompt.")
@click.option("--allow-code", is_flag=True, help="Run model-written programs, in a sandbox.")
@click.option("--output", "-o", type=Path, metavar="DIR", help="New folder for results and samples.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@decode_options
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=16, show_default=True, help="Rows together."
)
@click.option("--device", help="cpu, cuda, cuda:1 or mps. [the best one present]")
@click.option("--dtype", help="float32, float16 or bfloat16. [what suits the device]")
@click.option("--mask-token-id", type=int, help="Mask token, where the checkpoint names none.")
def evaluate(
    tasks: str,
    model: str,
    revision: str | None,
    policy: str | None,
    limit: int | None,
    num_fewshot: int | None,
    data: Path | None,
    lock: Path | None,
    estimator: Any,
    order: Any,
    apply_chat_template: bool,
    system_instruction: str | None,
    allow_code: bool,
    output: Path | None,
    as_json: bool,
    decode_file: Path | None,
    batch_size: int,
    device: str | None,
    dtype: str | None,
    mask_token_id: int | None,
    **flags: Any,
) -> None:
    """Evaluate a checkpoint on benchmarks, with any policy.

    Rows are checked before the model is loaded. Every result carries the forwards, the layer calls and the
    share of work that the policy skipped, and says so where it could not act.

    \b
    Examples:
      unmask eval --tasks unmask_arith --model embedded --limit 50
      unmask eval --tasks gsm8k --model path/to/checkpoint --policy layer_reuse:k=2,layers=middle
      unmask eval --tasks mmlu_anatomy --data DIR --estimator canvas --model path/to/checkpoint --output run1
    """
    spec = decode_spec(decode_file, flags)
    chosen = read_policy(policy) if policy else None
    if output:
        _check_new(output)
    locked = _offline_from(lock) if lock else None
    revision = locked.revision if locked else revision
    spec.resolved_block_size(read_config(find_checkpoint(model, revision, weights=False)).block_size)

    from unmask.evaluation.harness import Options
    from unmask.evaluation.preflight import load_tasks

    commits = locked.datasets if locked else None
    loaded = load_tasks(tasks.split(","), data, limit, allow_code, commits)
    checkpoint = open_checkpoint(find_checkpoint(model, revision))
    if locked:
        locked.check(checkpoint.folder, loaded)

    from unmask.evaluation.lm import UnmaskLM
    from unmask.evaluation.run import evaluate as run

    lm = UnmaskLM(
        engine=load_with_bar(checkpoint, device, dtype, mask_token_id),
        policy=chosen,
        decode=msgspec.structs.replace(spec, temperature=0.0),
        estimator=estimator,
        order=order,
        batch_size=batch_size,
    )
    options = Options(
        limit=limit,
        num_fewshot=num_fewshot,
        chat=apply_chat_template,
        system_instruction=system_instruction,
        generation=_generation(flags),
    )
    if allow_code:
        _warn_of_gaps()
    outcome = run(lm, loaded, options, allow_code)
    if output:
        _write(output, outcome)
    if as_json:
        click.echo(json.dumps(outcome.document, ensure_ascii=False))
    else:
        _show(outcome.document)


def _offline_from(file: Path) -> "Lock":
    """Read a lock, and keep everything from now on away from the network."""
    from unmask.evaluation.lock import read_lock
    from unmask.evaluation.preflight import work_offline

    locked = read_lock(file)
    work_offline()
    return locked


def _warn_of_gaps() -> None:
    """Say what this system does not keep programs from."""
    from unmask.evaluation.sandbox import isolation

    for gap in isolation().gaps:
        warnings.warn(f"In the sandbox {gap}: this system does not allow better.", stacklevel=2)


def _generation(flags: dict[str, Any]) -> dict[str, Any]:
    given = {name: flags[flag] for flag, name in GENERATION.items() if flags[flag] is not None}
    if "temperature" in given:
        given["do_sample"] = given["temperature"] > 0
    return given


def _check_new(output: Path) -> None:
    """Results of two runs never share a folder."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UnmaskError(f"{output} is there already; --output takes a new or empty folder for each run.")
    if not output.absolute().parent.is_dir():
        raise UnmaskError(
            f"{output.absolute().parent}: no such folder to make {output.name} in; make it first."
        )


def _write(output: Path, outcome: "Outcome") -> None:
    """Samples first: a folder with results.json is whole."""
    output.mkdir(exist_ok=True)
    for task, rows in outcome.samples.items():
        write_atomically(output / f"samples_{task}.jsonl", as_lines(msgspec.to_builtins(rows, enc_hook=str)))
    write_atomically(
        output / "results.json", json.dumps(outcome.document, ensure_ascii=False, indent=1) + "\n"
    )


def _show(document: dict[str, Any]) -> None:
    table = Table("task", "metric", title=f"{document['model']['checkpoint']}")
    for heading in ("value", "stderr", "rows", "work skipped"):
        table.add_column(heading, justify="right")
    table.add_column("remark", overflow="fold")
    for name, entry in document["tasks"].items():
        parts = entry["effect"].values()
        skipped = ", ".join(f"{part['reuse_fraction']:.1%}" for part in parts)
        remarks = "; ".join(f"inactive: {part['inactive']}" for part in parts if part["inactive"])
        error = "" if entry["stderr"] is None else f"{entry['stderr']:.4f}"
        table.add_row(
            name, entry["metric"], f"{entry['value']:.4f}", error, str(entry["rows"]), skipped, remarks
        )
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = 160
    console.print(table)
    for what, rate in (("decoding", "tokens_per_second"), ("scoring", "requests_per_second")):
        part = document["speed"].get(what)
        if part and part[rate]:
            unit = rate.replace("_per_second", "/s")
            console.print(f"{what}: {part[rate]:.1f} {unit} over {part['requests']} requests (accuracy run)")
