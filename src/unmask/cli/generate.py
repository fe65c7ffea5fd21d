"""`unmask generate`: answers prompts with a checkpoint, as text for people or JSON for programs."""

import json
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from unmask.cli.live import AnswerBar, Decoded, LiveView, Silent, as_text, decode, summary
from unmask.cli.options import (
    CheckpointOptions,
    batch_option,
    check_writable,
    checkpoint_options,
    decode_options,
    decode_spec,
    hint_at_chat,
)
from unmask.cli.prompts import NumberedRequest, encoded, holds_text, prompt_options, read_prompts
from unmask.cli.screen import Screen, load_with_bar
from unmask.engine.policy import NO_STEPS
from unmask.policies.text import read_policy
from unmask.reading import printable, printable_json
from unmask.spec import AnyPolicySpec, DecodeSpec
from unmask.spec.decode import ResolvedSpec
from unmask.store.files import write_atomically

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from unmask.cli.live import View
    from unmask.engine.engine import Engine


@click.command()
@prompt_options
@click.option("--output", "-o", type=Path, metavar="FILE", help="Write answers as JSON lines, all or none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@checkpoint_options
@decode_options
@click.option(
    "--policy", metavar="POLICY", help="What to reuse, e.g. layer_reuse:k=2,layers=middle. [nothing]"
)
@batch_option
def generate(
    prompts: tuple[str, ...],
    ids: tuple[str, ...],
    source: str | None,
    chat: bool | None,
    output: Path | None,
    as_json: bool,
    decode_file: Path | None,
    policy: str | None,
    batch_size: int,
    **flags: Any,
) -> None:
    """Answer prompts with a checkpoint.

    A prompt is text, token ids (--ids) or a line of a JSON lines file (--input) such as
    {"prompt": "Hello", "id": "a", "max_new_tokens": 64, "seed": 1}, where the prompt is text, a list of
    token ids or a list of chat messages. Text is given to the model as it stands; --chat puts it through the
    checkpoint's chat template, as messages always are. On a terminal a single answer is shown while it is unmasked.

    \b
    Examples:
      unmask generate "Why is the sky blue?" --chat --model Efficient-Large-Model/Fast_dLLM_v2_1.5B
      unmask generate --ids 1,2,3 --model path/to/checkpoint --max-new-tokens 64 --threshold 0.8
      unmask generate --input prompts.jsonl --output answers.jsonl --model path/to/checkpoint
      unmask generate "Hello" --policy layer_reuse:k=2,unit=residual --model path/to/checkpoint
      unmask generate "Hello" --json --model path/to/checkpoint | jq .answers[0].text
    """
    options = CheckpointOptions.taken_from(flags)
    requests = read_prompts(prompts, ids, source)
    if output:
        check_writable(output)
    decode_settings = decode_spec(decode_file, flags)
    reuse = read_policy(policy) if policy else None
    checkpoint = options.opened()
    spec = checkpoint.config.decoded(decode_settings)
    if spec.stop_strings:
        checkpoint.tokenizer  # noqa: B018 (says now, not after loading, that there is none)
    with_ids = encoded(requests, checkpoint, options, chat)
    engine = load_with_bar(checkpoint, options.device, options.dtype, options.mask_token_id)
    if holds_text(requests) and not as_json:
        hint_at_chat(checkpoint, chat)
    if reuse and not reuse.dead and not engine.config.family.has_mask:
        click.echo(f"Hint: {NO_STEPS}; --policy changes nothing here.", err=True)
    with _view(engine, with_ids, spec, quiet=as_json or bool(output or source)) as view:
        decoded = decode(engine, with_ids, spec, reuse, batch_size, view)
    _show(decoded, engine, spec, reuse, output, as_json, lines=bool(source))


def _view(
    engine: "Engine", requests: list[NumberedRequest], spec: ResolvedSpec, quiet: bool
) -> "AbstractContextManager[View]":
    """One answer on a terminal is watched; many have a bar."""
    stdout, stderr = Screen(), Screen(stderr=True)
    budgets = [numbered.request.max_new_tokens or spec.max_new_tokens for numbered in requests]
    if len(requests) == 1 and stdout.is_terminal and not quiet:
        prompt = len(requests[0].request.prompt)
        block = spec.block_size or prompt + budgets[0]
        return LiveView(stdout, as_text(engine), prompt, block, budgets[0])
    return AnswerBar(budgets) if stderr.is_terminal else nullcontext(Silent())


def _show(
    decoded: Decoded,
    engine: "Engine",
    spec: DecodeSpec,
    reuse: AnyPolicySpec | None,
    output: Path | None,
    as_json: bool,
    lines: bool,
) -> None:
    answers = _answers(decoded)
    if output:
        write_atomically(output, _as_lines(answers), verbatim=True)
    if as_json:
        document = {
            "model": str(engine.folder),
            "device": str(engine.transformer.device),
            "dtype": str(engine.transformer.dtype).removeprefix("torch."),
            "decode": msgspec.to_builtins(spec),
            "policy": msgspec.to_builtins(reuse),
            "answers": answers,
            "tokens": decoded.tokens,
            "seconds": decoded.seconds,
            "tokens_per_second": decoded.tokens_per_second,
            "steps": decoded.steps(),
        }
        click.echo(printable_json(document))
        return
    if not output:
        click.echo(_as_lines(answers) if lines else _texts(decoded), nl=not lines)
    click.echo(summary(decoded.generations, decoded.seconds), err=True)


def _answers(decoded: Decoded) -> list[dict[str, Any]]:
    """One JSON object for each answer."""
    return [
        {
            "id": numbered.id,
            "text": generation.text,
            "ids": generation.ids,
            "finish_reason": generation.finish_reason,
            "prompt_tokens": len(numbered.request.prompt),
            "batch_size": generation.batch_size,
            "ledger": generation.ledger.as_dict(),
        }
        for numbered, generation in zip(decoded.requests, decoded.generations, strict=True)
    ]


def _as_lines(values: Iterable[dict[str, Any]]) -> str:
    """JSON lines."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


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
