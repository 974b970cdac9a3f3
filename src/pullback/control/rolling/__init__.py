"""Loops of Python, written out step by step in a graph, made loops of the graph where a trace ends."""

from pullback.control.rolling.rolling import rolled
from pullback.tracing.trace import at_end

__all__ = ["rolled"]

at_end(rolled)
