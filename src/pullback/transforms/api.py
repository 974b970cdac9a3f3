"""The transformations that a user calls: functions in, functions out.

Each call traces the function on fresh variables, differentiates, and puts the arguments in place of the
variables. Because the variables are new every time, derivatives of derivatives cannot be confused, whatever
closes over what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, NamedTuple

import numpy as np

from pullback.errors import DerivativeError, TreeError
from pullback.graph import Node, Type, Variable, evaluating, is_float, is_known, mark
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise
from pullback.numpy.promotion import Scalar, as_array_node, as_node, broadcast_to_shape, cast
from pullback.numpy.shapes import joined, to_shape
from pullback.operators.batching import moved
from pullback.tracing.trace import ended, finish, is_example, known_value, leaf_type, output_nodes, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, difference, flatten, map_tree
from pullback.transforms.batching import batched
from pullback.transforms.choosing import Argnums, choose, is_single
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents

__all__ = ["grad", "hessian", "jacobian", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Function = Callable[..., Any]
TAKES_ARGNUMS = ("grad", "jacobian")


class Arguments:
    """Arguments of a function, those to differentiate for replaced by fresh variables.

    ``leaves`` are the values of the leaves that take part, floats all of them; ``variables`` stand for them.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[Any],
        chosen: Sequence[int],
        names: Mapping[int, str] | None = None,
    ) -> None:
        self.chosen, self.names = chosen, names or {}
        self.leaves: list[Any] = []
        self.variables: list[Variable] = []
        self.replaced = list(arguments)
        self.made: list[Any] = []
        """What stands for the chosen arguments."""
        self.parts: list[tuple[list[Any], list[int], Structure]] = []
        """For each argument its leaves, the positions of those that take part, and its structure."""
        for number in chosen:
            self._replace(name, number, arguments[number])

    def _replace(self, name: str, number: int, argument: Any) -> None:
        leaves, structure = flatten(argument)
        types = [leaf_type(leaf) for leaf in leaves]
        trained = structure.trained
        smooth = [k for k, type in enumerate(types) if trained[k] and is_float(type.dtype)]
        if len(smooth) < len(leaves):
            _refuse_integers(name, self.names.get(number, number), types, structure)
        changed = list(leaves)
        for k in smooth:
            variable = Variable(
                types[k], f"arg{number}", known_value(leaves[k], types[k]), is_example(leaves[k])
            )
            changed[k] = variable
            self.variables.append(variable)
            self.leaves.append(leaves[k])
        self.parts.append((leaves, smooth, structure))
        self.replaced[number] = structure.unflatten(changed)
        self.made.append(self.replaced[number])

    def evaluated(self) -> evaluating:
        """The context in which the function is called: evaluated as it goes where all variables are known."""
        return evaluating(all(map(is_known, self.variables)))

    def trees(self, values: Sequence[Any], rows: tuple[int, ...] = ()) -> list[Any]:
        """``values``, one for each variable, as trees like the arguments; zeros for leaves that are no
        floats or belong to a ``buffer()``. Each value, and so the zeros, has the axes ``rows`` in front.
        """
        supply = iter(values)
        trees = []
        for leaves, smooth, structure in self.parts:
            filled = [
                next(supply) if k in smooth else elementwise_zeros(leaf, rows)
                for k, leaf in enumerate(leaves)
            ]
            trees.append(structure.unflatten(filled))
        return trees


def elementwise_zeros(leaf: Any, rows: tuple[int, ...] = ()) -> Any:
    """Concrete zeros of the type of ``leaf``, with the axes ``rows`` in front."""
    type = leaf_type(leaf)
    return np.zeros((*rows, *type.shape), type.dtype)[()]


def _refuse_integers(name: str, number: int | str, types: Sequence[Type], structure: Structure) -> None:
    """Raise for leaves that are no floats, but for counters and tables that a module carries beside its
    weights.
    """
    for type, inside, path in zip(types, structure.in_dataclass, structure.paths):
        if not inside and not is_float(type.dtype):
            place = f"argument {number}" + (f" at {path}" if path else "")
            others = (
                "name other arguments with argnums" if name in TAKES_ARGNUMS else "close over it in a lambda"
            )
            raise DerivativeError(
                f"{name}: {place} is {type}, and integers have no derivative; pass floats, for instance with "
                f".astype(np.float32), or {others}"
            )


