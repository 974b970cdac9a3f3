"""Which carries of a scan are kept for its backward pass, and which steps are run again from them.

    10,000 steps                      the backward pass keeps something of each
    100 segments of 100 steps         it keeps 100 carries, and something of each step of one segment at a time

A segment is a checkpoint: its pullback runs its steps once more, from the carry that it began with, and only then keeps
something of each. Segments may be cut into segments. With ``l`` levels, ``n₀·n₁·…·nₗ`` steps keep ``n₀ + … + nₗ₋₁``
carries and what belongs to ``nₗ`` steps, and every step is run ``l`` times more, at most. So one level takes memory in
proportion to the square root of the number of steps, and ``log₂`` levels to its logarithm.

All segments of a level are alike, so that a loop's code does not grow with them. What could be reached with segments
of different lengths is ``most_steps``.

Source: Griewank & Walther, *Algorithm 799: revolve*, ACM TOMS 26, 2000; Chen et al., *Training deep nets with sublinear
memory cost*, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise

from pullback.control.checkpoint import call
from pullback.control.scan import scan
from pullback.errors import ShapeError, TreeError
from pullback.graph import OPERATORS, Graph, Node, Source, Variable, current_source, results
from pullback.numpy.promotion import where_written
from pullback.numpy.shapes import joined
from pullback.operators.shapes import reshape

__all__ = [
    "Checkpoint",
    "Found",
    "Levels",
    "kept_carries",
    "levels_of",
    "most_levels",
    "most_steps",
    "segmented",
    "segments",
    "segments_here",
    "without_segments",
]

Checkpoint = None | str | int | Sequence[int]
"""What a user says: ``"sqrt"``, ``"recursive"``, a number of levels, or the lengths of segments, the longest first."""

LEAST_SHARE = 1 / 16
"""A carry counts as no less than this share of what a step keeps: segments would become too short to be worth it."""


def most_steps(carries: int, runs: int) -> int:
    r"""How many steps can be reversed with so many ``carries`` kept at a time, each run ``runs`` times at most.

    .. math:: \beta(c, r) = \binom{c + r}{c}

    The first carry counts among those kept, and the run in which a step keeps what its pullback needs is not counted:
    it is part of that. Here ``l`` levels are ``l + 1`` runs, and no more steps than ``most_steps(n₀ + … + nₗ, l + 1)``.

    Source: Griewank & Walther, *Algorithm 799: revolve*, proposition 1.

    >>> [most_steps(3, runs) for runs in range(4)]
    [1, 4, 10, 20]
    >>> most_steps(kept_carries(10_000, (100,)), 2)
    20301
    """
    return math.comb(carries + runs, carries)


def segments(trips: int, checkpoint: Checkpoint) -> tuple[int, ...]:
    """The lengths of segments, the longest first, of a scan of ``trips`` steps.

    >>> segments(10_000, "sqrt"), segments(1_000, 2), segments(8, "recursive"), segments(12, (6, 2))
    ((100,), (100, 10), (4, 2), (6, 2))
    """
    if checkpoint is None:
        return ()
    if isinstance(checkpoint, str):
        if checkpoint not in ("sqrt", "recursive"):
            raise TreeError(
                f'scan: there is no checkpoint={checkpoint!r}; give "sqrt", "recursive", a number of levels, or the '
                f"lengths of segments, such as (100, 10){where_written()}"
            )
        return levels_of(trips, 1 if checkpoint == "sqrt" else most_levels(trips))
    if isinstance(checkpoint, int):
        if isinstance(checkpoint, bool) or checkpoint < 0:
            raise TreeError(f"scan: checkpoint={checkpoint!r} is no number of levels{where_written()}")
        return levels_of(trips, min(checkpoint, most_levels(trips)))
    lengths = tuple(int(length) for length in checkpoint)
    if any(length < 1 for length in lengths) or any(b >= a for a, b in pairwise(lengths)):
        raise ShapeError(
            f"scan: checkpoint={checkpoint!r}; segments have at least one step, and each is cut into shorter "
            f"ones, such as (100, 10){where_written()}"
        )
    return lengths


def most_levels(trips: int) -> int:
    """The levels after which a segment has two steps."""
    return max(0, trips.bit_length() - 2)


def levels_of(trips: int, levels: int, share: float = 1.0) -> tuple[int, ...]:
    """The lengths of segments that take the least memory with so many ``levels``, the longest first.

    ``share`` is what a carry takes of what a step keeps. Lengths that leave no shorter segment over are preferred.

    >>> levels_of(10_000, 1), levels_of(10_000, 1, 1 / 16), levels_of(1_000, 2), levels_of(7, 1)
    ((100,), (25,), (100, 10), (3,))
    """
    lengths: list[int] = []
    whole = trips
    for left in range(levels, 0, -1):
        if whole < 2:
            break
        # Carries of each level and the steps of the shortest segments take as much: nₖ = λ / share, and λ.
        last = (whole * share**left) ** (1 / (left + 1))
        ideal = last * (last / share) ** (left - 1)
        even = max(1, round(last)) * max(2, round(last / share)) ** (left - 1)
        whole = _dividing(whole, ideal, left - 1, share) or max(1, min(even, whole // 2))
        lengths.append(whole)
    return tuple(lengths)


def _dividing(whole: int, ideal: float, left: int, share: float) -> int | None:
    """The length within a half of the ideal that leaves no shorter segment over, on no level, if there is one."""
    near = [d for d in range(1, whole // 2 + 1) if whole % d == 0 and ideal / 1.5 <= d <= ideal * 1.5]
    for d in sorted(near, key=lambda d: (abs(math.log(d / ideal)), d)):
        lengths = (d, *levels_of(d, left, share))
        if all(a % b == 0 for a, b in pairwise(lengths)):
            return d
    return None


def kept_carries(trips: int, lengths: Sequence[int]) -> int:
    """How many carries are kept at the same time, at most: of segments, and of the steps of the shortest.

    >>> kept_carries(10_000, (100,)), kept_carries(1_000, (100, 10))
    (200, 30)
    """
    found = 0
    for length in lengths:
        found += -(-trips // length)
        trips = min(trips, length)
    return found + trips


# ---------------------------------------------------------------------- what a compiler decides


@dataclass(frozen=True)
class Found:
    """A scan that was met in a trace: the line that it was written on, and its length."""

    source: Source | None
    trips: int

    def __str__(self) -> str:
        return f"scan of {self.trips:,} steps{'' if self.source is None else f' at {self.source}'}"


@dataclass
class Levels:
    """Levels for the scans of a trace that do not say their own, and those scans as the trace has met them."""

    chosen: Mapping[Found, int] = field(default_factory=dict)
    step_bytes: float = 0.0
    """Of what a step keeps, where nothing is run again."""
    met: dict[Found, tuple[int, ...]] = field(default_factory=dict)
    """Each scan that could have levels, with its segments."""

    def __str__(self) -> str:
        lines = [
            f"{found}: {' of '.join(f'segments of {length:,}' for length in lengths)}"
            for found, lengths in self.met.items()
            if lengths
        ]
        return "\n".join(lines) or "nothing is run again"

    @contextmanager
    def during(self) -> Iterator[None]:
        """While this is open, scans have these levels."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def segments(self, trips: int, carry_bytes: int) -> tuple[int, ...]:
        """The lengths of segments of a scan that is met now."""
        if most_levels(trips) == 0:
            return ()
        found = Found(current_source(), trips)
        share = min(1.0, max(LEAST_SHARE, carry_bytes / self.step_bytes)) if self.step_bytes else 1.0
        lengths = levels_of(trips, min(self.chosen.get(found, 0), most_levels(trips)), share)
        self.met[found] = lengths
        return lengths


