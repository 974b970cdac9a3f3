"""Which kernels are products."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.compiler.schedules.contraction import contractions, find_contraction
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store, unlikely

FLOAT, BOOL = np.dtype(np.float32), np.dtype(np.bool_)


@pytest.mark.parametrize("rare", [False, True])
def test_a_sum_that_a_rare_case_alone_needs_is_no_product(rare):
    i, j, k = Axis("i", 20), Axis("j", 32), Axis("k", 40)
    a, b, y, z = (
        Buffer(name, FLOAT, shape) for name, shape in zip("abyz", [(20, 40), (40, 32), *[(20, 32)] * 2])
    )
    flag = Load(Buffer("flag", BOOL, (20,)), Affine.of(i))
    place = Affine.of(i) * 32 + Affine.of(j)
    factors = Load(a, Affine.of(i) * 40 + Affine.of(k)), Load(b, Affine.of(k) * 32 + Affine.of(j))
    product = Reduce("add", (k,), Apply("multiply", factors, FLOAT), FLOAT)
    chosen = Apply("where", (unlikely(flag) if rare else flag, product, Load(y, place)), FLOAT)
    kernel = Kernel((i, j), (Store(z, place, chosen),))
    assert contractions(kernel) == ([] if rare else [product])
    assert (find_contraction(kernel) is None) == rare
