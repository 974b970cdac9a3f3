"""Programs compiled for another processor than this one, which it can run as well.

Where caches hold next to nothing, what happens to large arrays happens to small ones. Shorter vectors are those of most
machines: AVX2 has 32 bytes, NEON 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from pullback.compiler.target import Processor

__all__ = ["compiled_for", "with_cores", "with_small_caches", "with_vectors"]


def with_small_caches(processor: Processor) -> Processor:
    """``processor`` with small caches, next to which lines come, chunks are claimed and branches taken in no time."""
    return replace(
        processor,
        l1_bytes=2048,
        l2_bytes=4096,
        l3_bytes=16384,
        page_bytes=128,
        ways=2,
        streams=4,
        tile_bytes=1024,
        private_bytes=64,
        known_bytes=256,
        near_line_cycles=1.0,
        far_line_cycles=1.0,
        exchange_cycles=1.0,
        chunk_cycles=20.0,
        marking_cycles=0.0,
        mispredicted_cycles=0.0,
    )


def with_vectors(processor: Processor, vector_bytes: int) -> Processor:
    """``processor`` with vectors of ``vector_bytes`` at most."""
    return processor.limited(min(vector_bytes, processor.vector_bytes))


def with_cores(processor: Processor, cores: int) -> Processor:
    """``processor`` with so many cores, on all of which programs are to run, whatever is set."""
    return replace(processor, cores=cores, threads=cores)


@contextmanager
def compiled_for(processor: Processor) -> Iterator[None]:
    """What is compiled meanwhile is compiled for ``processor``; the machine is the one that it is.

    >>> import numpy as np
    >>> import pullback as pb
    >>> with compiled_for(with_small_caches(Processor.host())):
    ...     pb.jit(np.sin)(0.0)
    np.float64(0.0)
    """
    with mock.patch.object(Processor, "host", staticmethod(lambda: processor)):
        yield
