"""Task templates, compiled once each: lm-eval compiles a task's template anew for every row and every example.

That is most of the time in which prompts are built, and grows with the examples: 5-shot gsm8k compiles twelve
times a row. What a template gives does not change.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

KEPT = 256
"""More templates than any run has."""


@contextmanager
def compiled_once() -> Iterator[None]:
    """Let lm-eval's template engine remember what it has compiled."""
    from lm_eval.utils import env

    env.from_string = lru_cache(KEPT)(env.from_string)
    try:
        yield
    finally:
        del env.from_string  # the class's own is there again
