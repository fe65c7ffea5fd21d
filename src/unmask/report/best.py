"""The configuration one would take: faster than the control, surely within the budget of accuracy."""

from unmask.analysis.frontier import Point, best_under
from unmask.report.document import TaskPart


def best_point(task: TaskPart) -> Point | None:
    """The fastest timed configuration that stays within the budget; None where the control itself is the best."""
    baseline = {line.name for line in task.lines if line.is_control or line.same_as_control}
    others = [point for point in task.by_speed if point.configuration not in baseline and point.gain > 1]
    return best_under([point for point in others if point.loss is not None], task.budget)
