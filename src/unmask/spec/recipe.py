"""A recipe: one file that describes a sweep. Data and its own consistency; what it expands to is in sweep.py.

Knows nothing of checkpoints, task files or machines: what depends on them is checked when they are known.
"""

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import product
from math import isfinite, prod
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import parse_toml, read_plain_text
from unmask.spec.build import Count, Part, Positive, build_named, shown
from unmask.spec.conduct import NO_CRITERION, EvaluationSpec, TimingSpec, UntilDecidedSpec
from unmask.spec.decode import DecodeSpec, joined
from unmask.spec.family import EstimatorName
from unmask.spec.policy import AnyPolicySpec
from unmask.spec.resources import ResourcesSpec

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
OrderName = Literal["confidence", "left_to_right"]
RECIPE_FILE = "recipe.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""What may name an experiment or an import, and so a folder; reports join such names with a plus."""
CONFIGURATION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
FIELD_FORM = re.compile(r"0?[0-9]?(\.[0-9])?[a-zA-Z%]?")
"""How a field of a grid's name may be formatted, as in `{threshold:.2f}`: widths and digits up to nine."""
EMBEDDED = ("embedded", "embedded-canvas")
"""The checkpoints that ship with the package; the first is the default."""
MOST_RUNS = 10_000
"""Runs of one recipe: configurations times tasks."""
DECODE_AXIS = "decode."
MOST_NAMED = 30
"""Names that an error lists."""


class ModelSpec(Part, frozen=True, kw_only=True):
    """Which checkpoint."""

    checkpoint: str
    """A folder (relative to the recipe), a hub id, `embedded` or `embedded-canvas`."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    """None lets the worker choose what suits its device."""
    mask_token_id: TokenId | None = None
    """The mask token, where the checkpoint names none."""

    @property
    def name(self) -> str:
        """What tells checkpoints of one recipe apart."""
        return self.checkpoint if self.revision is None else f"{self.checkpoint}@{self.revision}"

    def __post_init__(self) -> None:
        """Refuse a revision of what has none."""
        if self.checkpoint in EMBEDDED and self.revision is not None:
            raise UnmaskError(
                f"model.revision is that of a hub id, and `{self.checkpoint}` is none; leave it out."
            )


class TaskSpec(Part, frozen=True, kw_only=True):
    """One benchmark."""

    name: str
    """As `unmask eval` knows it."""
    limit: Positive | None = None
    """Rows to ask; None asks all of them."""
    num_fewshot: Count | None = None
    """Examples in a prompt; None takes the task's own number."""
    estimator: EstimatorName = "chain"
    """How given answers are scored."""
    order: OrderName = "confidence"
    """In which order the estimator `chain` reveals positions."""
    metric: str | None = None
    """The number that stands for the task; None takes the usual one."""

    def resolved(self) -> "TaskSpec":
        """The same task without an order that its estimator does not heed, as an identity holds it."""
        return self if self.estimator == "chain" else msgspec.structs.replace(self, order="confidence")


class ConfigurationSpec(Part, frozen=True, kw_only=True):
    """One configuration: a policy, decode settings that differ from the recipe's, maybe a checkpoint of its own."""

    name: str
    """What tables, options and other parts of the recipe call it."""
    model: ModelSpec | None = None
    """None takes the recipe's."""
    policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"kind": "full"})
    """What is reused."""
    decode: dict[str, Any] = msgspec.field(default_factory=dict)
    """Decode settings put over the recipe's."""


class GridSpec(Part, frozen=True, kw_only=True):
    """Configurations that are multiplied out of axes."""

    name: str
    """A template of the axes' fields: `k{k}_{layers}`."""
    axes: dict[str, tuple[Any, ...]]
    """Values of fields of the policy, or of decode settings: `decode.threshold`, `decode.rule`."""
    model: ModelSpec | None = None
    """None takes the recipe's."""
    policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"kind": "full"})
    """What is reused; the axes fill in fields of it."""
    decode: dict[str, Any] = msgspec.field(default_factory=dict)
    """Decode settings put over the recipe's."""


Predicted = Literal["predicted:rtx6000", "predicted:a100", "predicted:l40s", "predicted:h100"]
Gained = Literal["speed", "work", "tokens_a_forward", Predicted]
"""What a candidate is to gain: time in a timing run, counted operations, or accepted tokens a forward."""


