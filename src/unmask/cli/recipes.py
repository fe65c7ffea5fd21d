"""A recipe as it lies on disk: its file, its lock, and the folders it names, for the verbs that work with recipes."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from unmask.errors import UnmaskError
from unmask.model.hub import EMBEDDED, HUB_ID
from unmask.spec.lock import Lock, read_lock
from unmask.spec.recipe import Recipe, SuccessSpec, read_recipe, recipe_file
from unmask.store.redaction import redacted

EMBEDDED_TASKS = "unmask_"
"""Tasks that ship with the package begin so."""


@dataclass(frozen=True, slots=True)
class OpenRecipe:
    """A recipe and where it was found."""

    file: Path
    recipe: Recipe

    @property
    def lock_file(self) -> Path:
        """Its lock lies beside it."""
        return self.file.with_suffix(".lock")

    @property
    def checkpoint(self) -> str:
        """A name, or an absolute path where the recipe names a folder."""
        name = self.recipe.model.checkpoint
        folder = self.file.parent / Path(name).expanduser()
        return str(folder.resolve()) if name != EMBEDDED and folder.exists() else name

    @property
    def data(self) -> Path | None:
        """The folder of local data."""
        data = self.recipe.evaluation.data
        return (self.file.parent / Path(data).expanduser()).resolve() if data else None

    @property
    def needs_network(self) -> bool:
        """Whether preparing it may download anything."""
        hub_model = self.checkpoint != EMBEDDED and HUB_ID.fullmatch(self.checkpoint) is not None
        hub_tasks = any(not task.name.startswith(EMBEDDED_TASKS) for task in self.recipe.tasks)
        return hub_model or (hub_tasks and self.data is None)

    def lock(self) -> Lock:
        """The lock; one that is missing or older than the recipe is made where nothing need be downloaded."""
        if not self._is_fresh():
            if self.needs_network:
                raise UnmaskError(
                    f"{self.lock_file} is missing or does not cover the recipe; fetch and lock its checkpoint and "
                    f"data with `unmask prepare {self.file.parent}`."
                )
            self._prepare()
        return read_lock(self.lock_file)

    def _is_fresh(self) -> bool:
        if not self.lock_file.exists():
            return False
        lock = read_lock(self.lock_file)
        return lock.model == self.checkpoint and all(task.name in lock.members for task in self.recipe.tasks)

    def _prepare(self) -> None:
        """In a process of its own: planning stays free of torch and lm-eval."""
        click.echo("Locking checkpoint and data ...", err=True)
        command = [sys.executable, "-m", "unmask", "prepare", str(self.file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise UnmaskError(lines[-1].removeprefix("Error: ") if lines else "The lock could not be made.")


def open_recipe(path: Path) -> OpenRecipe:
    """Read a recipe, given as its file or its folder; its text is kept on record, so it may hold no token."""
    file, recipe = recipe_file(path).resolve(), read_recipe(path)
    text = file.read_text(encoding="utf-8")
    if redacted(text) != text:
        raise UnmaskError(
            f"{file} holds what looks like a token; take it out: HF_TOKEN is handed over through the environment."
        )
    return OpenRecipe(file, recipe)


def criteria_of(path: Path | None) -> SuccessSpec | None:
    """The criteria of a recipe by which imports are judged; None where no recipe is named."""
    if path is None:
        return None
    success = read_recipe(path).success
    if success is None:
        raise UnmaskError(f"{path} has no [success] table, so it holds no criteria.")
    return success
