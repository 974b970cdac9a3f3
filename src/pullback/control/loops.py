"""The loops that a user writes: ``scan``, ``fori_loop``, ``map`` and ``while_loop``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.control.branches import cond
from pullback.control.regions import closed
from pullback.control.schedules import Checkpoint, segmented, segments_here
from pullback.control.unbounded import make_while
from pullback.errors import DTypeError, NamedAxisError, ShapeError, TreeError
from pullback.graph import Node, Type, Variable, mark
from pullback.graph.named import is_named
from pullback.graph.protocol import vocabulary
from pullback.numpy.promotion import (
    any_traced,
    as_array_node,
    broadcast_to_shape,
    cast,
    settled,
    type_of,
    where_written,
)
from pullback.numpy.ranges import arange
from pullback.operators.arithmetic import add
from pullback.operators.elementwise import filled
from pullback.operators.logic import not_equal
from pullback.tracing.functions import check_function
from pullback.tracing.trace import ended, finish, leaf_type, output_nodes, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, difference, flatten

__all__ = ["fori_loop", "map", "scan", "while_loop"]

Function = Callable[..., Any]


@shows_users_frames
def scan(
    function: Function,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    checkpoint: Checkpoint = None,
) -> tuple[Any, Any]:
    r"""Run ``function`` once for each step of a sequence, handing a state from step to step.

    .. math:: (c_{t+1}, y_t) = f(c_t, x_t), \quad t = 0, \dots, T - 1

    ``function(carry, x)`` returns the next carry and what is kept of the step. ``init`` is the first carry; carries are
    trees of one structure, with the same shapes and dtypes in every step. Every array of the tree ``xs`` has the steps
    along axis 0; with ``xs=None`` give the ``length``. ``reverse`` goes from the last step to the first. Returns the
    last carry and the tree of what was kept, with the steps along axis 0, in the order of ``xs`` either way.

    The function is traced once and compiled once, however many steps there are. A loop over no step returns ``init``.

    ``checkpoint`` says which steps the backward pass runs again from a carry instead of keeping something of each:

    - ``None``: no step, unless ``jit`` has to meet a budget of memory;
    - ``"sqrt"``, or 1: those of segments of about √T steps; the carries that the segments begin with are kept,
    - a number ``l`` of levels: segments are cut into segments; about ``(l + 1)·T^(1/(l + 1))`` carries are kept, and
      each step is run ``l`` times more,
    - ``"recursive"``: with as many levels as there can be; about ``2·log₂ T`` carries are kept,
    - a tuple of lengths of segments, the longest first, such as ``(1000, 100)``.

    The results are the same, and derivatives to rounding.

    Raises ``TreeError``, ``ShapeError`` or ``DTypeError`` where a carry leaves a step as something else than it
    enters, or lengths differ.

    Source: the meaning is that of ``jax.lax.scan``; of checkpoints, see ``pullback.control.schedules``.

    >>> total, totals = scan(lambda total, x: (total + x, total), 0.0, np.array([1.0, 2.0, 3.0]))
    >>> float(total), totals
    (6.0, array([0., 1., 3.]))
    """
    check_function("scan", function)
    leaves, xs_structure = flatten(xs)
    types = [leaf_type(leaf, _place("xs", path)) for leaf, path in zip(leaves, xs_structure.paths)]
    trips = _length(types, xs_structure, length)
    start, structure = flatten(init)
    start_types = [leaf_type(leaf, _place("init", path)) for leaf, path in zip(start, structure.paths)]
    x_types = [type.with_shape(type.shape[1:]) for type in types]
    while True:
        carries = [Variable(type, "carry") for type in start_types]
        steps = [Variable(type, "x") for type in x_types]
        since = mark()
        made = structure.unflatten(carries), xs_structure.unflatten(steps)
        with tracing([*carries, *steps], made, "step") as trace:
            following, kept = _pair(function(*made))
            outputs, found = output_nodes(following)
            ys, y_structure = output_nodes(kept)
        _same_structure("scan", structure, found)
        grown = _grown(carries, outputs)
        if grown == start_types:
            break
        start_types = grown
    together, count = ended([*outputs, *ys], since), len(outputs)
    outputs, ys = together[:count], together[count:]
    outputs = tuple(
        _like("scan", before, after, path) for before, after, path in zip(carries, outputs, structure.paths)
    )
    if trace.run is not None:
        steps.append(trace.run)
        leaves.append(arange(trips))
        types.append(leaf_type(leaves[-1]))
    starts = [Variable(leaf_type(leaf), "init") for leaf in start]
    sequences = [Variable(type, "xs") for type in types]
    inits = [cast(node, variable.dtype) for node, variable in zip(starts, carries)]
    if is_named(trips) and checkpoint is not None:
        raise NamedAxisError(
            f"scan over a named axis cannot be cut into segments; leave checkpoint= out{where_written()}"
        )
    carried = sum(variable.type.nbytes for variable in carries)
    lengths = () if is_named(trips) else segments_here(trips, checkpoint, carried)
    if trips == 0:
        nodes: Sequence[Node] = [
            *inits,
            *(broadcast_to_shape(as_array_node(np.zeros((), y.dtype)), (0, *y.shape)) for y in ys),
        ]
    else:
        around, body = closed((*outputs, *ys), (*carries, *steps))
        nodes = segmented(around, inits, sequences, body, trips, reverse, lengths)
    values = finish(nodes, [*starts, *sequences], [*start, *leaves])
    return structure.unflatten(values[:count]), y_structure.unflatten(values[count:])


def _place(name: str, path: str) -> str:
    return f"scan: {name} at {path}" if path else f"scan: {name}"


def _length(types: Sequence[Type], structure: Structure, length: int | None) -> int:
    """The number of steps, the same for all of ``xs``."""
    sizes = []
    for type, path in zip(types, structure.paths):
        if not type.shape:
            raise ShapeError(
                f"{_place('xs', path)} is {type}, which has no axis of steps; close over it instead{where_written()}"
            )
        sizes.append((type.shape[0], f"{_place('xs', path)} is {type}"))
    if length is not None:
        sizes.append((int(settled(length)), f"length is {length}"))
    if not sizes:
        raise ShapeError(
            f"scan: no xs and no length tell how many steps there are; give length={where_written()}"
        )
    for size, said in sizes:
        if size != sizes[0][0]:
            raise ShapeError(
                f"{sizes[0][1]}, but {said}; all must have as many steps along axis 0{where_written()}"
            )
    if sizes[0][0] < 0:
        raise ShapeError(f"scan: {sizes[0][1]}; there cannot be fewer steps than none{where_written()}")
    return sizes[0][0]


def _pair(made: Any) -> tuple[Any, Any]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise TreeError(
            f"scan: the function returns (carry, kept), not a {type(made).__name__}; "
            f"return (carry, None) to keep nothing{where_written()}"
        )
    return made


def _same_structure(name: str, structure: Structure, found: Structure) -> None:
    if not found.fits(structure):
        raise TreeError(
            f"{name}: the carry enters a step as {structure!r} and leaves it as {found!r}: "
            f"{difference(structure, found)}; return a carry like init{where_written()}"
        )


def _grown(before: Sequence[Node], after: Sequence[Node]) -> list[Type]:
    """The types of carries that begin as Python numbers and take a dtype in a step."""
    return [
        Type(a.dtype, b.shape) if b.type.weak and not a.type.weak else b.type for b, a in zip(before, after)
    ]


def _like(name: str, before: Node, after: Node, path: str) -> Node:
    """``after`` if it has the type of ``before``; a Python number takes its dtype."""
    if after.shape == before.shape and after.dtype == before.dtype:
        return after
    if after.shape == before.shape and after.type.weak:
        return cast(after, before.dtype)
    place = f"the carry at {path}" if path else "the carry"
    wrong, repair = (
        (ShapeError, "give init the shape that a step returns")
        if after.shape != before.shape
        else (TreeError, f"cast it with .astype(np.{before.dtype}), or begin with {after.dtype}")
    )
    raise wrong(
        f"{name}: {place} enters a step as {before.type} and leaves it as {after.type}; {repair}{where_written()}"
    )


@shows_users_frames
def fori_loop(lower: Any, upper: Any, body: Function, init: Any, *, checkpoint: Checkpoint = None) -> Any:
    """``for i in range(lower, upper): value = body(i, value)``, from ``value = init``; returns the last ``value``.

    The bounds are integers, or sizes of named axes; ``i`` is a traced ``int64``. Where they are traced the loop is a
    ``while_loop`` without ``max_steps``: forward mode works, reverse mode does not. ``checkpoint`` is that of ``scan``.

    Source: the meaning is that of ``jax.lax.fori_loop``.

    >>> float(fori_loop(1, 5, lambda i, product: product * i, 1.0))
    24.0
    >>> import pullback as pb
    >>> float(pb.jit(lambda n: fori_loop(1, n, lambda i, product: product * i, 1.0))(5))
    24.0
    """
    for bound in (lower, upper):
        type = type_of(bound)
        if type.shape or type.dtype.kind not in "iu":
            raise DTypeError(f"fori_loop: a bound of type {type}; give one integer{where_written()}")
    ends = settled((lower, upper))
    if any_traced(*ends):
        first, stop = (cast(as_array_node(bound), np.dtype(np.int64)) for bound in (lower, upper))
        state = while_loop(
            lambda state: state[0] < stop, lambda state: (state[0] + 1, body(*state)), (first, init)
        )
        return state[1]
    places = arange(*ends, dtype=np.int64)
    return scan(lambda value, i: (body(i, value), None), init, places, checkpoint=checkpoint)[0]


@shows_users_frames
def map(function: Function, xs: Any, *, checkpoint: Checkpoint = None) -> Any:
    """``function`` of each element of ``xs`` along axis 0, one after another; the results along axis 0.

    ``vmap`` computes all of them at once, and so may this where no ``checkpoint``, which is that of ``scan``, keeps
    segments apart.

    Source: the meaning is that of ``jax.lax.map``.

    >>> map(lambda x: x @ x, np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([ 5., 25.])
    """
    return scan(lambda _, x: (None, function(x)), None, xs, checkpoint=checkpoint)[1]


@shows_users_frames
def while_loop(
    condition: Function,
    body: Function,
    init: Any,
    max_steps: int | None = None,
    *,
    checkpoint: Checkpoint = None,
) -> Any:
    r"""``while condition(value): value = body(value)``, from ``value = init``; returns the last ``value``.

    ``value`` is a tree of one structure, with the same shapes and dtypes in every turn; ``condition`` gives a scalar.
    How many turns there are depends on the values. So forward mode works, and reverse mode, which must keep something
    of each turn, only with ``max_steps``: then there are no more turns than these, and what is kept takes memory for
    all, or less with a ``checkpoint``, which is that of ``scan``. Under ``vmap`` turns go on while they do for any
    example; those that are done keep their values. What is the same in all turns is best computed before the loop.

    Raises what ``scan`` raises for carries that change, ``ShapeError`` for a condition that is no scalar, and
    ``DerivativeError`` in reverse mode without ``max_steps``.

    Source: the meaning is that of ``jax.lax.while_loop``.

    >>> float(while_loop(lambda x: x < 100, lambda x: x * 3, 1.0))
    243.0
    >>> import pullback as pb
    >>> float(pb.grad(lambda x: while_loop(lambda x: x < 100, lambda x: x * 3, x, max_steps=10))(1.0))
    243.0
    """
    if max_steps is not None:

        def step(value: Any, _: Any) -> tuple[Any, None]:
            return cond(condition(value), body, lambda value: value, value), None

        return scan(step, init, length=max_steps, checkpoint=checkpoint)[0]
    leaves, structure = flatten(init)
    types = [leaf_type(leaf, f"while_loop: init at {path}") for leaf, path in zip(leaves, structure.paths)]
    start_types = types
    while True:
        carries = [Variable(type, "carry") for type in start_types]
        since = mark()
        made = structure.unflatten(carries)
        with tracing(carries, made, "step") as trace:
            flags, _ = output_nodes(condition(made))
            flags = ended(flags, since)  # a region of its own
            outputs, found = output_nodes(body(made))
        _same_structure("while_loop", structure, found)
        grown = _grown(carries, outputs)
        if grown == start_types:
            break
        start_types = grown
    outputs = ended(outputs, since)
    if len(flags) != 1 or flags[0].shape:
        said = ", ".join(str(flag.type) for flag in flags)
        raise ShapeError(
            f"while_loop: the condition gives {said or 'nothing'}; give one scalar, with .any() or .all()"
            f"{where_written()}"
        )
    (flag,) = flags
    flag = flag if flag.dtype == np.bool_ else not_equal(flag, filled(0, flag.dtype, ()))
    outputs = tuple(
        _like("while_loop", before, after, path)
        for before, after, path in zip(carries, outputs, structure.paths)
    )
    around = [Variable(type, "init") for type in types]
    inits = [cast(node, variable.dtype) for node, variable in zip(around, carries)]
    if trace.run is not None:
        carries.append(trace.run)
        outputs = (*outputs, add(trace.run, filled(1, trace.run.dtype, ())))
        inits.append(filled(0, trace.run.dtype, ()))
    nodes = make_while(carries, flag, outputs, inits, since)[: len(leaves)]
    return structure.unflatten(finish(nodes, around, leaves))


vocabulary["map"] = map