_current: ContextVar[Levels | None] = ContextVar("levels", default=None)
_whole: ContextVar[bool] = ContextVar("whole", default=False)


@contextmanager
def without_segments() -> Iterator[None]:
    """While this is open, no scan is cut into segments, whatever is said: its steps are those that were written."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def segments_here(trips: int, checkpoint: Checkpoint, carry_bytes: int) -> tuple[int, ...]:
    """The lengths of segments that the user has asked for, or the compiler that traces now."""
    lengths = segments(trips, checkpoint)
    if _whole.get():
        return ()
    levels = _current.get()
    if checkpoint is None and levels is not None:
        return levels.segments(trips, carry_bytes)
    return lengths


# ---------------------------------------------------------------------- loops of segments


def segmented(
    consts: Sequence[Node],
    inits: Sequence[Node],
    xs: Sequence[Node],
    body: Graph,
    trips: int,
    reverse: bool,
    lengths: Sequence[int],
) -> list[Node]:
    """The results of a scan of ``body``, cut into segments; what is left over is run last, as a shorter one."""
    if not lengths or lengths[0] >= trips:
        lengths = [length for length in lengths if length < trips]
    if not lengths:
        made = scan(
            *consts,
            *inits,
            *xs,
            body=body,
            consts=len(consts),
            carries=len(inits),
            trips=trips,
            reverse=reverse,
        )
        return list(results(made))
    length, inner = lengths[0], lengths[1:]
    count, rest = divmod(trips, length)
    parts = [*consts, *inits]
    states = [Variable(v.type) for v in body.inputs[: len(parts)]]
    sequences = [Variable(x.type.with_shape((length, *x.shape[1:]))) for x in xs]
    own = [Variable(v.type) for v in (*states, *sequences)]
    region = Graph(
        tuple(own),
        tuple(
            segmented(
                own[: len(consts)],
                own[len(consts) : len(parts)],
                own[len(parts) :],
                body,
                length,
                reverse,
                inner,
            )
        ),
    )
    many = [
        reshape(_steps(x, rest if reverse else 0, count * length), shape=(count, length, *x.shape[1:]))
        for x in xs
    ]
    variables = (*states, *sequences)
    outer = Graph(variables, tuple(results(call(*variables, body=region, saved=()))))
    first = results(
        scan(
            *parts,
            *many,
            body=outer,
            consts=len(consts),
            carries=len(inits),
            trips=count,
            reverse=reverse,
        )
    )
    carries = list(first[: len(inits)])
    ys = [reshape(y, shape=(count * length, *y.shape[2:])) for y in first[len(inits) :]]
    if not rest:
        return [*carries, *ys]
    left = [_steps(x, 0 if reverse else count * length, rest) for x in xs]
    last = segmented(consts, carries, left, body, rest, reverse, inner)
    pairs = zip(ys, last[len(inits) :])
    return [
        *last[: len(inits)],
        *(joined([b, a] if reverse else [a, b], 0) for a, b in pairs),
    ]


def _steps(x: Node, first: int, count: int) -> Node:
    """So many steps of a sequence."""
    if count == x.shape[0]:
        return x
    stops = (first + count, *x.shape[1:])
    starts = (first, *(0 for _ in x.shape[1:]))
    return OPERATORS["slice"](x, starts=starts, stops=stops, steps=(1,) * x.ndim)
