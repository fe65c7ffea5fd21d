"""The benchmarks that are tested here: lm-eval's definition of each, the files of its samples, and its metric.

Data only: nothing is imported from lm-eval and nothing is read but its MMLU files. Every task keeps lm-eval's
definition, so its results have lm-eval's keys whether samples come from the hub or from files. How a task file
is written is not known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from unmask.errors import UnmaskError
from unmask.model.hub import ASSETS
from unmask.spec.published import published_rows
from unmask.store.result import stderr_key

EMBEDDED_TASKS = ASSETS / "tasks"
MATH_SUBJECTS = {
    "algebra": "algebra",
    "counting_and_prob": "counting_and_probability",
    "geometry": "geometry",
    "intermediate_algebra": "intermediate_algebra",
    "num_theory": "number_theory",
    "prealgebra": "prealgebra",
    "precalc": "precalculus",
}
"""lm-eval's names of the MATH subjects, and the hub's."""
GPQA = "Idavidrein/gpqa"
GATED = (GPQA,)
"""Datasets that the hub gives only to those who have accepted their terms."""
GPQA_SETS = ("main", "diamond", "extended")
BOXED = "Please reason step by step, and put your final answer within \\boxed{{}}."
"""The published evaluation's instruction, letter by letter: its doubled braces reached the model."""
PYTHON_SEED = 0
"""The state that lm-eval gives Python's random generator when a run starts."""
METRICS = (
    ("gsm8k*", "exact_match,flexible-extract"),
    ("mmlu*_generative", "exact_match,get_response"),
    ("mmlu*", "acc,none"),
    ("minerva_math*", "math_verify,none"),
    ("ifeval", "prompt_level_strict_acc,none"),
    ("humaneval*", "pass@1,create_test"),
    ("mbpp_instruct", "pass_at_1,extract_code"),
    ("mbpp", "pass_at_1,none"),
    ("gpqa_*_generative_n_shot", "exact_match,flexible-extract"),
    ("gpqa_*", "acc,none"),
    ("unmask_arith*", "exact_match,strict-match"),
    ("unmask_choice*", "acc,none"),
)
"""Patterns of task names, the most particular first, and the metric by which such a task is known."""
MEANS = ("exact_match", "acc", "acc_norm", "math_verify", "prompt_level_strict_acc", "pass@1", "pass_at_1")
"""Metrics that are the mean of one number for each row."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a task file names and lm-eval imports when it reads the file."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One task."""

    name: str
    stock: str | None = None
    """lm-eval's definition, below its folder of tasks; None for a task that ships with this package."""
    hub: str | None = None
    """The dataset on the hub."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The file of each split, below the folder given as --data."""
    changes: Mapping[str, object] = field(default_factory=dict)
    """What is set beside the definition; named variants and reproducible shuffling only."""
    runs_code: bool = False
    """Whether its metric runs programs that the model writes."""
    choices: Literal["letters", "texts"] | None = None
    """What is scored: single letters, which are one token each, or longer texts. None: answers are generated."""

    @property
    def published_rows(self) -> int | None:
        """How many samples the published data set has; None where that is not known."""
        return published_rows(self.files.get("test") or self.files.get("train") or self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGroup:
    """Tasks that are summed up under one name."""

    name: str
    members: tuple[str, ...]
    """Names of tasks."""
    stock: str | None = None
    content: Mapping[str, object] = field(default_factory=dict)
    """A definition of our own, where lm-eval has none."""


@cache
def stock_folder() -> Path:
    """The folder of lm-eval's task definitions."""
    package = find_spec("lm_eval")
    if package is None or package.origin is None:
        raise UnmaskError('Benchmarks need lm-eval; install it with: pip install "unmask[eval]".')
    return Path(package.origin).parent / "tasks"


@cache
def sources() -> dict[str, Source]:
    """Every task by its name."""
    ifeval = Source(
        name="ifeval",
        stock="ifeval/ifeval.yaml",
        hub="google/IFEval",
        files={"train": "ifeval/input_data.jsonl"},
        changes={"process_results": Function("unmask.evaluation.stable.ifeval_results")},
    )
    every = [*_gsm8k(), *_mmlu(), *_math(), *_code(), *_gpqa(), *_embedded(), ifeval]
    return {source.name: source for source in every}


@cache
def groups() -> dict[str, TaskGroup]:
    """Every group by its name."""
    return {group.name: group for group in (*_mmlu_groups(), *_math_groups())}


def members_of(name: str) -> list[Source]:
    """The tasks that a task's or group's name stands for."""
    if name in groups():
        return [sources()[member] for member in groups()[name].members]
    return [sources()[name]]


def metric_of(task: str) -> str:
    """The metric by which a task or group is known, by its name in lm-eval's results."""
    for pattern, metric in METRICS:
        if fnmatchcase(task, pattern):
            return metric
    raise UnmaskError(
        f"No metric is named for the task {task}; add it to the table in evaluation/catalogue.py."
    )


def check_mean(task: str, metric: str | None) -> None:
    """Refuse a task whose metric is no mean over its rows: a part of them would say nothing of the whole."""
    name = metric or metric_of(task)
    if name.partition(",")[0] not in MEANS:
        raise UnmaskError(
            f"{name} of {task} is no mean over rows, so its runs cannot end when they are decided; leave out "
            "until_decided, or name another metric."
        )


def headline(task: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Name, value and standard error of a task's metric, taken from its row of lm-eval's results.

    A row also holds sizes, standard errors and other metrics, so the metric is never taken by its position.
    """
    metric = metric_of(task)
    if metric not in row:
        raise UnmaskError(
            f"lm-eval's results of {task} hold no {metric}; they hold {', '.join(sorted(row))}."
        )
    error = row.get(stderr_key(metric))
    return {
        "metric": metric,
        "value": float(row[metric]),
        "stderr": float(error) if isinstance(error, float) else None,
    }


def _gsm8k() -> list[Source]:
    rows = {"train": "gsm8k/train.jsonl", "test": "gsm8k/test.jsonl"}
    test = {"test": "gsm8k/test.jsonl"}
    boxed = {"doc_to_text": "Question: {{question}}\n{% raw %}" + BOXED + "{% endraw %}", "num_fewshot": 0}
    return [
        Source(name="gsm8k", stock="gsm8k/gsm8k.yaml", hub="openai/gsm8k", files=rows),
        Source(name="gsm8k_cot", stock="gsm8k/gsm8k-cot.yaml", hub="openai/gsm8k", files=test),
        Source(name="gsm8k_boxed", stock="gsm8k/gsm8k.yaml", hub="openai/gsm8k", files=rows, changes=boxed),
    ]


def _mmlu_subjects() -> list[str]:
    files = (stock_folder() / "mmlu/default").glob("mmlu_*.yaml")
    return sorted(file.stem.removeprefix("mmlu_") for file in files)


MMLU_STYLES = {"default": "", "generative": "_generative", "continuation": "_continuation"}
"""Folders of lm-eval's MMLU definitions and the endings of their tasks."""
MMLU_CHOICES: dict[str, Literal["letters", "texts"]] = {"default": "letters", "continuation": "texts"}


def _mmlu() -> list[Source]:
    return [
        Source(
            name=f"mmlu_{subject}{ending}",
            stock=f"mmlu/{style}/mmlu_{subject}.yaml",
            hub="cais/mmlu",
            files={"test": f"mmlu/test/{subject}.jsonl", "dev": f"mmlu/dev/{subject}.jsonl"},
            choices=MMLU_CHOICES.get(style),
        )
        for style, ending in MMLU_STYLES.items()
        for subject in _mmlu_subjects()
    ]


def _mmlu_groups() -> list[TaskGroup]:
    subjects = _mmlu_subjects()
    groups = [
        TaskGroup(
            name=f"mmlu{ending}",
            stock=f"mmlu/{style}/_mmlu.yaml",
            members=tuple(f"mmlu_{subject}{ending}" for subject in subjects),
        )
        for style, ending in MMLU_STYLES.items()
    ]
    for part in ("stem", "humanities", "social_sciences", "other"):
        tag = f'"tag": "mmlu_{part}_tasks"'
        inside = tuple(f"mmlu_{name}" for name in subjects if tag in _definition(f"default/mmlu_{name}"))
        groups.append(TaskGroup(name=f"mmlu_{part}", stock=f"mmlu/default/_mmlu_{part}.yaml", members=inside))
    return groups


def _definition(name: str) -> str:
    return (stock_folder() / f"mmlu/{name}.yaml").read_text(encoding="utf-8")


def _math() -> list[Source]:
    tasks = []
    for subject, folder in MATH_SUBJECTS.items():
        stock = f"minerva_math/minerva_math_{subject}.yaml"
        files = {"test": f"math/{folder}.jsonl"}
        hub = "EleutherAI/hendrycks_math"
        tasks.append(Source(name=f"minerva_math_{subject}", stock=stock, hub=hub, files=files))
        boxed = {"doc_to_text": Function("unmask.evaluation.stable.boxed_problem"), "num_fewshot": 0}
        tasks.append(
            Source(name=f"minerva_math_boxed_{subject}", stock=stock, hub=hub, files=files, changes=boxed)
        )
    return tasks


def _math_groups() -> list[TaskGroup]:
    boxed = tuple(f"minerva_math_boxed_{subject}" for subject in MATH_SUBJECTS)
    summed = [{"metric": metric, "weight_by_size": True} for metric in ("exact_match", "math_verify")]
    content = {
        "group": "minerva_math_boxed",
        "task": list(boxed),
        "aggregate_metric_list": summed,
        "metadata": {"version": 1.0},
    }
    plain = tuple(f"minerva_math_{subject}" for subject in MATH_SUBJECTS)
    return [
        TaskGroup(name="minerva_math", stock="benchmarks/minerva_math.yaml", members=plain),
        TaskGroup(name="minerva_math_boxed", members=boxed, content=content),
    ]


def _code() -> list[Source]:
    human = {"test": "humaneval/HumanEval.jsonl"}
    basic = {"test": "mbpp/test.jsonl"}
    return [
        Source(
            name=f"{family}{ending}",
            stock=f"{family}/{family}{ending}.yaml",
            hub=hub,
            files=files,
            runs_code=True,
        )
        for family, hub, files in (
            ("humaneval", "openai/openai_humaneval", human),
            ("mbpp", "google-research-datasets/mbpp", basic),
        )
        for ending in ("", "_instruct")
    ]


def _gpqa() -> list[Source]:
    return [
        Source(
            name=f"gpqa_{which}_{style}",
            stock=f"gpqa/{folder}/gpqa_{which}_{style}.yaml",
            hub=GPQA,
            files={"train": f"gpqa/gpqa_{which}.jsonl"},
            changes={"process_docs": Function(f"unmask.evaluation.stable.gpqa_{style}_docs")},
            choices=None if folder == "generative" else "texts",
        )
        for which in GPQA_SETS
        for style, folder in (
            ("zeroshot", "zeroshot"),
            ("n_shot", "n_shot"),
            ("generative_n_shot", "generative"),
        )
    ]


def _embedded() -> list[Source]:
    choices: dict[str, Literal["letters", "texts"]] = {
        "unmask_choice": "letters",
        "unmask_choice_text": "texts",
    }
    names = [file.stem for file in sorted(EMBEDDED_TASKS.glob("unmask_*.yaml"))]
    return [Source(name=name, choices=choices.get(name)) for name in names]
