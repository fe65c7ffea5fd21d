"""`unmask chat`: a conversation in the terminal, its answers shown while they are unmasked; or line by line."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from unmask.cli.live import LiveView, Silent, Timed, as_text, summary
from unmask.cli.options import CheckpointOptions, checkpoint_options, decode_options, decode_spec
from unmask.cli.screen import Screen, load_with_bar, say
from unmask.errors import UnmaskError
from unmask.policies.text import read_policy
from unmask.spec.recipe import EMBEDDED

if TYPE_CHECKING:
    from unmask.play.conversation import Conversation

PROMPT = "> "
EXAMPLE = "Tom has 12 pens. Tom buys 5 more pens. Then Tom sells 9 pens. How many pens does Tom have now?"
HELP = """\
/policy POLICY       what to reuse, such as trim:keep=0; none reuses nothing
/threshold NUMBER    unmask above this confidence
/rule RULE           what a step unmasks, such as top_n:steps=4
/SETTING VALUE       any other decode setting: cache, temperature, max_new_tokens, ...; default gives it back
/settings            what is set now
/stats               what the answers cost so far
/reset               forget the conversation
/help, /quit         this list; leave (so do Ctrl-D and a second Ctrl-C)"""


@click.command()
@click.option(
    "--policy", metavar="POLICY", help="What to reuse, e.g. layer_reuse:k=2,layers=middle. [nothing]"
)
@checkpoint_options
@decode_options
def chat(policy: str | None, decode_file: Any, **flags: Any) -> None:
    """Talk to a checkpoint, and watch its answers being unmasked.

    Turns go through the checkpoint's chat template; where it has none, what you type is given to it as it stands.
    Between turns, /policy, /threshold, /rule and other settings can be changed, and /stats tells what the answers cost;
    /help lists all commands. Ctrl-C stops an answer, a second one leaves. Without a terminal, every line of standard
    input is a turn, and only answers are printed.

    \b
    Examples:
      unmask chat --model Efficient-Large-Model/Fast_dLLM_v2_1.5B
      unmask chat --policy trim:keep=0 --threshold 0.8
      cat questions.txt | unmask chat
    """
    options = CheckpointOptions.taken_from(flags)
    given = decode_spec(decode_file, flags)
    reuse = read_policy(policy) if policy else None
    checkpoint = options.opened()
    checkpoint.config.decoded(given)
    checkpoint.tokenizer  # noqa: B018 (says now, not after loading, that there is none)
    engine = load_with_bar(checkpoint, options.device, options.dtype, options.mask_token_id)

    from unmask.play.conversation import STANDING_ALONE, Conversation

    embedded = options.model in EMBEDDED
    chosen = {name: value for name, value in msgspec.to_builtins(given).items() if value is not None}
    conversation = Conversation(engine, chosen, reuse, STANDING_ALONE if embedded else None)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    say(conversation.manner + (f" For example: {EXAMPLE}" if embedded else ""), err=not interactive)
    if interactive:
        say("/help lists the commands, /quit leaves.")
        _talk(conversation)
    else:
        for line in _lines():
            _turn(conversation, line, interactive=False)


def _talk(conversation: "Conversation") -> None:
    """Read and answer until somebody leaves: by a command, the end of the input, or a second Ctrl-C."""
    with suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a history and arrow keys)
    interrupted = False
    while True:
        try:
            line = input(PROMPT).strip()
            interrupted = False
            if line and not _turn(conversation, line, interactive=True):
                return
        except UnmaskError as error:
            say(str(error), err=True)
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("")
            if interrupted:
                return
            interrupted = True
            say("Stopped; Ctrl-C again leaves. What was stopped is not part of the conversation.", err=True)


def _lines() -> Iterator[str]:
    for line in sys.stdin:
        if line.strip():
            yield line.strip()


def _turn(conversation: "Conversation", line: str, interactive: bool) -> bool:
    """Answer a line or carry out its command; False to leave."""
    if not line.startswith("/"):
        _answer(conversation, line, interactive)
        return True
    name, _, value = line.removeprefix("/").partition(" ")
    if name in ("quit", "exit"):
        return False
    commands: dict[str, Callable[[], str]] = {
        "help": lambda: HELP,
        "stats": lambda: _stats(conversation),
        "settings": lambda: _settings(conversation),
        "reset": lambda: _reset(conversation),
    }
    if name in commands:
        say(commands[name](), err=not interactive)
    elif not value.strip():
        raise UnmaskError(f"/{name} needs a value, or is no command; /help lists the commands.")
    else:
        conversation.change(name.replace("-", "_"), value.strip())
        if interactive:
            say(_settings(conversation))
    return True


def _answer(conversation: "Conversation", text: str, interactive: bool) -> None:
    from unmask.engine.events import collect

    if not interactive:
        timed = Timed(conversation.stream(text), Silent())
        (answer,) = collect(timed)
        conversation.keep(text, answer, timed.seconds)
        click.echo((answer.text or "").strip())
        return
    engine, spec = conversation.engine, conversation.engine.config.decoded(conversation.spec)
    length = len(engine.encode(conversation.prompt(text)))
    block = spec.block_size or length + spec.max_new_tokens
    screen = Screen()
    view = LiveView(screen, as_text(engine), length, block, spec.max_new_tokens)
    try:
        with view:
            timed = Timed(conversation.stream(text), view)
            (answer,) = collect(timed)
    except KeyboardInterrupt:
        say(view.settled().strip())
        raise
    conversation.keep(text, answer, timed.seconds)
    say((answer.text or "").strip())
    screen.print(summary([answer], timed.seconds), style="dim")


def _stats(conversation: "Conversation") -> str:
    from unmask.analysis.words import counted

    ledger, seconds = conversation.ledger, conversation.seconds
    if not conversation.answers:
        return "Nothing was answered yet."
    speed = f"{conversation.tokens / seconds:.1f} tokens/s" if seconds else "no time"
    return (
        f"{counted(conversation.answers, 'answer')}, {conversation.tokens} tokens in {seconds:.2f} s ({speed}), "
        f"{sum(ledger.steps().values())} forwards, {ledger.branch_rows() // 2:,} layer rows computed, "
        f"{ledger.reuse_fraction():.0%} of the layer work reused."
    )


def _settings(conversation: "Conversation") -> str:
    from unmask.play.conversation import SETTINGS

    spec = msgspec.to_builtins(conversation.engine.config.decoded(conversation.spec))
    known = {name: spec.get(name) for name in SETTINGS if spec.get(name) is not None}
    policy = msgspec.to_builtins(conversation.policy) if conversation.policy else "none"
    return f"policy: {policy}; " + "; ".join(f"{name}: {value}" for name, value in known.items())


def _reset(conversation: "Conversation") -> str:
    conversation.reset()
    return "The conversation is forgotten; the settings stay."
