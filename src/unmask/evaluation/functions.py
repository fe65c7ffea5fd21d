"""References to functions in lm-eval's task files, written as `!function package.module.name`."""

from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class Function:
    """A function that lm-eval imports when it reads the file."""

    name: str


class _Dumper(yaml.SafeDumper):
    """Writes plain data and references to functions."""


_Dumper.add_representer(
    Function, lambda dumper, function: dumper.represent_scalar("!function", function.name)
)


def as_yaml(content: dict[str, object]) -> str:
    """A task file's text."""
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000)
    return text
