"""Experiments from Python: everything that the verbs about sweeps do, as plain functions without torch.

    >>> from unmask import lab
    >>> plan = lab.plan("recipes/05_mine", tasks=["gsm8k"], limit=50)             # doctest: +SKIP
    >>> done = lab.run("recipes/05_mine", slots=2, canary=10, on_event=show)      # doctest: +SKIP
    >>> lab.check("05_mine").invalid, lab.report("05_mine").page                  # doctest: +SKIP

    recipes     a recipe on disk: new, demo, prepare
    planning    what a recipe would run: plan
    executing   execute what is missing: run, running
    canary      a few rows first, judged before the rest
    runs        look after runs: status, logs, cancel, retract, remove
    outcomes    what results come to: results, check, compare, report, export, import_summaries
    names       which run is meant by a name

A function returns a struct or a path, prints nothing, and raises UnmaskError with one sentence. Names are imported
when first used, so that looking at a store does not load the statistics.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.lab.executing import run, running
    from unmask.lab.outcomes import check, compare, export, import_summaries, report, results
    from unmask.lab.planning import plan
    from unmask.lab.recipes import demo, new, prepare
    from unmask.lab.runs import cancel, logs, remove, retract, status

_HOMES = {
    "cancel": "runs",
    "check": "outcomes",
    "compare": "outcomes",
    "demo": "recipes",
    "export": "outcomes",
    "import_summaries": "outcomes",
    "logs": "runs",
    "new": "recipes",
    "plan": "planning",
    "prepare": "recipes",
    "remove": "runs",
    "report": "outcomes",
    "results": "outcomes",
    "retract": "runs",
    "run": "executing",
    "running": "executing",
    "status": "runs",
}

__all__ = [
    "cancel",
    "check",
    "compare",
    "demo",
    "export",
    "import_summaries",
    "logs",
    "new",
    "plan",
    "prepare",
    "remove",
    "report",
    "results",
    "retract",
    "run",
    "running",
    "status",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unmask.lab' has no attribute {name!r}")
    return getattr(import_module(f"unmask.lab.{_HOMES[name]}"), name)
