"""Programs planned as if caches held next to nothing: what happens to large arrays happens to small ones there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from pullback.compiler.target import Processor

__all__ = ["small_caches", "with_small_caches"]


def with_small_caches(processor: Processor) -> Processor:
    """``processor`` with small caches, next to which lines come and chunks are claimed in no time."""
    return replace(
        processor,
        l1_bytes=2048,
        l2_bytes=4096,
        l3_bytes=16384,
        tile_bytes=1024,
        private_bytes=64,
        known_bytes=256,
        near_line_cycles=1.0,
        far_line_cycles=1.0,
        exchange_line_cycles=1.0,
        exchange_cycles=1.0,
        exchange_steps=2,
        chunk_cycles=20.0,
    )


@contextmanager
def small_caches() -> Iterator[None]:
    """What is compiled meanwhile is planned ``with_small_caches``; the machine is the one that it is.

    >>> import numpy as np
    >>> import pullback as pb
    >>> with small_caches():
    ...     pb.jit(np.sin)(0.0)
    np.float64(0.0)
    """
    processor = with_small_caches(Processor.host())
    with mock.patch.object(Processor, "host", staticmethod(lambda: processor)):
        yield
