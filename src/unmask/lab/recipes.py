"""A recipe as it lies on disk: its text, read once, its lock, the folders it names; and the folder of a new one.

Knows files and names, those of the demo's recipe among them, which is part of the package. What a recipe expands to is
in spec, what of it is still to do in planning.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import members_of
from unmask.model.hub import HUB_ID, known_config
from unmask.spec.lock import Lock, LockedCheckpoint, Outline, read_lock
from unmask.spec.recipe import (
    EMBEDDED,
    NAME,
    RECIPE_FILE,
    ModelSpec,
    Recipe,
    SuccessSpec,
    parse_recipe,
    read_recipe,
    recipe_file,
    recipe_text,
)
from unmask.store.files import make_folder, write_atomically
from unmask.store.redaction import redacted

EMBEDDED_TASKS = "unmask_"
"""Tasks that ship with the package begin so."""
TEMPLATES = Path(__file__).parents[1] / "assets" / "experiment"
DEMO = Path(__file__).parents[1] / "assets" / "demo"


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence for whoever watches."""

    text: str
    """The sentence."""


Notify = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class OpenRecipe:
    """A recipe, its text and where it was found."""

    file: Path
    text: str
    recipe: Recipe

    @property
    def lock_file(self) -> Path:
        """Its lock lies beside it."""
        return self.file.with_suffix(".lock")

    def checkpoint_of(self, model: ModelSpec) -> str:
        """Where a checkpoint is: a name, or an absolute path where the recipe names a folder."""
        name = model.checkpoint
        folder = self.file.parent / Path(name).expanduser()
        return str(folder.resolve()) if name not in EMBEDDED and folder.exists() else name

    @property
    def data(self) -> Path | None:
        """The folder of local data."""
        data = self.recipe.evaluation.data
        return (self.file.parent / Path(data).expanduser()).resolve() if data else None

    @property
    def needs_network(self) -> bool:
        """Whether preparing it may download anything."""
        places = map(self.checkpoint_of, self.recipe.models.values())
        hub_model = any(place not in EMBEDDED and HUB_ID.fullmatch(place) is not None for place in places)
        hub_tasks = any(not task.name.startswith(EMBEDDED_TASKS) for task in self.recipe.tasks)
        return hub_model or (hub_tasks and self.data is None)

    def lock(self, notify: Notify | None = None) -> Lock:
        """The lock; one that is missing or does not cover the recipe is made where nothing need be downloaded."""
        if lock := self.present_lock():
            return lock
        if self.needs_network:
            raise UnmaskError(
                f"{self.lock_file} is missing or does not cover the recipe; fetch and lock its checkpoint and "
                f"data with `unmask prepare {self.file.parent}`."
            )
        if notify is not None:
            notify(Message("Locking checkpoint and data ..."))
        return read_lock(prepare(self.file))

    def present_lock(self) -> Lock | None:
        """The lock that lies beside the recipe; None where there is none, or it does not cover the recipe."""
        if not self.lock_file.exists():
            return None
        lock = read_lock(self.lock_file)
        own, models = self.recipe.model, self.recipe.models
        locked = {own.name: lock.model} | {name: each.model for name, each in lock.others.items()}
        same_models = all(locked.get(name) == self.checkpoint_of(model) for name, model in models.items())
        same_revision = own.revision in (lock.asked_revision, lock.revision)
        covers = all(task.name in lock.members for task in self.recipe.tasks)
        return lock if same_models and same_revision and covers else None

    def outline(self) -> Outline | None:
        """What stands in for the lock in a plan: the checkpoint's config and published numbers of rows, where known."""
        from unmask.evaluation.task_files import check_names

        names = check_names(task.name for task in self.recipe.tasks)
        members = {name: members_of(name) for name in names}
        sizes = {source.name: source.published_rows for name in names for source in members[name]}
        known = {task: rows for task, rows in sizes.items() if rows is not None}
        checkpoints = {name: self._outlined(model) for name, model in self.recipe.models.items()}
        present = {name: checkpoint for name, checkpoint in checkpoints.items() if checkpoint is not None}
        if len(present) < len(checkpoints) or len(known) < len(sizes):
            return None
        tasks = {name: tuple(source.name for source in sources) for name, sources in members.items()}
        return Outline.of(present, tasks, known)

    def _outlined(self, model: ModelSpec) -> LockedCheckpoint | None:
        """What is known of a checkpoint that is not here."""
        place = self.checkpoint_of(model)
        config = known_config(place, model.revision)
        if config is None:
            return None
        return LockedCheckpoint(
            model=place,
            shape=asdict(config.shape),
            block_size=config.block_size,
            family=config.family.name,
        )


