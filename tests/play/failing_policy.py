"""A policy that fails at its third question."""


class Failing:
    """Fails."""

    def __init__(self) -> None:
        self.left = 2

    def plan(self, _view: object) -> object:
        self.left -= 1
        if not self.left:
            raise ValueError("nothing left")
        from unmask.engine.step_plan import FULL

        return FULL
