"""What the page offers to begin with: pairs of settings that teach something, and questions whose answers are known."""

import json
from importlib.resources import files
from typing import Any, NamedTuple

from unmask.spec.recipe import EMBEDDED

PLAIN: dict[str, str] = {}
CANVAS = {"model": EMBEDDED[1], "sub_block_size": "8", "threshold": "0.9"}
"""The canvas model that ships with the package, under the settings that suit it."""
QUESTIONS = (3, 44, 19, 34, 1)
"""Rows of the held-out word problems that the page offers: most are among the few on which some presets fail."""


class Preset(NamedTuple):
    """Two settings and what to look at while they run."""

    name: str
    look: str
    a: dict[str, str]
    b: dict[str, str]


PRESETS = (
    Preset(
        "Baseline and TRIM",
        "B leaves out rows whose tokens have not changed: its map has gaps, yet it takes about the same steps. Count "
        "the layer rows, not the forwards.",
        PLAIN,
        {"policy": "trim:keep=0"},
    ),
    Preset(
        "Baseline and output reuse",
        "Every other sub-block step of B computes nothing and reads old logits, which give one more token. Compare the "
        "layer rows, the forwards and the answers.",
        PLAIN,
        {"policy": "layer_reuse:k=2,unit=output"},
    ),
    Preset(
        "Threshold 0.9 and 0.6",
        "The honest competitor of every policy: B takes more tokens a step, and pays with those that it takes too "
        "early. Look for differences between the answers.",
        {"threshold": "0.9"},
        {"threshold": "0.6"},
    ),
    Preset(
        "No cache and dual cache",
        "With the cache most steps of B feed 8 positions of 32: the dark columns become short bars.",
        {"cache": "none"},
        {"cache": "dual"},
    ),
    Preset(
        "One token a step and many",
        "A writes the best position of each step, B all that are sure enough: the staircase of B is steeper.",
        {"rule": "top_n:n=1"},
        PLAIN,
    ),
    Preset(
        "A block model and a canvas model",
        "B sees prompt and answer at once: its columns reach from the prompt to the end of an answer whose length is "
        "fixed beforehand, its empty end included. A pays for blocks as it comes to them.",
        PLAIN,
        {**CANVAS, "cache": "none"},
    ),
    Preset(
        "A canvas without and with a cache",
        "Without a cache every step of A feeds prompt and answer. With the dual cache B feeds the whole canvas once in "
        "each sub-block, and 8 positions after that.",
        {**CANVAS, "cache": "none"},
        {**CANVAS, "cache": "dual"},
    ),
    Preset(
        "Residual reuse in the middle",
        "The same layers sit out every other step of B; the map by layers shows which.",
        PLAIN,
        {"policy": "layer_reuse:k=2,layers=middle,unit=residual,on=sub+block"},
    ),
)


def questions() -> list[dict[str, Any]]:
    """Questions of the held-out word problems, as the embedded model wants them asked, with the right number."""
    file = files("unmask") / "assets" / "tasks" / "arith.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[: max(QUESTIONS) + 1]]
    return [
        {
            "prompt": f"Question: {rows[number]['question']}\nAnswer:",
            "target": rows[number]["answer"].rsplit("#### ", 1)[-1],
        }
        for number in QUESTIONS
    ]