def open_recipe(path: str | Path) -> OpenRecipe:
    """Read a recipe, given as its file or its folder; its text is kept on record, so it may hold no token."""
    file = recipe_file(Path(path))
    text = recipe_text(file)
    recipe = parse_recipe(text, str(file), file.resolve().parent)
    file = file.resolve()
    if redacted(text) != text:
        raise UnmaskError(
            f"{file} holds what looks like a secret, and its text is kept on record; take it out, or let an "
            "environment variable hold it."
        )
    return OpenRecipe(file, text, recipe)


def read_criteria(path: str | Path | None) -> SuccessSpec | None:
    """The criteria of a recipe by which imports are judged; None where no recipe is named."""
    if path is None:
        return None
    success = read_recipe(Path(path)).success
    if success is None:
        raise UnmaskError(f"{path} has no [success] table, so it holds no criteria.")
    return success


def prepare(recipe: str | Path) -> Path:
    """Fetch the checkpoint and the data of a recipe, and lock their hashes; gives the file of the lock.

    It happens in a process of its own, which alone loads lm-eval.

        >>> lab.prepare("recipes/05_mine")                        # doctest: +SKIP
        PosixPath('/home/me/recipes/05_mine/recipe.lock')
    """
    file = recipe_file(Path(recipe)).resolve()
    command = [sys.executable, "-m", "unmask", "prepare", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UnmaskError(lines[-1].removeprefix("Error: ") if lines else "The lock could not be made.")
    return file.with_suffix(".lock")


def new(name: str, folder: str | Path = "recipes") -> Path:
    """Make a folder for an experiment with recipe.toml, proposal.md and log.md; gives the recipe's file.

    The recipe runs as it is, on the embedded model, so that it can be changed step by step.

        >>> lab.new("05_mine")                                    # doctest: +SKIP
        PosixPath('recipes/05_mine/recipe.toml')
    """
    if not NAME.fullmatch(name):
        raise UnmaskError(
            f"{name!r} is no name for an experiment; use letters, digits, dots, dashes and underscores."
        )
    place = Path(folder) / name
    if place.exists():
        raise UnmaskError(f"{place} is there already; choose another name.")
    place.mkdir(parents=True)
    for template in sorted(TEMPLATES.iterdir()):
        text = template.read_text(encoding="utf-8")
        filled = text.replace("@NAME@", name).replace("@DATE@", date.today().isoformat())
        write_atomically(place / template.name, filled)
    return place / RECIPE_FILE


def demo(folder: str | Path = "unmask-demo") -> Path:
    """Write the recipe of the demo into a folder, unless it is there already; gives the recipe's file.

    The recipe runs on the embedded model, without a network, in a few minutes.

        >>> lab.run(lab.demo(), slots=2, store="unmask-demo/results")         # doctest: +SKIP
    """
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise UnmaskError(f"{place} is no folder; choose another name for the demo's.")
    text = (DEMO / RECIPE_FILE).read_text(encoding="utf-8")
    file = place / RECIPE_FILE
    if not file.exists():
        make_folder(place)
        write_atomically(file, text)
    elif recipe_text(file) != text:
        raise UnmaskError(
            f"{file} is not the demo of this version; name another folder, or run it with `unmask run {place}`."
        )
    return file
