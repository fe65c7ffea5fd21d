"""Hides access tokens and passwords in a text. Whoever writes free text (arguments, reasons, errors) calls it first."""

import os
import re
from collections.abc import Iterable

HIDDEN = "[hidden]"
VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "WANDB_API_KEY")
SHAPES = re.compile(
    r"\b(?:hf_|ghp_|gho_|github_pat_|glpat-|sk-|xox[a-z]-)[A-Za-z0-9_\-]{8,}"  # tokens that say whose they are
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user:password in an address
    r"|(?<=[Bb]earer )\S+"
)
SECRET = r"[A-Za-z0-9_\-]*(?:token|password|passwd|secret|api[_\-]?key)"
NOT_SECRET = re.compile(r"(?i)mask[_\-]token|token[_\-]id|stop[_\-]token")
NAMED = re.compile(rf"(?i)^(-*{SECRET})=(.+)$", re.DOTALL)
OPTION = re.compile(rf"(?i)^--?{SECRET}$")


def redacted(text: str) -> str:
    """The text without anything that looks like a token, and without the tokens this process was given."""
    for name in VARIABLES:
        value = os.environ.get(name)
        if value and len(value) >= 4:
            text = text.replace(value, HIDDEN)
    return SHAPES.sub(HIDDEN, text)


def redacted_arguments(arguments: Iterable[str]) -> list[str]:
    """Command-line arguments; the value of an option whose name says token, password or key goes too."""
    kept: list[str] = []
    hide_next = False
    for argument in arguments:
        named = NAMED.match(argument)
        if hide_next:
            kept.append(HIDDEN)
        elif named and not NOT_SECRET.search(named[1]):
            kept.append(f"{named[1]}={HIDDEN}")
        else:
            kept.append(redacted(argument))
        hide_next = not hide_next and bool(OPTION.match(argument)) and not NOT_SECRET.search(argument)
    return kept