def zero_if_absent(bar: Node | None, like: Node) -> Node:
    if bar is not None:
        return bar
    return broadcast_to_shape(as_array_node(np.zeros((), like.dtype)), like.shape)


def value_and_grad(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    r"""The function that gives ``function``'s value and its gradient together.

    .. math:: (f(x), \partial f / \partial x)

    Like ``grad``, and returns ``(value, gradient)``, or ``((value, extra), gradient)`` with ``has_aux``.

    >>> value, gradient = value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    >>> float(value), gradient
    (5.0, array([2., 4.]))
    """

    @wraps(function)
    @shows_users_frames
    def value_and_gradient(*arguments: Any, **keywords: Any) -> Any:
        chosen = choose("grad", function, argnums, arguments, keywords)
        inside = Arguments("grad", chosen.arguments, chosen.numbers, chosen.names)
        since = mark()
        with tracing(inside.variables, inside.made):
            with inside.evaluated():
                result = chosen.function(*inside.replaced, **chosen.keywords)
            loss, extra = _split(result) if has_aux else (result, None)
            node = _loss_node(loss)
            found, extra_structure = output_nodes(extra)
            value, *extras = ended([node, *found], since)
            seed = as_array_node(np.ones((), value.dtype))
            bars = cotangents([value], [seed], inside.variables)
            gradients = [zero_if_absent(bar, x) for bar, x in zip(bars, inside.variables)]
        outputs = finish([value, *gradients, *extras], inside.variables, inside.leaves)
        count = 1 + len(gradients)
        trees = inside.trees(outputs[1:count])
        gradient = trees[0] if is_single(argnums) else tuple(trees)
        if has_aux:
            return (outputs[0], extra_structure.unflatten(outputs[count:])), gradient
        return outputs[0], gradient

    return value_and_gradient


def grad(function: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    r"""The gradient of a function whose result is a scalar, by reverse mode.

    .. math:: \nabla f(x) = \partial f / \partial x

    ``argnums`` tells the argument, or the arguments (a tuple: then the result is one too), to differentiate
    for, each by its number or its name, which may be a keyword's; the others pass through untouched, so Python may
    look at them. The gradient has the structure, the
    shapes and the dtypes of its argument: for a model it is a model. With ``has_aux`` the function returns
    ``(value, extra)`` and the result is ``(gradient, extra)``. Works inside other transformations and on
    itself.

    Raises ``DerivativeError`` when the result is no float scalar or an argument holds integers.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 3.

    >>> round(float(grad(np.sin)(0.0)), 6)
    1.0
    >>> float(grad(grad(lambda x: x**3))(2.0))
    12.0
    >>> print(*grad(lambda x, rate=1.0: x * rate**2, ("x", "rate"))(2.0, rate=3.0))
    9.0 12.0
    """
    both = value_and_grad(function, argnums, has_aux)

    @wraps(function)
    @shows_users_frames
    def gradient(*arguments: Any, **keywords: Any) -> Any:
        value, result = both(*arguments, **keywords)
        return (result, value[1]) if has_aux else result

    return gradient


def _split(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TreeError(f"with has_aux the function returns (value, extra), not a {type(result).__name__}")
    return result


class Outputs(NamedTuple):
    """The leaves of a result, and of what it brings along with ``has_aux``."""

    outputs: tuple[Node, ...]
    structure: Structure
    extras: tuple[Node, ...]
    extra_structure: Structure | None
    """``None`` without ``has_aux``."""

    def extra(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """What a result ends with: the extra tree with these leaves, if there is one."""
        return () if self.extra_structure is None else (self.extra_structure.unflatten(values),)


def outputs_of(result: Any, has_aux: bool) -> Outputs:
    """The outputs of a function that returned ``result``: ``(value, extra)`` with ``has_aux``."""
    if not has_aux:
        return Outputs(*output_nodes(result), (), None)
    value, extra = _split(result)
    return Outputs(*output_nodes(value), *output_nodes(extra))


def _loss_node(loss: Any) -> Node:
    """The one scalar node that a gradient is taken of."""
    leaves, _ = flatten(loss)
    if len(leaves) != 1 or not isinstance(loss, (Node, *Scalar, np.ndarray, np.generic)):
        raise DerivativeError(
            f"grad: the function returned a {type(loss).__name__}, not one scalar; return the loss alone, or "
            "(loss, extra) with has_aux=True"
        )
    node = as_array_node(loss)
    if node.shape != ():
        raise DerivativeError(
            f"grad: the function returned {node.type}, and only a scalar has a gradient; take its sum or "
            "mean, or use vjp with a cotangent of this shape"
        )
    if not is_float(node.dtype):
        raise DerivativeError(
            f"grad: the function returned {node.type}, and only floats have a gradient; "
            "cast an operand with .astype(np.float32) before computing the loss"
        )
    return node


@shows_users_frames
def vjp(function: Function, *arguments: Any, has_aux: bool = False) -> tuple[Any, ...]:
    r"""The value at ``arguments`` and the pullback there, which maps a cotangent of the result to the
    arguments'.

    .. math:: \bar y \mapsto \bar y^T \, \partial f / \partial x

    Returns ``(value, pull)``, or ``(value, pull, extra)`` with ``has_aux``; ``pull(cotangent)`` takes a tree
    like the value and returns a tuple with a tree for each argument.

    >>> value, pull = vjp(lambda x, y: x * y, np.array([1.0, 2.0]), 3.0)
    >>> print(value, *pull(np.array([1.0, 10.0])))
    [3. 6.] [ 3. 30.] 21.0
    """
    inside = Arguments("vjp", arguments, range(len(arguments)))
    since = mark()
    with tracing(inside.variables, inside.made), inside.evaluated():
        result = function(*inside.replaced)
        main, extra = _split(result) if has_aux else (result, None)
        outputs, structure = output_nodes(main)
        extras, extra_structure = output_nodes(extra)
    every, count = ended([*outputs, *extras], since), len(outputs)
    outputs = every[:count]
    finished = finish(every, inside.variables, inside.leaves)
    value = structure.unflatten(finished[:count])
    smooth = [node for node in outputs if is_float(node.dtype)]
    seeds = [Variable(node.type, "cotangent") for node in smooth]
    bars = cotangents(smooth, seeds, inside.variables)
    pulled = [zero_if_absent(bar, x) for bar, x in zip(bars, inside.variables)]

    @shows_users_frames
    def pull(cotangent: Any) -> tuple[Any, ...]:
        given = _like("vjp: the cotangent", cotangent, structure, outputs)
        values = [leaf for leaf, node in zip(given, outputs) if is_float(node.dtype)]
        results = finish(pulled, [*inside.variables, *seeds], [*inside.leaves, *values])
        return tuple(inside.trees(results))

    return (value, pull, extra_structure.unflatten(finished[count:])) if has_aux else (value, pull)


@shows_users_frames
def jvp(
    function: Function, primals: Sequence[Any], tangents_in: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    r"""The value at ``primals`` and its directional derivative along ``tangents_in``, by forward mode.

    .. math:: (f(x), \frac{\partial f}{\partial x} \dot x)

    ``primals`` and ``tangents_in`` are tuples with a tree for each argument. The tangent of an integer
    result is zero. With ``has_aux`` the function returns ``(value, extra)`` and the result is
    ``(value, tangent, extra)``.

    >>> value, tangent = jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> float(value), float(tangent)
    (9.0, 6.0)
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents_in, (tuple, list)):
        raise TreeError(
            "jvp: primals and tangents are tuples with an entry for each argument: jvp(f, (x,), (t,))"
        )
    inside = Arguments("jvp", primals, range(len(primals)))
    if len(primals) != len(tangents_in):
        raise TreeError(f"jvp: {len(primals)} primals and {len(tangents_in)} tangents; give one for each")
    directions = directions_of("jvp: the tangent", inside, tangents_in)
    moving = [Variable(x.type, "tangent") for x in inside.variables]
    since = mark()
    with tracing(inside.variables, inside.made), inside.evaluated():
        found = outputs_of(function(*inside.replaced), has_aux)
    every = ended([*found.outputs, *found.extras], since)
    half = len(found.outputs)
    moved = tangents(every[:half], inside.variables, moving)
    zeros = [zero_if_absent(tangent, output) for tangent, output in zip(moved, every)]
    variables = [*inside.variables, *moving]
    results = finish([*every[:half], *zeros, *every[half:]], variables, [*inside.leaves, *directions])
    value, tangent = (found.structure.unflatten(part) for part in (results[:half], results[half : 2 * half]))
    return (value, tangent, *found.extra(results[2 * half :]))


def directions_of(name: str, inside: Arguments, given: Sequence[Any]) -> list[Any]:
    """The leaves of tangents for the variables of ``inside``, whose arguments the trees ``given`` must be like."""
    directions = []
    for (leaves, smooth, structure), tangent in zip(inside.parts, given):
        models = [as_array_node(elementwise_zeros(leaf)) for leaf in leaves]
        values = _like(name, tangent, structure, models)
        directions += [values[k] for k in smooth]
    return directions


def jacobian(
    function: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    mode: Literal["forward", "reverse"] | None = None,
    chunk: int | None = None,
) -> Function:
    r"""All derivatives of a function's result: one for each element of the result and of the argument.

    .. math:: J_{i,j} = \partial f_i / \partial x_j

    ``argnums`` is that of ``grad``. The Jacobian is a tree like the result, each leaf of it a tree like the
    argument (with several arguments a tuple of these), whose leaves have the shape ``result.shape +
    argument.shape`` and the argument's dtype; it is zero for a result of integers. With ``has_aux`` the function
    returns ``(value, extra)`` and the result is ``(jacobian, extra)``.

    ``mode="reverse"`` computes rows, ``mode="forward"`` columns; by default whichever are fewer. All are computed at
    once, side by side, or ``chunk`` of them at a time, which takes memory for so many and computes what is the same
    for all once.

    Raises ``DerivativeError`` when an argument holds integers, for another ``mode``, or a ``chunk`` below 1.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 3.

    >>> jacobian(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0]))
    array([[3., 0., 1.],
           [0., 3., 2.]])
    >>> jacobian(lambda x: x[:2] * x[2], mode="forward", chunk=2)(np.array([1.0, 2.0, 3.0]))
    array([[3., 0., 1.],
           [0., 3., 2.]])
    """
    if mode not in (None, "forward", "reverse"):
        raise DerivativeError(
            f"jacobian: mode={mode!r}; give 'forward', 'reverse', or None to choose by size"
        )
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise DerivativeError(
            f"jacobian: chunk={chunk!r}; give how many directions are computed at once, 1 or more"
        )

    @wraps(function)
    @shows_users_frames
    def derivatives(*arguments: Any, **keywords: Any) -> Any:
        chosen = choose("jacobian", function, argnums, arguments, keywords)
        inside = Arguments("jacobian", chosen.arguments, chosen.numbers, chosen.names)
        since = mark()
        with tracing(inside.variables, inside.made), inside.evaluated():
            found = outputs_of(chosen.function(*inside.replaced, **chosen.keywords), has_aux)
        every = ended([*found.outputs, *found.extras], since)
        outputs = every[: len(found.outputs)]
        rows, columns = (sum(node.size for node in nodes) for nodes in (outputs, inside.variables))
        by_rows = rows <= columns if mode is None else mode == "reverse"
        with tracing(inside.variables):
            blocks = (_by_rows if by_rows else _by_columns)(outputs, inside.variables, chunk)
        extras = every[len(outputs) :]
        finished = finish([*blocks, *extras], inside.variables, inside.leaves)
        values = iter(finished)
        parts = []
        for output in outputs:
            trees = inside.trees([next(values) for _ in inside.variables], output.shape)
            parts.append(trees[0] if is_single(argnums) else tuple(trees))
        jacobians = found.structure.unflatten(parts)
        return (jacobians, *found.extra(finished[len(blocks) :])) if has_aux else jacobians

    return derivatives


def _by_rows(outputs: Sequence[Node], variables: Sequence[Variable], chunk: int | None = None) -> list[Node]:
    """The derivatives of each output by each variable, from the cotangents of single elements."""
    blocks = []
    for output in outputs:
        seed = Variable(output.type, "cotangent")
        bars = cotangents([output], [seed], variables) if is_float(output.dtype) else [None] * len(variables)
        blocks += [
            _block(row, output, x) for row, x in zip(_at_units(bars, variables, seed, chunk), variables)
        ]
    return blocks


def _by_columns(
    outputs: Sequence[Node], variables: Sequence[Variable], chunk: int | None = None
) -> list[Node]:
    """The same from the tangents of single elements, which come first and belong behind the output's axes."""
    columns = []
    for x in variables:
        moving = Variable(x.type, "tangent")
        moved_outputs = tangents(outputs, variables, [moving if other is x else None for other in variables])
        columns.append(_at_units(moved_outputs, outputs, moving, chunk))
    return [
        _block(moved(column, 0, output.ndim), output, x)
        for k, output in enumerate(outputs)
        for x, column in zip(variables, (of_x[k] for of_x in columns))
    ]


def _at_units(
    nodes: Sequence[Node | None], like: Sequence[Node], x: Variable, chunk: int | None
) -> list[Node]:
    """``nodes``, linear in ``x`` or absent, where ``x`` is 1 in one place and 0 elsewhere: places come first."""
    whole = [zero_if_absent(node, model) for node, model in zip(nodes, like)]

    def along(units: Node) -> list[Node]:
        return [
            broadcast_to_shape(many, (units.shape[0], *one.shape))
            for many, one in zip(batched(whole, [x], [units]), whole)
        ]

    units = np.eye(x.size, dtype=x.dtype).reshape((x.size, *x.shape))
    if chunk is None or chunk >= x.size:
        return along(as_array_node(units))
    steps = x.size // chunk
    cut = steps * chunk
    some = as_array_node(units[:cut].reshape((steps, chunk, *x.shape)))
    made = vocabulary["map"](along, some)
    parts = [[to_shape(part, (cut, *part.shape[2:])) for part in made]]
    if cut < x.size:
        parts.append(along(as_array_node(units[cut:])))
    return [joined(list(each), 0) if len(each) > 1 else each[0] for each in zip(*parts)]


def _block(x: Node, output: Node, variable: Variable) -> Node:
    return cast(to_shape(x, (*output.shape, *variable.shape)), variable.dtype)


def hessian(
    function: Function, argnums: Argnums = 0, has_aux: bool = False, *, chunk: int | None = None
) -> Function:
    r"""The second derivatives of a function whose result is a scalar: the Jacobian of its gradient.

    .. math:: H_{i,j} = \partial^2 f / \partial x_i \, \partial x_j

    ``argnums`` is that of ``grad``, ``has_aux`` and ``chunk`` those of ``jacobian``. For an array the Hessian has the
    shape ``x.shape + x.shape``; for a tree it is a tree like it whose leaves are trees like it.

    Raises ``DerivativeError`` when the result is no float scalar or an argument holds integers.

    >>> hessian(lambda x: x[0] ** 2 * x[1])(np.array([3.0, 5.0]))
    array([[10.,  6.],
           [ 6.,  0.]])
    """
    return jacobian(grad(function, argnums, has_aux), argnums, has_aux, chunk=chunk)


def _like(name: str, tree: Any, structure: Structure, nodes: Sequence[Node]) -> list[Any]:
    """The leaves of ``tree``, which must have this structure and the types of ``nodes``."""
    leaves, found = flatten(tree)
    if not found.fits(structure):
        raise TreeError(f"{name} has another structure {difference(structure, found)}")
    fitted = []
    for leaf, node, path in zip(leaves, nodes, structure.paths):
        type = leaf_type(leaf)
        if type.shape != node.shape:
            place = f" at {path}" if path else ""
            raise DerivativeError(
                f"{name}{place} has shape {type.shape}, not {node.shape}; give it that shape"
            )
        # A node is cast here; an array is cast by the interpreter, which makes no copy when it need not.
        fitted.append(as_node(leaf, node.dtype) if isinstance(leaf, Node) else leaf)
    return fitted


def stop_gradient(tree: Any) -> Any:
    """``tree`` as constants: its values pass, derivatives do not.

    >>> float(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    return map_tree(elementwise.stop_gradient, tree)