class Bounds(Part, frozen=True, kw_only=True):
    """A gain over the control and a loss of accuracy (0.05 is five points)."""

    gain: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """How many times better than the control, by what the criterion names."""
    speedup: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """The same under its older name, where the criterion is about speed."""
    drop: Annotated[float, msgspec.Meta(ge=0, le=1)]
    """Accuracy that may be lost, as a share: 0.05 is five points."""

    @property
    def least_gain(self) -> float:
        """The gain, under whichever name it was given."""
        return self.gain or self.speedup or 1.0


class SuccessSpec(Part, frozen=True, kw_only=True):
    """When the hypothesis is confirmed, and when it is rejected."""

    task: str
    """The task by which the hypothesis is judged."""
    control: str
    """The configuration that the others are compared with."""
    candidates: tuple[str, ...]
    """Patterns of names."""
    by: Gained = "speed"
    """What is to be gained."""
    confirm: Bounds
    """Some candidate gains more than this and loses less than that."""
    reject: Bounds | None = None
    """Every candidate gains less than this or loses more than that."""

    def is_candidate(self, configuration: str) -> bool:
        """Whether the criteria are about a configuration; the control never is a candidate."""
        return configuration != self.control and _fits_any(configuration, self.candidates)

    def __post_init__(self) -> None:
        """Refuse criteria that say two things, or by which one result could be confirmed and rejected at once."""
        key = self._named_gain("confirm", self.confirm)
        if not isfinite(self.confirm.least_gain):
            raise UnmaskError(f"{key} is not finite; name a gain that a run can reach.")
        if self.reject is None:
            return
        other = self._named_gain("reject", self.reject)
        if self.reject.least_gain > self.confirm.least_gain:
            raise UnmaskError(
                f"{other} ({self.reject.least_gain:g}) is above {key} ({self.confirm.least_gain:g}), so one candidate "
                "could be confirmed and rejected; lower it."
            )
        if self.reject.drop < self.confirm.drop:
            raise UnmaskError(
                f"success.reject.drop ({self.reject.drop:g}) is below success.confirm.drop "
                f"({self.confirm.drop:g}), so one candidate could be confirmed and rejected; raise it."
            )

    def _named_gain(self, name: str, bounds: Bounds) -> str:
        """The key that holds the gain of some bounds; exactly one must, and `speedup` is about speed only."""
        place = f"success.{name}"
        if bounds.gain is not None and bounds.speedup is not None:
            raise UnmaskError(f"{place} has both gain and speedup, which are the same; leave out speedup.")
        if bounds.gain is None and bounds.speedup is None:
            raise UnmaskError(f"{place} does not say what is to be gained; give it gain, as in gain = 1.2.")
        if bounds.speedup is not None and self.by != "speed":
            raise UnmaskError(
                f'{place}.speedup is about speed, but success.by is "{self.by}"; call it gain, as in '
                f"gain = {bounds.speedup:g}."
            )
        return f"{place}.{'speedup' if bounds.gain is None else 'gain'}"


