"""A recipe names its weights for good."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from checkpoints import small_recipe
from unmask.errors import UnmaskError
from unmask.model.synthetic import digest, draw_weights, write_checkpoint


def test_a_recipe_gives_the_same_weights_again() -> None:
    assert digest(draw_weights(small_recipe(seed=3))) == digest(draw_weights(small_recipe(seed=3)))
    assert digest(draw_weights(small_recipe(seed=3))) != digest(draw_weights(small_recipe(seed=4)))


def test_weights_that_are_not_the_recorded_ones_are_refused(tmp_path: Path) -> None:
    recipe = small_recipe()
    write_checkpoint(recipe | {"sha256": digest(draw_weights(recipe))}, tmp_path / "right")
    with pytest.raises(UnmaskError, match="differ from those it was recorded with"):
        write_checkpoint(recipe | {"sha256": "0" * 64}, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_an_unknown_kind_of_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="'other' is unknown"):
        write_checkpoint(small_recipe() | {"kind": "other"}, tmp_path)


def test_what_is_written_is_what_was_drawn(tmp_path: Path) -> None:
    recipe = small_recipe(seed=5)
    folder = write_checkpoint(recipe, tmp_path)
    assert digest(load_file(folder / "model.safetensors")) == digest(draw_weights(recipe))
