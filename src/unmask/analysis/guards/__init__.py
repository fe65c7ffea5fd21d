"""Guards: what makes a result invalid or doubtful, found by the program. One file a guard."""

from unmask.analysis.guards.finding import ORDER, About, Finding, Guard, Severity
from unmask.analysis.guards.registry import GUARDS, run_guards

__all__ = ["GUARDS", "ORDER", "About", "Finding", "Guard", "Severity", "run_guards"]