class Recipe(Part, frozen=True, kw_only=True):
    """A sweep as its author wrote it."""

    name: str
    """Of the experiment; it names folders."""
    hypothesis: str
    """What is asked, in a sentence."""
    model: ModelSpec
    """The checkpoint."""
    tasks: tuple[TaskSpec, ...]
    """The benchmarks."""
    expected: str = ""
    """What is expected, and how long it takes."""
    decode: dict[str, Any] = msgspec.field(default_factory=dict)
    """Fields of the decode settings; those that are given win over what a task asks for."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """How tasks are put to the model."""
    grid: tuple[GridSpec, ...] = ()
    """Configurations multiplied out of axes."""
    configurations: tuple[ConfigurationSpec, ...] = ()
    """Single configurations."""
    timing: tuple[TimingSpec, ...] = ()
    """Timing runs, the only source of speeds."""
    success: SuccessSpec | None = None
    """When the hypothesis is confirmed or rejected."""
    until_decided: UntilDecidedSpec | None = None
    """Where it is given, runs end as soon as the criterion of `success` is certain of them."""
    resources: ResourcesSpec = ResourcesSpec()
    """Where runs run and what they may use."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        _check_name(self.name, "name", NAME)
        if not self.tasks:
            raise UnmaskError("tasks is empty; name at least one [[tasks]].")
        for task in self.tasks:
            _check_name(task.name, "A task's name")
        _check_once([task.name for task in self.tasks], "tasks", "a recipe can name a task once")
        build_named(DecodeSpec, self.decode, "decode")
        self._check_number()
        names = [configuration.name for configuration in self.expanded()]
        if not names:
            raise UnmaskError("There is no configuration; give a [[grid]] or [[configurations]].")
        for name in names:
            _check_name(name, "A configuration's name")
        _check_once(names, "configurations", "put every axis into the grid's name")
        self._check_references(names)

    def _check_number(self) -> None:
        """Refuse more runs than anybody could want, before they are multiplied out."""
        configurations = len(self.configurations) + sum(
            prod(map(len, grid.axes.values())) for grid in self.grid
        )
        runs = configurations * len(self.tasks)
        if runs > MOST_RUNS:
            raise UnmaskError(
                f"The recipe stands for {runs} runs ({configurations} configurations on {len(self.tasks)} tasks); "
                f"{MOST_RUNS} are the most, so shorten the axes of its grids."
            )

    def _check_references(self, names: list[str]) -> None:
        tasks = [task.name for task in self.tasks]
        for number, timing in enumerate(self.timing):
            what = f"timing[{number}]"
            _check_name(timing.name, f"{what}.name")
            _check_known(timing.task, tasks, f"{what}.task", "tasks")
            if timing.control is not None:
                _check_known(timing.control, names, f"{what}.control", "configurations")
            _check_patterns(timing.configurations, names, f"{what}.configurations")
        timed = [f"{timing.name} of {timing.task}" for timing in self.timing]
        _check_once(timed, "timing runs", "give each a name")
        if self.until_decided and not self.success:
            raise UnmaskError(NO_CRITERION)
        if self.success:
            _check_known(self.success.task, tasks, "success.task", "tasks")
            _check_known(self.success.control, names, "success.control", "configurations")
            _check_patterns(self.success.candidates, names, "success.candidates")
            if not any(map(self.success.is_candidate, names)):
                raise UnmaskError(
                    f"success.candidates names nothing but the control, {self.success.control}; name what it is "
                    "compared with."
                )

    def expanded(self) -> list[ConfigurationSpec]:
        """Every configuration: the grids multiplied out, then the single ones."""
        configurations = [configuration for grid in self.grid for configuration in _multiplied(grid)]
        configurations += self.configurations
        for configuration in configurations:
            self.policy_of(configuration)
            self.decode_of(configuration)
        return configurations

    @property
    def models(self) -> dict[str, ModelSpec]:
        """Every checkpoint by its name, the recipe's own first."""
        own = {model.name: model for each in self.expanded() if (model := each.model) is not None}
        return {self.model.name: self.model} | own | {self.model.name: self.model}

    def own_models(self) -> dict[str, str]:
        """The names of checkpoints of configurations that have another than the recipe's own."""
        models = {each.name: self.model_of(each).name for each in self.expanded()}
        return {name: model for name, model in models.items() if model != self.model.name}

    def model_of(self, configuration: ConfigurationSpec) -> ModelSpec:
        """The checkpoint of one configuration."""
        return configuration.model or self.model

    def policy_of(self, configuration: ConfigurationSpec) -> AnyPolicySpec:
        """The policy of one configuration."""
        kind: Any = AnyPolicySpec
        what = f"configuration {configuration.name}, policy"
        return build_named(kind, configuration.policy, what)  # type: ignore[no-any-return]

    def decode_of(self, configuration: ConfigurationSpec) -> DecodeSpec:
        """The decode settings of one configuration."""
        settings = joined(self.decode, configuration.decode)
        return build_named(DecodeSpec, settings, f"configuration {configuration.name}, decode")

    @property
    def control(self) -> str:
        """The configuration that others are compared with."""
        return self.success.control if self.success else self.expanded()[0].name


def _check_name(name: str, what: str, pattern: re.Pattern[str] = CONFIGURATION_NAME) -> None:
    if not pattern.fullmatch(name):
        raise UnmaskError(
            f"{what} is {shown(name)}; use letters, digits, dots, dashes and underscores, at most 100 of them, so that "
            "it can name a file."
        )


