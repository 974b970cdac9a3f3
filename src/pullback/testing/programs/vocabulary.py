"""Random steps of NumPy's wider vocabulary: running totals, order, missing values, what assembles and bends arrays."""

from __future__ import annotations

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker, Rejected

__all__: list[str] = []


@family(5)
def running(m: Maker) -> str:
    """A total along an axis, of neighbours in memory and of neighbours far apart."""
    x = m.number(1)
    axis = m.axis(x)
    texts = (
        *(f"np.cumsum({{0}}, axis={axis})", f"np.cumsum({{0}}, axis={axis})", f"{{0}}.cumsum({axis})"),
        *(f"np.cumprod({{0}} * 0.5, axis={axis})", f"np.nancumsum({{0}}, axis={axis})"),
        *(f"np.maximum.accumulate({{0}}, axis={axis})", f"np.minimum.accumulate({{0}}, axis={axis})"),
        *(f"np.add.accumulate({{0}}, axis={axis})", f"np.subtract.accumulate({{0}}, axis={axis})"),
        *(f"np.cumulative_sum({{0}}, axis={axis}, include_initial=True)", "np.cumsum({0})"),
    )
    return m.step(m.pick(texts), x)


@family(2)
def differences(m: Maker) -> str:
    x = m.floats(1)
    axis = m.axis(x)
    texts = (
        f"np.gradient({{0}}, axis={axis})",
        f"np.gradient({{0}}, 0.5, axis={axis}, edge_order=2)",
        f"np.trapezoid({{0}}, dx=0.5, axis={axis})",
        "np.ediff1d({0}, to_begin=1)",
        f"np.diff({{0}}, axis={axis}, prepend=0)",
        f"np.diff({{0}}, n=2, axis={axis})",
    )
    return m.step(m.pick(texts), x)


@family(5)
def sorted_rows(m: Maker) -> str:
    """Sorted elements, the order of them, or what another array has in that order."""
    x = m.number(1)
    axis = m.axis(x)
    if m.chance(0.4):
        return m.step(f"np.sort({{0}}, axis={axis}, kind='stable')", x)
    if m.chance(0.25):
        count = m.pick((1, 2, 3, m.shape(x)[axis]))
        return m.step(f"pb.top_k({{0}}, {min(count, m.shape(x)[axis])}, {axis})[{m.pick((0, 1))}]", x)
    order = m.step(f"np.argsort({{0}}, axis={axis}, kind='stable')", x)
    if m.chance(0.3):
        return order
    if m.chance(0.3):
        return m.step(f"np.argsort({{0}}, axis={axis}, kind='stable')", order)  # ranks
    other = m.any(lambda name: m.shape(name) == m.shape(x) and m.dtype(name).kind != "b")
    return m.step(f"np.take_along_axis({{0}}, {{1}}, {axis})", other, order)


@family(2.5)
def quantiles(m: Maker) -> str:
    x = m.floats(1)
    axis, keep = m.axes(x), m.pick(("", ", keepdims=True"))
    share = m.pick((0.5, 0.25, 0.0, 1.0, 0.3))
    method = m.pick(("linear", "linear", "lower", "higher", "nearest", "midpoint", "hazen"))
    texts = (
        f"np.median({{0}}, axis={axis}{keep})",
        f"np.quantile({{0}}, {share}, axis={axis}, method='{method}'{keep})",
        f"np.percentile({{0}}, [{100 * share}, 50], axis={axis})",
        f"np.nanmedian({{0}}, axis={axis}{keep})",
    )
    return m.step(m.pick(texts), x)


@family(2.5)
def looked_up(m: Maker) -> str:
    """Places in a sorted table, and lines between its points."""
    table = m.any(lambda name: m.dtype(name).kind == "f" and m.rank(name) == 1 and m.shape(name)[0] > 1)
    x = m.any(lambda name: m.dtype(name) == m.dtype(table))
    rising = m.step("np.sort({0}, kind='stable')", table)
    texts = (
        "np.searchsorted({0}, {1})",
        "np.searchsorted({0}, {1}, side='right')",
        "np.digitize({1}, {0})",
        "np.histogram({1}, bins=3, range=(-2, 2))[0]",
        "np.isin({1}, {0})",
    )
    return m.step(m.pick(texts), rising, x)


