"""The interpreter's collector of cycles goes through new objects once while a program is made, and leaves others alone.

What is made on the way, nodes, expressions, kernels and instructions, mostly lives until the program is there, and is
made faster than anything else in the process. So the collector would go through all objects that there are, the
program's and all others, again and again, and find nothing.

>>> with young_collections_only():
...     gc.get_threshold()[1:] == (NEVER, NEVER)
True
>>> NEVER in gc.get_threshold()
False
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NEVER", "young_collections_only"]

NEVER = 2**31 - 1
"""How many collections of younger objects come before one of older ones: more than there will be."""


@contextmanager
def young_collections_only() -> Iterator[None]:
    """Only new objects are looked at inside, in any thread; where threads overlap, until the first of them leaves."""
    youngest, *older = before = gc.get_threshold()
    try:
        if NEVER not in older:
            gc.set_threshold(youngest, NEVER, NEVER)
        yield
    finally:
        if NEVER not in older:
            gc.set_threshold(*before)
