"""Random steps on images: windows that overlap or see padding, short rows, channels and rows by themselves."""

from __future__ import annotations

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker

__all__: list[str] = []


@family(1)
def overlapping_pool(m: Maker) -> str:
    """The largest or the mean of windows that share elements, some of them with padding, along one axis to three."""
    rank = m.pick((1, 2, 2, 3))
    sizes = tuple(m.pick((4, 5, 7, 9)) for _ in range(rank))
    x = m.input((m.pick((1, 2)), m.pick((1, 3)), *sizes))
    size = m.pick((2, 3, 3, 4))
    x = m.step(m.pick(("{0}", "np.maximum({0}, 0)", "np.round({0})")), x)  # rounded: some are equal
    how = f"{size}, {m.pick(range(1, size))}, {m.pick((0, size // 2))}"
    return m.step(f"pb.nn.{m.pick(('max_pool', 'max_pool', 'avg_pool'))}({{0}}, {how})", x)


@family(1)
def short_rows(m: Maker) -> str:
    """A convolution, or a transposed one, of small images with channels enough for their windows to be unfolded."""
    rank = m.pick((2, 2, 3))
    image = tuple(m.pick((3, 4, 5, 6)) for _ in range(rank))
    channels, outputs, window = m.pick((3, 5, 8)), m.pick((6, 16, 20)), m.pick((1, 2, 3))
    x = m.input((m.pick((1, 2, 4)), channels, *image))
    how = f"{m.pick((1, 2, 2, 3))}, {m.pick((0, window // 2))}"
    if m.chance(0.4):
        weight = m.input((channels, outputs, *(window,) * rank))
        made = m.step(f"pb.nn.conv_transpose({{0}}, {{1}}, {how})", x, weight)
    else:
        made = m.step(f"pb.nn.conv({{0}}, {{1}}, {how})", x, m.input((outputs, channels, *(window,) * rank)))
    if m.chance(0.5):
        return made
    bias = m.input((outputs, *(1,) * rank))
    return m.step(m.pick(("{0} + {1}", "np.maximum({0} + {1}, 0)", "{0} * {1} + {0} ** 2")), made, bias)


@family(1)
def depthwise(m: Maker) -> str:
    """Each channel by a window of its own, of images that are large enough to write several rows at once."""
    channels, window = m.pick((3, 4)), m.pick(((3, 3), (2, 3), (5, 2), (6, 5)))
    image, how = (m.pick((9, 12, 17)), m.pick((12, 17))), ""
    if m.chance(0.3):
        channels, how = m.pick((8, 17)), ', channels="last"'
    x = m.input((m.pick((1, 2)), *((*image, channels) if how else (channels, *image))))
    weight = m.input((channels * m.pick((1, 1, 2)), 1, *window))
    how = f"{m.pick((1, 1, 2))}, {m.pick((0, 1))}, groups={channels}{how}"
    return m.step(f"pb.nn.conv({{0}}, {{1}}, {how})", x, weight)


@family(1)
def row_factors(m: Maker) -> str:
    """A reduction over short rows, each of which has a factor of its own."""
    rows, columns = m.pick((2, 3, 5, 7, 9)), m.pick((3, 4, 5, 6, 8, 9, 13, 17))
    x, factors = m.input((m.pick((1, 3, 6)), rows, columns)), m.input((m.pick((1, rows)), rows, 1))
    combined = m.pick(("{0} * {1}[0]", "{0} * np.sin({1}[0])", "np.maximum({0}, {1}[-1])", "{0} - {1}[-1]"))
    y = m.step(combined, x, factors)
    reduced = m.pick(
        ("{0}.sum((1, 2))", "np.max({0}, (1, 2))", "{0}.sum((0, 1))", "({0} * {0}).mean((1, 2))")
    )
    return m.step(reduced, y)
