"""The interpreter's collector of cycles leaves old objects alone while a program is made.

What is made on the way, nodes, expressions, kernels and instructions, mostly lives until the program is there, and is
made faster than anything else in the process. So the collector would go through all objects that there are, the
program's and all others, again and again, and find nothing.

>>> with young_collections_only():
...     gc.get_threshold()[2] == NEVER
True
>>> gc.get_threshold()[2] == NEVER
False
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NEVER", "young_collections_only"]

NEVER = 2**31 - 1
"""How many collections of younger objects come before one of all: more than there will be."""


@contextmanager
def young_collections_only() -> Iterator[None]:
    """No collection of all objects inside, in any thread; where threads overlap, until the first of them leaves."""
    youngest, middle, oldest = before = gc.get_threshold()
    try:
        if oldest != NEVER:
            gc.set_threshold(youngest, middle, NEVER)
        yield
    finally:
        if oldest != NEVER:
            gc.set_threshold(*before)
