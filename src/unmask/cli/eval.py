"""`unmask eval`: benchmarks through lm-eval, with any policy, and the proof of what it did.

Knows the flags and the order of checks: whatever can be refused is refused before weights are loaded.
"""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from unmask.cli.eval_results import check_new, show, write_results
from unmask.cli.loading import load_with_bar
from unmask.cli.options import DECODE_FLAGS, decode_options, decode_spec
from unmask.model.checkpoint import Checkpoint, open_checkpoint
from unmask.model.config import read_config
from unmask.model.hub import EMBEDDED, find_checkpoint
from unmask.policies.text import read_policy
from unmask.spec import AnyPolicySpec, DecodeSpec

if TYPE_CHECKING:
    from unmask.evaluation.run import Outcome
    from unmask.evaluation.task_data import Loaded
    from unmask.spec.lock import Lock

GENERATION = {"max_new_tokens": "max_gen_toks", "temperature": "temperature", "top_p": "top_p"}
"""Options that, when given, win over what the tasks ask for, and lm-eval's names for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line as it was given."""

    tasks: str
    model: str
    revision: str | None
    policy: str | None
    limit: int | None
    num_fewshot: int | None
    data: Path | None
    lock: Path | None
    estimator: Any
    order: Any
    apply_chat_template: bool
    system_instruction: str | None
    allow_code: bool
    output: Path | None
    as_json: bool
    decode_file: Path | None
    batch_size: int
    device: str | None
    dtype: str | None
    mask_token_id: int | None
    flags: dict[str, Any]
    """Those of the decode settings."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What is evaluated with what, checked as far as it can be without weights."""

    decode: DecodeSpec
    policy: AnyPolicySpec | None
    loaded: "Loaded"
    checkpoint: Checkpoint


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
def evaluate(**values: Any) -> None:
    """Evaluate a checkpoint on benchmarks, with any policy.

    Rows are checked before the model is loaded. Every result carries the forwards, the layer calls and the
    share of work that the policy skipped, and says so where it could not act.

    \b
    Examples:
      unmask eval --tasks unmask_arith --model embedded --limit 50
      unmask eval --tasks gsm8k --model path/to/checkpoint --policy layer_reuse:k=2,layers=middle
      unmask eval --tasks mmlu_anatomy --data DIR --estimator canvas --model path/to/checkpoint --output run1
    """
    flags = {flag: values.pop(flag) for flag in DECODE_FLAGS}
    asked = Asked(**values, flags=flags)
    outcome = _run(asked, _check(asked))
    if asked.output:
        write_results(asked.output, outcome)
    if asked.as_json:
        click.echo(json.dumps(outcome.document, ensure_ascii=False))
    else:
        show(outcome.document)


def _check(asked: Asked) -> Checked:
    """Read settings, policy, lock and rows, and find the checkpoint."""
    spec = decode_spec(asked.decode_file, asked.flags)
    policy = read_policy(asked.policy) if asked.policy else None
    if asked.output:
        check_new(asked.output)
    locked = _offline_from(asked.lock) if asked.lock else None
    revision = locked.revision if locked else asked.revision
    small = find_checkpoint(asked.model, revision, weights=False)
    spec.resolved_block_size(read_config(small).block_size)

    from unmask.evaluation.lock import check_lock
    from unmask.evaluation.task_data import load_tasks

    commits = locked.datasets if locked else None
    loaded = load_tasks(asked.tasks.split(","), asked.data, asked.limit, asked.allow_code, commits)
    checkpoint = open_checkpoint(find_checkpoint(asked.model, revision))
    if locked:
        check_lock(locked, checkpoint.folder, loaded)
    return Checked(spec, policy, loaded, checkpoint)


def _run(asked: Asked, checked: Checked) -> "Outcome":
    """Load the weights and put the tasks to the model."""
    from unmask.evaluation.harness import Options
    from unmask.evaluation.lm import UnmaskLM
    from unmask.evaluation.run import evaluate as run

    lm = UnmaskLM(
        engine=load_with_bar(checked.checkpoint, asked.device, asked.dtype, asked.mask_token_id),
        policy=checked.policy,
        decode=msgspec.structs.replace(checked.decode, temperature=0.0),
        estimator=asked.estimator,
        order=asked.order,
        batch_size=asked.batch_size,
    )
    options = Options(
        limit=asked.limit,
        num_fewshot=asked.num_fewshot,
        chat=asked.apply_chat_template,
        system_instruction=asked.system_instruction,
        generation=_generation(asked.flags),
    )
    if asked.allow_code:
        _warn_of_gaps()
    return run(lm, checked.loaded, options, asked.allow_code)


def _offline_from(file: Path) -> "Lock":
    """Read a lock, and keep everything from now on away from the network."""
    from unmask.evaluation.task_data import work_offline
    from unmask.spec.lock import read_lock

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
