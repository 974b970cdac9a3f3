"""``disable_jit``: compiled functions run as plain Python for a while, for a debugger or a print."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from pullback.tracing.trace import during_apart

__all__ = ["disable_jit", "is_anywhere", "is_here", "watched"]

_here = threading.local()
_lock = threading.Lock()
_everywhere = 0
_watched: WeakSet[Any] = WeakSet()


def watched(compiled: Any) -> None:
    """Have ``compiled.slow_path()`` called where it must look whether it is disabled, before each call."""
    with _lock:
        _watched.add(compiled)


def is_here() -> bool:
    """Whether this thread has disabled ``jit``."""
    return getattr(_here, "depth", 0) > 0


def is_anywhere() -> bool:
    """Whether some thread has, or calls must go through Python for another reason."""
    return _everywhere > 0


@contextmanager
def disable_jit() -> Iterator[None]:
    """Within this context, or a function that it decorates, compiled functions of this thread run uncompiled.

    A ``jit`` function calls its Python function on the arguments as they are: NumPy arrays, with which ``print``,
    ``if`` and debuggers work, and derivatives and batches are what they are outside ``jit``. Nothing is donated, so
    what is returned is new. ``run_steps``, and so the trainer, go on with compiled programs; bodies of ``scan`` and
    ``cond`` are traced as ever.

    >>> import numpy as np
    >>> import pullback as pb
    >>> @pb.jit
    ... def double(x):
    ...     print(type(x).__name__)
    ...     return 2 * x
    >>> float(double(1.5))
    TracedArray
    3.0
    >>> with disable_jit():
    ...     float(double(1.5))
    float
    3.0
    """
    with _through_python():
        _here.depth = getattr(_here, "depth", 0) + 1
        try:
            yield
        finally:
            _here.depth -= 1


@during_apart
@contextmanager
def _through_python() -> Iterator[None]:
    """A context in which each call of a compiled function goes through Python, in all threads."""
    global _everywhere
    with _lock:
        _everywhere += 1
        everyone = list(_watched)
    for compiled in everyone:
        compiled.slow_path()
    try:
        yield
    finally:
        with _lock:
            _everywhere -= 1
