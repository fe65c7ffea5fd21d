"""`unmask generate`: answers prompts with a checkpoint."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console

from unmask.cli import results
from unmask.cli.decoding import Bar, Decoded, Silent, decode
from unmask.cli.live import LiveView, printable
from unmask.cli.loading import load_with_bar
from unmask.cli.options import decode_options, decode_spec
from unmask.cli.prompts import Encoder, Item, from_arguments, from_lines
from unmask.model.checkpoint import open_checkpoint
from unmask.model.hub import EMBEDDED, find_checkpoint
from unmask.policies.text import read_policy
from unmask.spec import AnyPolicySpec, DecodeSpec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from unmask.cli.decoding import View
    from unmask.engine.engine import Engine


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option(
    "--model", "-m", default=EMBEDDED, show_default=True, metavar="PATH_OR_HUB_ID", help="Checkpoint."
)
@click.option("--revision", help="Branch, tag or commit of a hub id.")
@click.option("--ids", multiple=True, metavar="1,2,3", help="A prompt as token ids. Repeatable.")
@click.option("--input", "-i", "source", metavar="FILE", help="Prompts as JSON lines; - is standard input.")
@click.option("--output", "-o", type=Path, metavar="FILE", help="Write answers as JSON lines, all or none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--chat/--raw", default=None, help="Apply the chat template to text or not. [if there is one]")
@decode_options
@click.option(
    "--policy", metavar="POLICY", help="What to reuse, e.g. layer_reuse:k=2,layers=middle. [nothing]"
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=16, show_default=True, help="Rows together."
)
@click.option("--device", help="cpu, cuda, cuda:1 or mps. [the best one present]")
@click.option("--dtype", help="float32, float16 or bfloat16. [what suits the device]")
@click.option("--mask-token-id", type=int, help="Mask token, where the checkpoint names none.")
def generate(
    prompts: tuple[str, ...],
    model: str,
    revision: str | None,
    ids: tuple[str, ...],
    source: str | None,
    output: Path | None,
    as_json: bool,
    chat: bool | None,
    decode_file: Path | None,
    policy: str | None,
    batch_size: int,
    device: str | None,
    dtype: str | None,
    mask_token_id: int | None,
    **flags: Any,
) -> None:
    """Answer prompts with a checkpoint.

    A prompt is text, token ids (--ids) or a line of a JSON lines file (--input) such as
    {"prompt": "Hello", "id": "a", "max_new_tokens": 64, "seed": 1}, where the prompt is text, a list of
    token ids or a list of chat messages. On a terminal a single answer is shown while it is unmasked.

    \b
    Examples:
      unmask generate "Why is the sky blue?" --model Efficient-Large-Model/Fast_dLLM_v2_1.5B
      unmask generate --ids 1,2,3 --model path/to/checkpoint --max-new-tokens 64 --threshold 0.8
      unmask generate --input prompts.jsonl --output answers.jsonl --model path/to/checkpoint
      unmask generate "Hello" --policy layer_reuse:k=2,unit=residual --model path/to/checkpoint
      unmask generate "Hello" --json --model path/to/checkpoint | jq .answers[0].text
    """
    if sum(map(bool, (prompts, ids, source))) != 1:
        raise click.UsageError("Give prompts in one way: as arguments, with --ids, or with --input.")
    if output:
        results.check_writable(output)
    spec = decode_spec(decode_file, flags)
    reuse = read_policy(policy) if policy else None
    items = from_lines(source) if source else from_arguments(prompts, ids)
    checkpoint = open_checkpoint(find_checkpoint(model, revision))
    spec.resolved_block_size(checkpoint.config.block_size)
    encoder = Encoder(checkpoint, chat, mask_token_id)
    if spec.stop_strings:
        encoder.tokenizer  # noqa: B018 (says now, not after loading, that there is none)
    items = [encoder.encoded(item) for item in items]
    engine = load_with_bar(checkpoint, device, dtype, mask_token_id)
    with _view(engine, items, spec, quiet=as_json or bool(output or source)) as view:
        decoded = decode(engine, items, spec, reuse, batch_size, view)
    _show(decoded, engine, spec, reuse, output, as_json, lines=bool(source))


def _view(
    engine: "Engine", items: list[Item], spec: DecodeSpec, quiet: bool
) -> "AbstractContextManager[View]":
    """One answer on a terminal is watched; many have a bar."""
    stdout, stderr = Console(), Console(stderr=True)
    budgets = [item.request.max_new_tokens or spec.max_new_tokens for item in items]
    if len(items) == 1 and stdout.is_terminal and not quiet:
        block = spec.resolved_block_size(engine.config.block_size)
        prompt = len(items[0].request.prompt)
        return LiveView(stdout, _as_text(engine), prompt, block, budgets[0])
    return Bar(budgets) if stderr.is_terminal else nullcontext(Silent())


def _as_text(engine: "Engine") -> Callable[[list[int]], str]:
    """How tokens are shown: as text, or as numbers where there is no tokenizer."""
    if engine.has_tokenizer:
        return engine.decode_text
    return lambda ids: "".join(f"{token} " for token in ids)


def _show(
    decoded: Decoded,
    engine: "Engine",
    spec: DecodeSpec,
    reuse: AnyPolicySpec | None,
    output: Path | None,
    as_json: bool,
    lines: bool,
) -> None:
    answers = results.answers(decoded)
    if output:
        results.write_atomically(output, results.as_lines(answers))
    if as_json:
        document = {
            "model": str(engine.folder),
            "device": str(engine.transformer.device),
            "dtype": str(engine.transformer.dtype).removeprefix("torch."),
            "decode": msgspec.to_builtins(spec),
            "policy": msgspec.to_builtins(reuse),
            "answers": answers,
            **results.measured(decoded),
        }
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    if not output:
        click.echo(results.as_lines(answers) if lines else _texts(decoded), nl=not lines)
    click.echo(results.summary(decoded), err=True)


def _texts(decoded: Decoded) -> str:
    """The answers for reading; several are numbered."""
    texts = []
    for generation in decoded.generations:
        text = generation.text
        texts.append(" ".join(map(str, generation.ids)) if text is None else text)
    if sys.stdout.isatty():
        texts = [printable(text) for text in texts]
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1))
