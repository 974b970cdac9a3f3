"""``associative_scan``: all running totals of an operation in a number of rounds that grows like a logarithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback import numpy as pnp
from pullback.errors import DTypeError, NamedAxisError, ShapeError, TreeError
from pullback.graph import Node, Type
from pullback.graph.named import is_named
from pullback.numpy.promotion import where_written
from pullback.tracing.trace import leaf_type
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, difference, flatten

__all__ = ["associative_scan"]

Function = Callable[..., Any]


@shows_users_frames
def associative_scan(function: Function, xs: Any, *, reverse: bool = False, axis: int = 0) -> Any:
    r"""The running totals of ``xs`` along ``axis``, where ``function`` adds two parts, in any grouping.

    .. math:: y_0 = x_0, \quad y_t = y_{t-1} \circ x_t, \quad (a \circ b) \circ c = a \circ (b \circ c)

    ``function(a, b)`` takes and returns trees like ``xs`` with any number of elements along ``axis``, and works on each
    of them by itself; ``b`` stands behind ``a``. With ``reverse`` the totals begin at the end:
    :math:`y_t = y_{t+1} \circ x_t`. Neighbours are joined first, then pairs of pairs: it takes about twice as many
    operations as elements, all of a round at once, in about :math:`2 \log_2 T` rounds; ``scan`` goes step by step.

    Raises ``TreeError``, ``ShapeError`` or ``DTypeError`` where the function returns something else than it takes,
    or lengths differ, and ``NamedAxisError`` along an axis of any size.

    Source: Blelloch, *Prefix sums and their applications*, CMU-CS-90-190; the meaning is that of
    ``jax.lax.associative_scan``.

    >>> import numpy as np
    >>> associative_scan(np.multiply, np.array([1.0, 2.0, 3.0, 4.0]))
    array([ 1.,  2.,  6., 24.])
    >>> affine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])  # the steps h → s h + x, one after another
    >>> associative_scan(affine, (np.full(4, 0.5), np.ones(4)))[1]
    array([1.   , 1.5  , 1.75 , 1.875])
    """
    leaves, structure = flatten(xs)
    if not leaves:
        return xs
    types = [leaf_type(leaf, f"associative_scan: xs at {p}") for leaf, p in zip(leaves, structure.paths)]
    _check_lengths(types, structure, axis)
    if is_named(types[0].shape[axis]):
        raise NamedAxisError(
            f"associative_scan of {types[0]} along a named axis goes in rounds, of which there are others for each "
            "size; go step by step with pb.scan, write np.cumsum or np.cumprod where these are meant, or leave the "
            f"axis out of shapes={where_written()}"
        )
    parts = [pnp.moveaxis(pnp.asarray(leaf), axis, 0) for leaf in leaves]
    if reverse:
        parts = [part[::-1] for part in parts]
    joined = _Joined(function, structure, axis)
    totals = joined.totals(parts) if parts[0].shape[0] else parts
    if reverse:
        totals = [total[::-1] for total in totals]
    return structure.unflatten([pnp.moveaxis(total, 0, axis) for total in totals])


def _check_lengths(types: Sequence[Type], structure: Structure, axis: int) -> None:
    sizes = []
    for type, path in zip(types, structure.paths):
        place = f"associative_scan: xs at {path}" if path else "associative_scan: xs"
        if not -type.rank <= axis < type.rank:
            raise ShapeError(f"{place} is {type}, which has no axis {axis}{where_written()}")
        sizes.append((type.shape[axis], f"{place} is {type}"))
    for size, said in sizes:
        if size != sizes[0][0]:
            raise ShapeError(
                f"{sizes[0][1]}, but {said}; all must be of one length along axis {axis}{where_written()}"
            )


class _Joined:
    """The user's function on lists of leaves whose elements lie along axis 0."""

    def __init__(self, function: Function, structure: Structure, axis: int) -> None:
        self.function, self.structure, self.axis = function, structure, axis

    def __call__(self, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        given = [
            self.structure.unflatten([pnp.moveaxis(leaf, 0, self.axis) for leaf in leaves])
            for leaves in (first, second)
        ]
        made, found = flatten(self.function(*given))
        if not found.fits(self.structure):
            raise TreeError(
                f"associative_scan: the function takes {self.structure!r} and returns {found!r}: "
                f"{difference(self.structure, found)}; return what it takes{where_written()}"
            )
        results = []
        for leaf, model in zip(made, flatten(given[0])[0]):
            before, after = leaf_type(model), leaf_type(leaf)
            if (before.shape, before.dtype) != (after.shape, after.dtype):
                wrong = ShapeError if before.shape != after.shape else DTypeError
                raise wrong(
                    f"associative_scan: the function takes {before} and returns {after}; return the same"
                    f"{where_written()}"
                )
            results.append(pnp.moveaxis(leaf, self.axis, 0))
        return results

    def totals(self, parts: Sequence[Any]) -> list[Any]:
        """Totals of pairs give those at odd places; one element more, those at even ones."""
        count = parts[0].shape[0]
        if count == 1:
            return list(parts)
        pairs = self([p[: count - 1 : 2] for p in parts], [p[1::2] for p in parts])
        odd = self.totals(pairs)
        firsts = [total[: (count - 1) // 2] for total in odd]
        even = self(firsts, [p[2::2] for p in parts]) if count > 2 else [p[:0] for p in parts]
        return [_interleaved(pnp.concatenate([p[:1], e]), o) for p, e, o in zip(parts, even, odd)]


def _interleaved(even: Node, odd: Node) -> Node:
    """The elements of both by turns; ``even`` may have one more."""
    shorter = odd.shape[0]
    both: Any = pnp.stack([even[:shorter], odd], axis=1)
    both = both.reshape((2 * shorter, *odd.shape[1:]))
    whole: Node = pnp.concatenate([both, even[shorter:]]) if even.shape[0] > shorter else both
    return whole
