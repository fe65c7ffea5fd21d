"""`unmask eval`: benchmarks through lm-eval, with any policy, and the proof of what it did.

Knows the flags, the order of checks (whatever can be refused is refused before weights are loaded), the table
for people, and the folder of results, which is whole when it has results.json.
"""

import json
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from unmask.analysis.words import counted
from unmask.cli.options import (
    DECODE_FLAGS,
    CheckpointOptions,
    batch_option,
    chat_option,
    checkpoint_options,
    decode_options,
    decode_spec,
    hint_at_chat,
)
from unmask.cli.screen import console, load_with_bar
from unmask.errors import UnmaskError
from unmask.model.checkpoint import Checkpoint, open_checkpoint
from unmask.model.config import read_config
from unmask.model.hub import find_checkpoint
from unmask.policies.text import read_policy
from unmask.reading import printable_json
from unmask.spec import AnyPolicySpec, DecodeSpec
from unmask.spec.family import EstimatorName
from unmask.spec.sweep import generation_arguments
from unmask.store.files import write_atomically

PLAIN_WIDTH = 160

if TYPE_CHECKING:
    from unmask.evaluation.results import Evaluation
    from unmask.evaluation.task_data import Loaded
    from unmask.spec.lock import Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalArguments:
    """The command line as it was given."""

    tasks: str
    checkpoint: CheckpointOptions
    policy: str | None
    limit: int | None
    num_fewshot: int | None
    data: Path | None
    lock: Path | None
    estimator: Any
    order: Any
    chat: bool | None
    """None where nobody chose, which stands for raw."""
    system_instruction: str | None
    allow_code: bool
    allow_unsafe_code: bool
    output: Path | None
    as_json: bool
    decode_file: Path | None
    batch_size: int
    flags: dict[str, Any]
    """Those of the decode settings."""


@dataclass(frozen=True, slots=True)
class CheckedArguments:
    """What is evaluated with what, checked as far as it can be without weights."""

    decode: DecodeSpec
    policy: AnyPolicySpec | None
    loaded: "Loaded"
    checkpoint: Checkpoint


