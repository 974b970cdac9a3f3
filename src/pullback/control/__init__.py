"""Control flow in the graph: operations that hold graphs, and the functions by which users make them."""

from pullback.control import rolling  # noqa: F401  (has loops rolled up where traces end)
from pullback.control.associative import associative_scan
from pullback.control.branches import cond, switch
from pullback.control.checkpoint import checkpoint
from pullback.control.custom import custom_pullback, custom_pushforward
from pullback.control.host import pure_callback
from pullback.control.loops import fori_loop, map, scan, while_loop

__all__ = [
    "associative_scan",
    "checkpoint",
    "cond",
    "custom_pullback",
    "custom_pushforward",
    "fori_loop",
    "map",
    "pure_callback",
    "scan",
    "switch",
    "while_loop",
]