def _check_once(names: Sequence[str], what: str, advice: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise UnmaskError(f"{count} {what} are called {name}; {advice}.")


def _check_known(name: str, known: Sequence[str], what: str, where: str) -> None:
    if name not in known:
        raise UnmaskError(f"{what} is {shown(name)}, which is not among the {where}: {_some(known)}.")


def _check_patterns(patterns: Sequence[str], names: Sequence[str], what: str) -> None:
    """Refuse patterns that no configuration fits."""
    if not patterns:
        raise UnmaskError(f"{what} is empty; give names or patterns of configurations.")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnmaskError(
                f"{what} is {shown(pattern)}, which fits none of the configurations: {_some(names)}."
            )


def _fits_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _some(names: Sequence[str]) -> str:
    """The first of many names, as a sentence can show them."""
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def _multiplied(grid: GridSpec) -> list[ConfigurationSpec]:
    if not grid.axes or not all(grid.axes.values()):
        raise UnmaskError(f"The grid {grid.name} has no axes, or an empty one; give each axis its values.")
    configurations = []
    for values in product(*grid.axes.values()):
        settings = dict(zip(grid.axes, values, strict=True))
        policy = {key: value for key, value in settings.items() if not key.startswith(DECODE_AXIS)}
        decode = {
            key.removeprefix(DECODE_AXIS): value
            for key, value in settings.items()
            if key.startswith(DECODE_AXIS)
        }
        configurations.append(
            ConfigurationSpec(
                name=_named(grid.name, policy | decode),
                model=grid.model,
                policy=grid.policy | policy,
                decode=joined(grid.decode, decode),
            )
        )
    return configurations


def _named(template: str, fields: dict[str, Any]) -> str:
    try:
        for _, field, form, _ in Formatter().parse(template):
            if field is not None and (field not in fields or not FIELD_FORM.fullmatch(form or "")):
                raise ValueError(f"{{{field}{':' if form else ''}{shown(form)[1:-1]}}}")
        # A table, such as that of a rule, stands in a name by its values.
        shown_as = {
            field: "_".join(map(str, value.values())) if isinstance(value, dict) else value
            for field, value in fields.items()
        }
        return template.format(**shown_as)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnmaskError(
            f"The grid's name {shown(template)} cannot be filled in ({error}); it may use {', '.join(fields)}."
        ) from None


def recipe_file(path: Path) -> Path:
    """The file of a recipe that is given as a file or as its folder."""
    file = path / RECIPE_FILE if path.is_dir() else path
    if not file.is_file():
        raise UnmaskError(f"{file}: no such recipe; make one with `unmask new NAME`.")
    return file


def recipe_text(file: Path) -> str:
    """The text of a recipe's file."""
    try:
        return read_plain_text(file)
    except OSError as error:
        raise UnmaskError(f"{file} cannot be read ({error.strerror}); a recipe is a text file.") from None
    except ValueError:
        raise UnmaskError(f"{file} is no UTF-8 text; save it as UTF-8.") from None


def read_recipe(path: Path) -> Recipe:
    """Read and check a recipe; errors name the file and the key."""
    file = recipe_file(path)
    return parse_recipe(recipe_text(file), str(file), file.resolve().parent)


def parse_recipe(text: str, what: str, folder: Path | None = None) -> Recipe:
    """Make a recipe of its text; `what` names it in errors, and `folder` is where traces of its policies lie."""
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise UnmaskError(f"{what} is no valid TOML: {error}.") from None
    recipe = build_named(Recipe, values, what)
    return recipe if folder is None else _located(recipe, folder)


def _located(recipe: Recipe, folder: Path) -> Recipe:
    """The same recipe with the traces that its policies name found beside it."""

    def located(policy: dict[str, Any]) -> dict[str, Any]:
        placed = {key: located(value) if isinstance(value, dict) else value for key, value in policy.items()}
        if isinstance(trace := placed.get("calibration"), str):
            placed["calibration"] = str(folder / Path(trace).expanduser())
        return placed

    replace = msgspec.structs.replace
    return replace(
        recipe,
        grid=tuple(replace(grid, policy=located(grid.policy)) for grid in recipe.grid),
        configurations=tuple(
            replace(single, policy=located(single.policy)) for single in recipe.configurations
        ),
    )
