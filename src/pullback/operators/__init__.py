"""The vocabulary of operators, one family a file; importing this package fills the table ``graph.OPERATORS``."""

from pullback.operators import arithmetic, elementwise, logic, reductions, transcendental

__all__ = ["arithmetic", "elementwise", "logic", "reductions", "transcendental"]
