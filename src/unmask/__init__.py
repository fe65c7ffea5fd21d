"""Unmask: run block-diffusion language models fast, reuse work between steps, measure honestly.

    >>> import unmask
    >>> engine = unmask.load("path/to/checkpoint")                          # doctest: +SKIP
    >>> engine.generate("Hello", decode={"max_new_tokens": 64})[0].text     # doctest: +SKIP
    >>> unmask.lab.run("recipes/00_baseline_embedded", slots=2)             # doctest: +SKIP

Names are imported when first used, so that `import unmask` does not need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError
from unmask.version import __version__ as __version__

if TYPE_CHECKING:
    from unmask.engine.engine import Engine
    from unmask.engine.events import Finished, Generation, StepEvent
    from unmask.engine.prompt import Request
    from unmask.engine.score import ScoreRequest
    from unmask.loading import load
    from unmask.spec import DecodeSpec

_HOMES = {
    "DecodeSpec": "unmask.spec",
    "Engine": "unmask.engine.engine",
    "Finished": "unmask.engine.events",
    "Generation": "unmask.engine.events",
    "Request": "unmask.engine.prompt",
    "ScoreRequest": "unmask.engine.score",
    "StepEvent": "unmask.engine.events",
    "load": "unmask.loading",
}

__all__ = [
    "DecodeSpec",
    "Engine",
    "Finished",
    "Generation",
    "Request",
    "ScoreRequest",
    "StepEvent",
    "UnmaskError",
    "lab",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "lab":
        return import_module("unmask.lab")
    if name not in _HOMES:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