@click.command(name="eval")
@click.option("--tasks", "-t", required=True, metavar="NAME,NAME", help="Tasks and groups, with commas.")
@checkpoint_options
@click.option("--policy", metavar="POLICY", help="Reuse policy: short form, JSON or file. [none]")
@click.option("--limit", type=int, metavar="N", help="Samples of each task. [all]")
@click.option("--num-fewshot", type=click.IntRange(min=0), help="Examples in a prompt. [the task's]")
@click.option("--data", type=Path, metavar="DIR", help="Local data. [the hub]")
@click.option("--lock", type=Path, metavar="FILE", help="Work offline from a lock of `unmask prepare`.")
@click.option(
    "--estimator",
    type=click.Choice(get_args(EstimatorName)),
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
@chat_option
@click.option("--apply-chat-template", is_flag=True, help="lm-eval's name for --chat.")
@click.option("--system-instruction", metavar="TEXT", help="Put in front of every prompt.")
@click.option("--allow-code", is_flag=True, help="Run model-written programs, in bubblewrap.")
@click.option(
    "--allow-unsafe-code", is_flag=True, help="Run them without isolation where bubblewrap does not work."
)
@click.option("--output", "-o", type=Path, metavar="DIR", help="New folder for results and samples.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@decode_options
@batch_option
def evaluate(**values: Any) -> None:
    """Evaluate a checkpoint on benchmarks, with any policy.

    Samples are checked before the model is loaded. Every result carries the forwards, the layer calls and the
    share of work that the policy skipped, and says so where it could not act.

    \b
    Examples:
      unmask eval --tasks unmask_arith --model embedded --limit 50
      unmask eval --tasks gsm8k --model path/to/checkpoint --policy layer_reuse:k=2,layers=middle
      unmask eval --tasks gsm8k_boxed --chat --model Efficient-Large-Model/Fast_dLLM_v2_1.5B
      unmask eval --tasks mmlu_anatomy --data DIR --estimator canvas --model path/to/checkpoint --output run1
    """
    flags = {flag: values.pop(flag) for flag in DECODE_FLAGS}
    if values.pop("apply_chat_template"):
        values["chat"] = True
    arguments = EvalArguments(checkpoint=CheckpointOptions.taken_from(values), **values, flags=flags)
    outcome = _run(arguments, _check(arguments))
    if arguments.output:
        _write_results(arguments.output, outcome)
    if arguments.as_json:
        click.echo(printable_json(outcome.document))
    else:
        _show(outcome.document)


def _check(arguments: EvalArguments) -> CheckedArguments:
    """Read settings, policy, lock and samples, and find the checkpoint."""
    spec = decode_spec(arguments.decode_file, arguments.flags)
    policy = read_policy(arguments.policy) if arguments.policy else None
    if arguments.output:
        _check_new(arguments.output)
    locked = _offline_from(arguments.lock) if arguments.lock else None
    model = arguments.checkpoint.model
    revision = locked.revision if locked else arguments.checkpoint.revision
    small = find_checkpoint(model, revision, weights=False)
    read_config(small).decoded(spec)

    from unmask.evaluation.lock import check_checkpoint, check_rows
    from unmask.evaluation.task_data import load_tasks

    commits = locked.datasets if locked else None
    loaded = load_tasks(
        arguments.tasks.split(","),
        arguments.data,
        arguments.limit,
        arguments.allow_code,
        arguments.allow_unsafe_code,
        commits,
    )
    if loaded.sandbox == "unsafe":
        warnings.warn("The programs that the model writes run without isolation.", stacklevel=2)
    checkpoint = open_checkpoint(find_checkpoint(model, revision))
    if locked:
        check_checkpoint(locked, checkpoint.folder)
        check_rows(locked, loaded)
    return CheckedArguments(spec, policy, loaded, checkpoint)


def _run(arguments: EvalArguments, checked: CheckedArguments) -> "Evaluation":
    """Load the weights and put the tasks to the model."""
    from unmask.evaluation.clock import Meter
    from unmask.evaluation.harness import Options
    from unmask.evaluation.lm import UnmaskLM
    from unmask.evaluation.results import evaluate as run

    model = arguments.checkpoint
    meter = Meter()
    with meter.phase("loading"):
        engine = load_with_bar(checked.checkpoint, model.device, model.dtype, model.mask_token_id)
    if not arguments.as_json:
        hint_at_chat(checked.checkpoint, arguments.chat)
    lm = UnmaskLM(
        engine=engine,
        policy=checked.policy,
        decode=msgspec.structs.replace(checked.decode, temperature=0.0),
        estimator=arguments.estimator,
        order=arguments.order,
        batch_size=arguments.batch_size,
        meter=meter,
    )
    options = Options(
        limit=arguments.limit,
        num_fewshot=arguments.num_fewshot,
        chat=bool(arguments.chat),
        system_instruction=arguments.system_instruction,
        generation=generation_arguments(arguments.flags),
    )
    return run(lm, checked.loaded, options)


def _offline_from(file: Path) -> "Lock":
    """Read a lock, and keep everything from now on away from the network."""
    from unmask.evaluation.task_data import work_offline
    from unmask.spec.lock import read_lock

    locked = read_lock(file)
    work_offline()
    return locked


def _check_new(output: Path) -> None:
    """Results of two runs never share a folder."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UnmaskError(f"{output} is there already; --output takes a new or empty folder for each run.")
    if not output.absolute().parent.is_dir():
        raise UnmaskError(
            f"{output.absolute().parent}: no such folder to make {output.name} in; make it first."
        )
    try:  # a folder that cannot be written to is found out now, not after all the work
        is_there = output.exists()
        output.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
        if not is_there:
            output.rmdir()
    except OSError as error:
        raise UnmaskError(
            f"{output} cannot be written to ({error.strerror}); choose another --output."
        ) from None


def _write_results(output: Path, outcome: "Evaluation") -> None:
    """Samples first: a folder with results.json is whole."""
    output.mkdir(exist_ok=True)
    for task, rows in outcome.samples.items():
        lines = (json.dumps(row, ensure_ascii=False) for row in msgspec.to_builtins(rows, enc_hook=str))
        text = "".join(f"{line}\n" for line in lines)
        write_atomically(output / f"samples_{task}.jsonl", text, verbatim=True)
    write_atomically(
        output / "results.json", json.dumps(outcome.document, ensure_ascii=False, indent=1) + "\n"
    )


def _show(document: dict[str, Any]) -> None:
    """Print a line for each task, and the speeds."""
    from rich.table import Table

    table = Table("task", "metric", title=f"{document['model']['checkpoint']}")
    for heading in ("value", "stderr", "samples", "work skipped"):
        table.add_column(heading, justify="right")
    table.add_column("remark", overflow="fold")
    for name, entry in document["tasks"].items():
        parts = entry["effect"].values()
        skipped = ", ".join(f"{part['reuse_fraction']:.1%}" for part in parts)
        remarks = "; ".join(f"inactive: {part['inactive']}" for part in parts if part["inactive"])
        if entry["sandbox"]:
            remarks = "; ".join(filter(None, (remarks, f"programs ran: {entry['sandbox']}")))
        error = "" if entry["stderr"] is None else f"{entry['stderr']:.4f}"
        table.add_row(
            name, entry["metric"], f"{entry['value']:.4f}", error, str(entry["rows"]), skipped, remarks
        )
    screen = console(PLAIN_WIDTH)
    screen.print(table)
    for what, rate in (("decoding", "tokens_per_second"), ("scoring", "requests_per_second")):
        part = document["speed"].get(what)
        if part and part[rate]:
            unit = rate.replace("_per_second", "/s")
            beside = _tokens_a_forward(document) if what == "decoding" else ""
            screen.print(
                f"{what}: {part[rate]:.1f} {unit}{beside} over {counted(part['requests'], 'request')} (accuracy run)"
            )
    model = document["model"]
    if "likelihood_stderr" in model:
        screen.print(
            f"log likelihoods: {counted(model['decode']['draws'], 'draw')} each, with a standard error of "
            f"{model['likelihood_stderr']:.3f} on average"
        )


def _tokens_a_forward(document: dict[str, Any]) -> str:
    """Accepted tokens over block, sub and commit forwards of all tasks, in words."""
    forwards = [
        entry["effect"].get("generation", {}).get("forwards", {}) for entry in document["tasks"].values()
    ]
    steps = sum(number for kinds in forwards for kind, number in kinds.items() if kind != "prefill")
    tokens = document["speed"]["decoding"]["tokens"]
    return f", {tokens / steps:.2f} tokens a forward" if tokens and steps else ""
