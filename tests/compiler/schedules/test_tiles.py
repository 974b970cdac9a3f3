"""Register tiles, and what threads share out."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.compiler.schedules.contraction import find_contraction
from pullback.compiler.schedules.tiles import choose_tile
from pullback.compiler.target import Processor
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store

FLOAT = np.dtype(np.float32)
SIXTEEN = Processor("generic", "+avx512f", "x86_64", vector_bytes=64, vector_registers=32)


def rows_of_tile(samples: int, transforms: int) -> int:
    """Of ``y[i, m, k] = sum of x[i, m, c] * w[m, c, k]``: how many of the ``samples`` are in a tile."""
    i, m, k, c = Axis("i", samples), Axis("m", transforms), Axis("k", 128), Axis("c", 256)
    x = Buffer("x", FLOAT, (samples, transforms, 256))
    w = Buffer("w", FLOAT, (transforms, 256, 128))
    y = Buffer("y", FLOAT, (samples, transforms, 128))
    left = Load(x, Affine.of(i) * transforms * 256 + Affine.of(m) * 256 + Affine.of(c))
    right = Load(w, Affine.of(m) * 256 * 128 + Affine.of(c) * 128 + Affine.of(k))
    product = Reduce("add", (c,), Apply("multiply", (left, right), FLOAT), FLOAT)
    place = Affine.of(i) * transforms * 128 + Affine.of(m) * 128 + Affine.of(k)
    found = find_contraction(Kernel((i, m, k), (Store(y, place, product),)))
    assert found is not None
    tile = choose_tile(found, 16, SIXTEEN)
    assert tile.row_axis is i
    return tile.rows


@pytest.mark.parametrize("transforms", [1, 2, 21, 63])
def test_eight_samples_are_shared_out_where_there_is_work_enough(transforms):
    """A tile of all eight would leave one thread everything; with little to do it is no loss, and reads less."""
    assert (rows_of_tile(8, transforms) < 8) == (transforms > 2)
