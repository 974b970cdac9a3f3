"""Which kernels are products, and in which order their tiles are made."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.compiler.schedules.contraction import contractions, find_contraction
from pullback.compiler.schedules.contraction_schedules import TiledContraction, schedule_contraction
from pullback.compiler.target import Processor
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store, load_at, unlikely

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
    assert [*contractions(kernel)] == ([] if rare else [product])
    assert (find_contraction(kernel) is None) == rare


@pytest.mark.parametrize("large", ["left", "right"])
@pytest.mark.parametrize(
    ("second_cache", "order"), [(1 << 20, "bijm"), (60_000, "bijm"), (51_200, "bjim"), (40_000, "bjim")]
)
def test_parts_of_an_operand_stay_in_the_second_cache(second_cache, order, large):
    """Of 25,600 bytes for each turn of the first axis, all rows use one part before the next, unless they stay there.

    What is half of the cache does not.
    """
    b, i, j, m, k = axes = [Axis(name, extent) for name, extent in zip("bijmk", (2, 3, 4, 12, 40))]
    over = Axis("r", 40)

    def load(name, along):
        shape = tuple(axis.extent for axis in along)
        return load_at(Buffer(name, FLOAT, shape), [*map(Affine.of, along)])

    if large == "right":
        factors = load("x", (b, i, j, m, over)), load("w", (b, j, over, k))
    else:
        m = axes[3] = Axis("m", 40)
        factors = load("x", (b, j, over, m)), load("w", (b, i, over, k))
    product = Reduce("add", (over,), Apply("multiply", factors, FLOAT), FLOAT)
    made = load("y", axes)
    kernel = Kernel(tuple(axes), (Store(made.buffer, made.offset, product),))
    target = Processor("generic", "", "x86_64", 32, 16, l2_bytes=second_cache, tile_bytes=16_384)
    assert loops_of(kernel, target).replace("k", "") == order


@pytest.mark.parametrize(("side", "order"), [(88, "bohw"), (89, "bhwo")])
def test_channels_go_round_the_lines_of_an_image_that_the_nearest_cache_holds(side, order):
    """Windows of 3 x 3 read 90 x 90 elements, 32,400 bytes, or 91 x 91; they overlap, and each counts once."""
    b, o, h, w, *window = (Axis(name, n) for name, n in zip("bohwrs", (2, 64, side, side, 3, 3)))
    lines, columns = (Affine.of(axis) + Affine.of(tap) for axis, tap in zip((h, w), window))
    image = load_at(Buffer("x", FLOAT, (2, side + 2, side + 2)), [Affine.of(b), lines, columns])
    weight = load_at(Buffer("w", FLOAT, (64, 3, 3)), [*map(Affine.of, (o, *window))])
    product = Reduce("add", tuple(window), Apply("multiply", (image, weight), FLOAT), FLOAT)
    made = load_at(Buffer("y", FLOAT, (2, 64, side, side)), [*map(Affine.of, (b, o, h, w))])
    kernel = Kernel((b, o, h, w), (Store(made.buffer, made.offset, product),))
    assert loops_of(kernel, Processor("generic", "", "x86_64", 32, 16)) == order


def loops_of(kernel: Kernel, target: Processor) -> str:
    """The axes of the loops over tiles, the outermost first."""
    schedule = schedule_contraction(kernel, 8, target)
    assert isinstance(schedule, TiledContraction)
    return "".join(level.axis.name for level in schedule.nest.levels if level.strips)