@family(1)
def interpolated(m: Maker) -> str:
    x = m.floats()
    count = m.pick((2, 3, 7))
    values = m.input((count,))
    places = [round(0.7 * k - 1.1, 1) for k in range(count)]
    return m.step(f"np.interp({{0}}, np.array({places}), {{1}})", x, values)


@family(2.5)
def missing(m: Maker) -> str:
    """Reductions that leave out what a mask has made NaN."""
    x = m.floats(1)
    holed = m.step(f"np.where({{0}} > {m.pick((0, 1, -1))}, np.nan, {{0}})", x)
    name = m.pick(("nansum", "nanmean", "nanprod", "nanmax", "nanmin", "nanvar", "nanstd"))
    keep = m.pick(("", ", keepdims=True"))
    return m.step(f"np.nan_to_num(np.{name}({{0}}, axis={m.axes(x)}{keep}))", holed)


@family(2.5)
def assembled(m: Maker) -> str:
    x = m.number(1)
    n, axis = m.shape(x)[-1], m.axis(x)
    texts = [
        f"np.insert({{0}}, {m.below(n + 1)}, 2, axis=-1)",
        f"np.append({{0}}, {{0}}, axis={axis})",
        "np.resize({0}, (3, 5))",
        "np.atleast_3d({0})",
        "np.kron({0}, np.array([1, 2], {0}.dtype))",
        f"np.pad({{0}}, {m.pick((1, 2))}, mode='{m.pick(('edge', 'reflect', 'symmetric', 'wrap', 'maximum'))}')",
        "np.select([{0} > 1, {0} < 0], [{0}, -{0}], 3)",
        "np.piecewise({0}, [{0} < 0], [lambda x: -x, lambda x: x * x])",
        "np.dstack([{0}, {0}])",
        "np.ravel({0}, order='F')",
        "np.add.reduceat({0}, [0], axis=-1)",
    ]
    if n:
        texts.append(f"np.delete({{0}}, {m.below(n)}, axis=-1)")
    if m.rank(x) > 1:
        texts += ["np.rot90({0})", "np.rot90({0}, -1)", "np.rollaxis({0}, 1)"]
    if m.rank(x) == 1:
        texts += ["np.vander({0}, 3)", "np.diagflat({0})", "np.convolve({0}, np.array([1, 2, 1], {0}.dtype))"]
        texts += ["np.correlate({0}, np.array([1, 2], {0}.dtype), mode='same')", "np.polyval({0}[:4], {0})"]
    if n == 3:
        texts.append("np.cross({0}, np.array([1, 2, 3], {0}.dtype))")
    return m.step(m.pick(texts), x)


@family(2)
def floats_by_bits(m: Maker) -> str:
    x = m.floats()
    texts = (
        *("np.signbit({0})", "np.heaviside({0}, 0.5)", "np.modf({0})[0]", "np.modf({0})[1]"),
        *("np.ldexp({0}, 3)", "np.frexp({0})[0]", "np.frexp({0})[1]", "np.sinc({0})", "np.fmod({0}, 1.5)"),
        *("np.divmod({0}, 1.5)[0]", "np.isclose({0}, 1.0)", "np.copysign({0}, -1.0)", "np.fabs({0})"),
    )
    if m.chance(0.3):
        return m.step("np.copysign({0}, {1} + 0.25)", x, m.partner(x, m.dtype(x)))
    return m.step(m.pick(texts), x)


@family(1)
def counted(m: Maker) -> str:
    """Counts of small numbers, with weights or without."""
    numbers = m.input((m.pick((1, 5, 17, 100)),), "int64", 0, 4)
    if m.chance():
        return m.step("np.bincount({0}, minlength=4)", numbers)
    try:
        weights = m.any(lambda name: m.shape(name) == m.shape(numbers) and m.dtype(name).kind == "f")
    except Rejected:
        weights = m.input(m.shape(numbers))
    return m.step("np.bincount({0}, {1}, minlength=4)", numbers, weights)
