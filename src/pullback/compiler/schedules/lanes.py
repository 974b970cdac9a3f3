"""How many lanes the vectors of a kernel have."""

from __future__ import annotations

from pullback.compiler.target import Processor
from pullback.loops import Kernel, Load, once

__all__ = ["filled", "lanes_of"]


def lanes_of(kernel: Kernel, target: Processor) -> int:
    """Lanes of a kernel's vectors: a register of its widest float, or of 32-bit elements where it has none."""
    return target.lanes(_widest(kernel))


def filled(extent: int, lanes: int) -> float:
    """The part of vectors along an axis that holds something."""
    return extent / (-(-extent // lanes) * lanes)


@once
def _widest(kernel: Kernel) -> int:
    """Bytes of the widest element of a kernel's vectors; what depends on no axis, as a learning rate, is none."""
    dtypes = [e.dtype for e in kernel.expressions() if e.axes]
    dtypes += [store.buffer.dtype for store in kernel.stores if store.inner or kernel.axes]
    sizes = [dtype.itemsize for dtype in dtypes if dtype.kind == "f"]
    if not sizes:
        sizes = [e.dtype.itemsize for e in kernel.expressions() if isinstance(e, Load)]
    return max([4, *sizes])
