"""Rows of a few elements as a vector for each column, and back: the shuffles that this takes.

Vectors along the rows of an array want element ``c`` of each row, and these lie ``step`` elements apart:

    rows of three      a0 b0 c0 a1 | b1 c1 a2 b2 | c2 a3 b3 c3      ⇄      a0 a1 a2 a3 | b0 b1 b2 b3 | c0 c1 c2 c3

Where the step is even, every second element is taken out of each pair of vectors, and what is left has half the step.
Where it is odd, the elements of a column stand at different places of their vectors. So they are selected as they
stand, in a selection for each bit of how many vectors the element at one place lies before that at another, and put in
order by the last one. What columns have in common is computed once, and nothing that none of them needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

__all__ = ["mixed", "separated"]

Mix = Callable[[str, str, Sequence[int]], str]
"""A vector of the chosen lanes of two, those of the second counted after those of the first."""


def separated(step: int, lanes: int, source: Callable[[int], str], mix: Mix) -> Callable[[int], str]:
    """The columns of rows of ``step`` elements, of which ``source`` gives the vectors; each when it is asked for.

    ``lanes`` is a power of two.

    >>> words = ["abcd", "efgh", "ijkl"]
    >>> def mix(a, b, lanes):
    ...     return "".join((a + b)[lane] for lane in lanes)
    >>> column = separated(3, 4, words.__getitem__, mix)
    >>> [column(c) for c in range(3)]
    ['adgj', 'behk', 'cfil']
    """
    if step == 1:
        return source
    if step % 2:
        return _separated_by_odd(step, lanes, source, mix)

    @cache
    def half(parity: int, k: int) -> str:
        return mix(source(2 * k), source(2 * k + 1), range(parity, 2 * lanes, 2))

    even = separated(step // 2, lanes, lambda k: half(0, k), mix)
    odd = separated(step // 2, lanes, lambda k: half(1, k), mix)
    return lambda c: (odd if c % 2 else even)(c // 2)


def _separated_by_odd(step: int, lanes: int, source: Callable[[int], str], mix: Mix) -> Callable[[int], str]:
    behind = _vectors_behind(step, lanes)

    @cache
    def selected(last: int, bits: int) -> str:
        """At each place an element of vector ``last``, or of as many before it as these bits of ``behind`` say."""
        if not bits:
            return source(last)
        half = 1 << (bits - 1)
        places = [place + lanes * bool(behind[place] & half) for place in range(lanes)]
        return mix(selected(last, bits - 1), selected((last - half) % step, bits - 1), places)

    @cache
    def column(c: int) -> str:
        last, bits = c * pow(lanes, -1, step) % step, (step - 1).bit_length()
        half = 1 << (bits - 1)
        places = [(c + lane * step) % lanes for lane in range(lanes)]
        picks = [place + lanes * bool(behind[place] & half) for place in places]
        return mix(selected(last, bits - 1), selected((last - half) % step, bits - 1), picks)

    return column


def _vectors_behind(step: int, lanes: int) -> list[int]:
    """For each place of a vector, how many vectors before that of place 0 its element of a column lies, in a circle."""
    unit = pow(lanes, -1, step)
    return [place * unit % step for place in range(lanes)]


def mixed(columns: Sequence[str], lanes: int, mix: Mix) -> list[str]:
    """The vectors of the rows that have these columns: what ``separated`` takes apart.

    >>> def mix(a, b, lanes):
    ...     return "".join((a + b)[lane] for lane in lanes)
    >>> mixed(["adgj", "behk", "cfil"], 4, mix)
    ['abcd', 'efgh', 'ijkl']
    """
    step = len(columns)
    if step == 1:
        return list(columns)
    if step % 2:
        return _mixed_by_odd(columns, lanes, mix)
    even, odd = mixed(columns[::2], lanes, mix), mixed(columns[1::2], lanes, mix)
    half = lanes // 2
    picks = [[k + other for k in range(start, start + half) for other in (0, lanes)] for start in (0, half)]
    return [mix(first, second, places) for first, second in zip(even, odd) for places in picks]


def _mixed_by_odd(columns: Sequence[str], lanes: int, mix: Mix) -> list[str]:
    step = len(columns)
    behind = _vectors_behind(step, lanes)
    order = [{(c + lane * step) % lanes: lane for lane in range(lanes)} for c in range(step)]
    first = [vector * lanes % step for vector in range(step)]
    """The column of the first element of each vector."""

    def joined(c: int, d: int) -> str:
        picks = [lanes + order[d][p] if behind[p] & 1 else order[c][p] for p in range(lanes)]
        return mix(columns[c], columns[d], picks)

    current = [joined(c, d) for c, d in zip(first, first[1:] + first[:1])]
    for bit in range(1, (step - 1).bit_length()):
        half = 1 << bit
        places = [place + lanes * bool(behind[place] & half) for place in range(lanes)]
        current = [mix(one, current[(k + half) % step], places) for k, one in enumerate(current)]
    return current
