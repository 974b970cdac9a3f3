"""The transformations that a user calls: functions in, functions out.

Each call traces the function on fresh variables, differentiates, and puts the arguments in place of the
variables. Because the variables are new every time, derivatives of derivatives cannot be confused, whatever
closes over what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from pullback.errors import DerivativeError, TreeError
from pullback.graph import Node, Type, Variable, is_float
from pullback.numpy import elementwise
from pullback.numpy.promotion import as_array_node, as_node, broadcast_to_shape
from pullback.tracing.trace import finish, leaf_type, output_nodes, tracing
from pullback.tracing.trees import Structure, difference, flatten, map_tree
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents

__all__ = ["grad", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Function = Callable[..., Any]


class Arguments:
    """Arguments of a function, those to differentiate for replaced by fresh variables.

    ``leaves`` are the values of the leaves that take part, floats all of them; ``variables`` stand for them.
    """

    def __init__(self, name: str, arguments: Sequence[Any], chosen: Sequence[int]) -> None:
        self.chosen = chosen
        self.leaves: list[Any] = []
        self.variables: list[Variable] = []
        self.replaced = list(arguments)
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
            _refuse_integers(name, number, types, structure)
        changed = list(leaves)
        for k in smooth:
            variable = Variable(types[k], f"arg{number}")
            changed[k] = variable
            self.variables.append(variable)
            self.leaves.append(leaves[k])
        self.parts.append((leaves, smooth, structure))
        self.replaced[number] = structure.unflatten(changed)

    def trees(self, values: Sequence[Any]) -> list[Any]:
        """``values``, one for each variable, as trees like the arguments; zeros for leaves that are no
        floats or belong to a ``buffer()``.
        """
        supply = iter(values)
        trees = []
        for leaves, smooth, structure in self.parts:
            filled = [
                next(supply) if k in smooth else elementwise_zeros(leaf) for k, leaf in enumerate(leaves)
            ]
            trees.append(structure.unflatten(filled))
        return trees


def elementwise_zeros(leaf: Any) -> Any:
    """Concrete zeros of the type of ``leaf``."""
    type = leaf_type(leaf)
    return np.zeros(type.shape, type.dtype)[()]


def _refuse_integers(name: str, number: int, types: Sequence[Type], structure: Structure) -> None:
    """Raise for leaves that are no floats, but for counters and tables that a module carries beside its
    weights.
    """
    for type, inside, path in zip(types, structure.in_dataclass, structure.paths):
        if not inside and not is_float(type.dtype):
            place = f"argument {number}" + (f" at {path}" if path else "")
            others = "name other arguments with argnums" if name == "grad" else "close over it in a lambda"
            raise DerivativeError(
                f"{name}: {place} is {type}, and integers have no derivative; pass floats, for instance with "
                f".astype(np.float32), or {others}"
            )


def _normal(name: str, argnums: int | Sequence[int], count: int) -> list[int]:
    wanted = [argnums] if isinstance(argnums, int) else list(argnums)
    for number in wanted:
        if not -count <= number < count:
            raise DerivativeError(
                f"{name}: argnums {number} of a function called with {count} positional arguments"
            )
    normal = [number % count for number in wanted]
    if len(set(normal)) != len(normal):
        raise DerivativeError(f"{name}: argnums {tuple(wanted)} names an argument twice")
    return normal


def _zero_if_absent(bar: Node | None, like: Node) -> Node:
    if bar is not None:
        return bar
    return broadcast_to_shape(as_array_node(np.zeros((), like.dtype)), like.shape)


def value_and_grad(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    r"""The function that gives ``function``'s value and its gradient together.

    .. math:: (f(x), \partial f / \partial x)

    Like ``grad``, and returns ``(value, gradient)``, or ``((value, extra), gradient)`` with ``has_aux``.

    >>> value, gradient = value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    >>> float(value), gradient
    (5.0, array([2., 4.]))
    """

    @wraps(function)
    def value_and_gradient(*arguments: Any, **keywords: Any) -> Any:
        chosen = _normal("grad", argnums, len(arguments))
        inside = Arguments("grad", arguments, chosen)
        with tracing(inside.variables):
            result = function(*inside.replaced, **keywords)
            loss, extra = _split(result) if has_aux else (result, None)
            value = _loss_node(loss)
            extras, extra_structure = output_nodes(extra)
            seed = as_array_node(np.ones((), value.dtype))
            bars = cotangents([value], [seed], inside.variables)
            gradients = [_zero_if_absent(bar, x) for bar, x in zip(bars, inside.variables)]
        outputs = finish([value, *gradients, *extras], inside.variables, inside.leaves)
        count = 1 + len(gradients)
        trees = inside.trees(outputs[1:count])
        gradient = trees[0] if isinstance(argnums, int) else tuple(trees)
        if has_aux:
            return (outputs[0], extra_structure.unflatten(outputs[count:])), gradient
        return outputs[0], gradient

    return value_and_gradient


def grad(function: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    r"""The gradient of a function whose result is a scalar, by reverse mode.

    .. math:: \nabla f(x) = \partial f / \partial x

    ``argnums`` tells the argument, or the arguments (a tuple: then the result is one too), to differentiate
    for; the others pass through untouched, so Python may look at them. The gradient has the structure, the
    shapes and the dtypes of its argument: for a model it is a model. With ``has_aux`` the function returns
    ``(value, extra)`` and the result is ``(gradient, extra)``. Works inside other transformations and on
    itself.

    Raises ``DerivativeError`` when the result is no float scalar or an argument holds integers.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 3.

    >>> round(float(grad(np.sin)(0.0)), 6)
    1.0
    >>> float(grad(grad(lambda x: x**3))(2.0))
    12.0
    """
    both = value_and_grad(function, argnums, has_aux)

    @wraps(function)
    def gradient(*arguments: Any, **keywords: Any) -> Any:
        value, result = both(*arguments, **keywords)
        return (result, value[1]) if has_aux else result

    return gradient


def _split(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TreeError(f"with has_aux the function returns (value, extra), not a {type(result).__name__}")
    return result


def _loss_node(loss: Any) -> Node:
    """The one scalar node that a gradient is taken of."""
    leaves, _ = flatten(loss)
    if len(leaves) != 1 or leaves[0] is not loss:
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
    with tracing(inside.variables):
        result = function(*inside.replaced)
        main, extra = _split(result) if has_aux else (result, None)
        outputs, structure = output_nodes(main)
        extras, extra_structure = output_nodes(extra)
    finished = finish([*outputs, *extras], inside.variables, inside.leaves)
    value = structure.unflatten(finished[: len(outputs)])
    smooth = [node for node in outputs if is_float(node.dtype)]
    seeds = [Variable(node.type, "cotangent") for node in smooth]
    bars = cotangents(smooth, seeds, inside.variables)
    pulled = [_zero_if_absent(bar, x) for bar, x in zip(bars, inside.variables)]

    def pull(cotangent: Any) -> tuple[Any, ...]:
        given = _like("vjp: the cotangent", cotangent, structure, outputs)
        values = [leaf for leaf, node in zip(given, outputs) if is_float(node.dtype)]
        results = finish(pulled, [*inside.variables, *seeds], [*inside.leaves, *values])
        return tuple(inside.trees(results))

    return (value, pull, extra_structure.unflatten(finished[len(outputs) :])) if has_aux else (value, pull)


def jvp(function: Function, primals: Sequence[Any], tangents_in: Sequence[Any]) -> tuple[Any, Any]:
    r"""The value at ``primals`` and its directional derivative along ``tangents_in``, by forward mode.

    .. math:: (f(x), \frac{\partial f}{\partial x} \dot x)

    ``primals`` and ``tangents_in`` are tuples with a tree for each argument. The tangent of an integer
    result is zero.

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
    directions = []
    for (leaves, smooth, structure), tangent in zip(inside.parts, tangents_in):
        nodes = [as_array_node(elementwise_zeros(leaf)) for leaf in leaves]
        given = _like("jvp: the tangent", tangent, structure, nodes)
        directions += [given[k] for k in smooth]
    moving = [Variable(x.type, "tangent") for x in inside.variables]
    with tracing(inside.variables):
        outputs, structure = output_nodes(function(*inside.replaced))
    moved = tangents(outputs, inside.variables, moving)
    zeros = [_zero_if_absent(tangent, output) for tangent, output in zip(moved, outputs)]
    variables = [*inside.variables, *moving]
    results = finish([*outputs, *zeros], variables, [*inside.leaves, *directions])
    half = len(outputs)
    return structure.unflatten(results[:half]), structure.unflatten(results[half:])


def _like(name: str, tree: Any, structure: Structure, nodes: Sequence[Node]) -> list[Any]:
    """The leaves of ``tree``, which must have this structure and the types of ``nodes``."""
    leaves, found = flatten(tree)
    if found != structure:
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
