"""The transformations that a user calls: functions in, functions out.

Each call traces the function on fresh variables, differentiates, and puts the arguments in place of the
variables. Because the variables are new every time, derivatives of derivatives cannot be confused, whatever
closes over what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, overload

import numpy as np

from pullback.errors import DerivativeError, TreeError
from pullback.graph import Node, Type, Variable, evaluating, is_complex, is_float, mark
from pullback.graph.named import is_named
from pullback.graph.values import mode
from pullback.numpy import elementwise
from pullback.numpy.arrays import TracedArray
from pullback.numpy.concrete import lost_derivative
from pullback.numpy.promotion import Scalar, as_array_node, as_node, broadcast_to_shape
from pullback.numpy.recipes import MOST_RECORDED
from pullback.numpy.tape import Tape
from pullback.tracing.functions import check_function, keeps_compiled, lines_of, transformed
from pullback.tracing.trace import (
    ended,
    finish,
    is_example,
    known_order,
    known_value,
    known_values,
    leaf_type,
    output_nodes,
    traces_under_way,
    tracing,
)
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import LEAF_ALONE, Structure, difference, flatten, handed_out, map_tree
from pullback.transforms.choosing import Argnums, choose, is_single
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents
from pullback.transforms.sweeps import (
    known_cotangents,
    learn_nested,
    nested_results,
    taped_results,
    taped_tangents,
)

__all__ = ["grad", "jvp", "stop_gradient", "value_and_grad", "vjp"]

Function = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")
Extra = TypeVar("Extra")
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
        self.are_known = True
        """Whether all leaves that take part have values."""
        self.leaves: list[Any] = []
        self.variables: list[Variable] = []
        self.handed: list[TracedArray] = []
        """What the function is given for them."""
        self.replaced = list(arguments)
        self.made: list[Any] = []
        """What stands for the chosen arguments."""
        self.parts: list[tuple[list[Any], list[int], Structure]] = []
        """For each argument its leaves, the positions of those that take part, and its structure."""
        for number in chosen:
            self._replace(name, number, arguments[number])

    def _replace(self, name: str, number: int, argument: Any) -> None:
        if isinstance(argument, TracedArray):
            leaves, structure = [argument.as_now()], LEAF_ALONE
        else:
            leaves, structure = flatten(argument)
        called, is_alone = f"arg{number}", structure.is_leaf
        types, changed, smooth = [], list(leaves), []
        for k, (leaf, is_trained) in enumerate(zip(leaves, (True,) if is_alone else structure.trained)):
            type = leaf_type(leaf)
            types.append(type)
            if is_trained and is_float(type.dtype):
                value = known_value(leaf, type)
                variable = Variable(type, called, value, value is None and is_example(leaf))
                if value is None:
                    self.are_known = False
                changed[k] = handed = TracedArray(variable, True)
                self.handed.append(handed)
                self.variables.append(variable)
                self.leaves.append(leaf)
                smooth.append(k)
        if len(smooth) < len(leaves):
            _refuse_integers(name, self.names.get(number, number), types, structure)
        self.parts.append((leaves, smooth, structure))
        self.replaced[number] = changed[0] if is_alone and smooth else structure.unflatten(changed)
        self.made.append(self.replaced[number])

    def evaluated(self, tape: Tape | None = None) -> evaluating:
        """The context in which the function is called: evaluated as it goes where all variables are known."""
        return evaluating(self.are_known, tape)

    def tape(self, outer: Tape | None = None) -> Tape | None:
        """A tape with the variables; ``None`` inside another trace, and for what has no place on one.

        Inside a trace with an ``outer`` tape they must stand for what is on that.
        """
        if traces_under_way():
            if outer is None:
                return None
            for leaf in self.leaves:
                if type(leaf) is not TracedArray or leaf.place_on(outer) < 0:
                    return None
        for variable in self.variables:
            if variable.type.dtype.kind != "f" or variable.value.nbytes > MOST_RECORDED:
                return None
        tape = Tape(self.variables)
        for place, handed in enumerate(self.handed):
            handed.put_on(tape, place)
        return tape

    def trees(self, values: Sequence[Any], rows: tuple[int, ...] = ()) -> list[Any]:
        """``values``, one for each variable, as trees like the arguments; zeros for leaves that are no
        floats or belong to a ``buffer()``. Each value, and so the zeros, has the axes ``rows`` in front.
        """
        supply = iter(values)
        trees = []
        for leaves, smooth, structure in self.parts:
            if structure.is_leaf and smooth:
                trees.append(handed_out(next(supply)))
                continue
            filled = [next(supply) for _ in smooth]
            if len(smooth) < len(leaves):
                moving = dict(zip(smooth, filled))
                filled = [
                    moving[k] if k in moving else elementwise_zeros(leaf, rows)
                    for k, leaf in enumerate(leaves)
                ]
            trees.append(structure.unflatten(filled))
        return trees


def elementwise_zeros(leaf: Any, rows: tuple[int, ...] = ()) -> Any:
    """Zeros of the type of ``leaf``, with the axes ``rows`` in front: concrete, unless an axis is of any size."""
    type = leaf_type(leaf)
    if any(map(is_named, type.shape)):
        return broadcast_to_shape(as_array_node(np.zeros((), type.dtype)), (*rows, *type.shape))
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


@keeps_compiled
def value_and_grad(
    function: Callable[P, R], argnums: Argnums = 0, has_aux: bool = False, *, holomorphic: bool = False
) -> Callable[P, tuple[R, Any]]:
    r"""The function that gives ``function``'s value and its gradient together.

    .. math:: (f(x), \partial f / \partial x)

    Like ``grad``, ``holomorphic`` too, and returns ``(value, gradient)``, or ``((value, extra), gradient)`` with
    ``has_aux``.

    >>> value, gradient = value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    >>> float(value), gradient
    (5.0, array([2., 4.]))
    """

    check_function("value_and_grad", function)
    taping = Taping()

    @partial(shows_users_frames, like=function)
    def value_and_gradient(*arguments: Any, **keywords: Any) -> Any:
        value, extra, gradient = _reverse(
            function, taping, argnums, has_aux, holomorphic, arguments, keywords
        )
        return ((value, *extra), gradient) if has_aux else (value, gradient)

    return value_and_gradient


def _reverse(
    function: Function,
    taping: Taping,
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> tuple[Any, tuple[Any, ...], Any]:
    """The value of ``function``, a tuple with what it brings along, if it does, and its gradient."""
    chosen = choose("grad", function, argnums, arguments, keywords)
    inside = Arguments("grad", chosen.arguments, chosen.numbers, chosen.names)
    variables, leaves = inside.variables, inside.leaves
    since, extra_structure = mark(), None
    outer = mode.tape
    tape = None if has_aux or holomorphic else taping.tape(inside, outer)
    with tracing(variables, inside.made):
        with inside.evaluated(tape):
            result = chosen.function(*inside.replaced, **chosen.keywords)
            check_kept(result[0] if has_aux and type(result) is tuple and result else result, function)
            results: Any = None
            if outer is not None and tape is not None:
                results = nested_results(outer, tape, result, leaves)
            elif tape is not None:
                results = taped_results(tape, result, variables)
        taping.note(tape, results)
        if results is None:
            loss, extra = _split(result, function) if has_aux else (result, None)
            node = _loss_node(loss, holomorphic, variables, function)
            found, extra_structure = output_nodes(extra) if has_aux else ((), None)
            value, *extras = ended([node, *found], since)
            order = known_order([value, *extras], leaves)
            if order is not None:
                bars = known_cotangents(order, value, variables, [value, *extras], tape, result)
            else:
                bars = cotangents([value], [as_array_node(np.ones((), value.dtype))], variables)
                if tape is not None:
                    learn_nested(tape, result, variables)
            gradients = [zero_if_absent(bar, x) for bar, x in zip(bars, variables)]
    if results is None:
        outputs = [value, *gradients, *extras]
        results = finish(outputs, variables, leaves) if order is None else known_values(outputs, variables)
    count = 1 + len(variables)
    trees = inside.trees(results[1:count])
    gradient = trees[0] if is_single(argnums) else tuple(trees)
    if extra_structure is None:
        return results[0], (), gradient
    return results[0], (extra_structure.unflatten(results[count:]),), gradient


class Taping:
    """When a function that is differentiated is put on a tape: not each time where that has often been in vain.

    It is where a function does what no recipe tells, or never the same twice.
    """

    __slots__ = ("_in_vain", "_waits")

    def __init__(self) -> None:
        self._in_vain = self._waits = 0

    def tape(self, inside: Arguments, outer: Tape | None) -> Tape | None:
        """A tape for a call, if there is to be one."""
        if self._waits:
            self._waits -= 1
            return None
        return inside.tape(outer)

    def note(self, tape: Tape | None, results: Any) -> None:
        """Learn from how a call went."""
        if results is not None:
            self._in_vain = 0
        elif tape is not None:
            self._in_vain += 1
            if self._in_vain > _TRIES:
                self._waits = min(self._in_vain**2, 1000)


_TRIES = 8
"""Calls until everything is learned that can be."""


@keeps_compiled
def grad(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    r"""The gradient of a function whose result is a scalar, by reverse mode.

    .. math:: \nabla f(x) = \partial f / \partial x

    ``argnums`` tells the argument, or the arguments (a tuple: then the result is one too), to differentiate
    for, each by its number or its name, which may be a keyword's; the others pass through untouched, so Python may
    look at them. The gradient has the structure, the
    shapes and the dtypes of its argument: for a model it is a model. With ``has_aux`` the function returns
    ``(value, extra)`` and the result is ``(gradient, extra)``. Works inside other transformations and on
    itself.

    Arguments may be complex. By :math:`z = x + iy` the gradient of a real :math:`f` is
    :math:`\partial f / \partial x - i\,\partial f / \partial y`, as in JAX and autograd. Its conjugate is the direction
    in which :math:`f` rises, and what PyTorch gives. A complex function of complex arguments has a gradient only if
    it is ``holomorphic``, its derivative :math:`f'(z)`; nobody checks that.

    Raises ``DerivativeError`` when the result is no float scalar, or complex where ``holomorphic`` is not said, or an
    argument holds integers.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 3.

    >>> round(float(grad(np.sin)(0.0)), 6)
    1.0
    >>> print(grad(lambda z: np.abs(z) ** 2)(3 + 4j), grad(lambda z: z**2, holomorphic=True)(3 + 4j))
    (6-8j) (6+8j)
    >>> float(grad(grad(lambda x: x**3))(2.0))
    12.0
    >>> print(*grad(lambda x, rate=1.0: x * rate**2, ("x", "rate"))(2.0, rate=3.0))
    9.0 12.0
    """

    check_function("grad", function)
    taping = Taping()

    @partial(shows_users_frames, like=function)
    def gradient(*arguments: Any, **keywords: Any) -> Any:
        _, extra, result = _reverse(function, taping, argnums, has_aux, holomorphic, arguments, keywords)
        return (result, *extra) if has_aux else result

    return gradient


def _split(result: Any, function: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        found = result.type if isinstance(result, Node) else f"a {type(result).__name__}"
        raise TreeError(
            f"with has_aux the function returns (value, extra), and it returned {found}; return both, or leave "
            f"has_aux out{lines_of(function, result)}"
        )
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


def check_kept(result: Any, function: Function) -> None:
    """Raise ``DerivativeError`` where a function returns the number that ``float(x)`` gave of its result."""
    if type(result) in (float, complex) and lost_derivative(result):
        raise DerivativeError(
            f"the function returned {result!r}, a {type(result).__name__} of Python that float() made of a traced "
            f"value, and its derivative is lost; return the value itself, without float(){lines_of(function)}"
        )


def outputs_of(result: Any, has_aux: bool, function: Function) -> Outputs:
    """The outputs of ``function`` that returned ``result``: ``(value, extra)`` with ``has_aux``."""
    if not has_aux:
        check_kept(result, function)
        return Outputs(*output_nodes(result), (), None)
    value, extra = _split(result, function)
    check_kept(value, function)
    return Outputs(*output_nodes(value), *output_nodes(extra))


def _loss_node(loss: Any, holomorphic: bool, variables: Sequence[Variable], function: Function) -> Node:
    """The one scalar node that a gradient is taken of."""
    if not isinstance(loss, Node) and not isinstance(loss, (*Scalar, np.ndarray, np.generic)):
        raise DerivativeError(
            f"grad: the function returned a {type(loss).__name__}, not one scalar; return the loss alone, or "
            f"(loss, extra) with has_aux=True{lines_of(function)}"
        )
    node = as_array_node(loss)
    if node.type.shape != ():
        raise DerivativeError(
            f"grad: the function returned {node.type}, and only a scalar has a gradient; return its sum or "
            "mean (np.mean(y)), take jacobian for the derivatives of all its elements, or vjp with a cotangent of this "
            f"shape{lines_of(function, node)}"
        )
    if not is_float(node.type.dtype):
        raise DerivativeError(
            f"grad: the function returned {node.type}, and only floats have a gradient; "
            f"cast an operand with .astype(np.float32) before computing the loss{lines_of(function, node)}"
        )
    check_complex("grad", holomorphic, variables, [node], function)
    return node


def check_complex(
    name: str,
    holomorphic: bool,
    variables: Sequence[Variable],
    outputs: Sequence[Node],
    function: Function,
) -> None:
    """Raise where complex results have no derivative, or what is said to be ``holomorphic`` is real."""
    found = [node for node in outputs if node.type.dtype.kind == "c"]
    if not holomorphic and not found:
        return
    if not holomorphic and found and (name == "grad" or any(is_complex(x.dtype) for x in variables)):
        raise DerivativeError(
            f"{name}: the function returned {found[0].type}, which has no derivative unless it is holomorphic; say "
            "holomorphic=True if it is, take a real part, np.real(y) or np.abs(y), or use vjp"
            f"{lines_of(function, found[0])}"
        )
    real = [node for node in (*variables, *outputs) if not is_complex(node.dtype)]
    if holomorphic and real:
        raise DerivativeError(
            f"{name}: holomorphic=True, and there is {real[0].type}; give complex arguments, with "
            f".astype(np.complex128), and return complex numbers{lines_of(function, real[0])}"
        )


@overload
def vjp(
    function: Callable[..., R], *arguments: Any, has_aux: Literal[False] = False
) -> tuple[R, Callable[[R], tuple[Any, ...]]]: ...


@overload
def vjp(
    function: Callable[..., tuple[R, Extra]], *arguments: Any, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[Any, ...]], Extra]: ...


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
    check_function("vjp", function)
    inside = Arguments("vjp", arguments, range(len(arguments)))
    since = mark()
    with tracing(inside.variables, inside.made), inside.evaluated():
        result = function(*inside.replaced)
        main, extra = _split(result, function) if has_aux else (result, None)
        check_kept(main, function)
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


@overload
def jvp(
    function: Callable[..., R],
    primals: Sequence[Any],
    tangents_in: Sequence[Any],
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...


@overload
def jvp(
    function: Callable[..., tuple[R, Extra]],
    primals: Sequence[Any],
    tangents_in: Sequence[Any],
    *,
    has_aux: Literal[True],
) -> tuple[R, R, Extra]: ...


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
    check_function("jvp", function)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents_in, (tuple, list)):
        raise TreeError(
            "jvp: primals and tangents are tuples with an entry for each argument: jvp(f, (x,), (t,))"
        )
    compiled = transformed(_along, function, (has_aux,))
    if compiled is not None:
        return compiled(tuple(primals), tuple(tangents_in))  # type: ignore[no-any-return]
    inside = Arguments("jvp", primals, range(len(primals)))
    if len(primals) != len(tangents_in):
        raise TreeError(f"jvp: {len(primals)} primals and {len(tangents_in)} tangents; give one for each")
    directions = directions_of("jvp: the tangent", inside, tangents_in)
    moving = [Variable(x.type, "tangent") for x in inside.variables]
    since = mark()
    tape = None if has_aux else inside.tape()
    with tracing(inside.variables, inside.made), inside.evaluated(tape):
        result = function(*inside.replaced)
        if tape is not None and not any(isinstance(along, Node) for along in directions):
            pair = taped_tangents(tape, result, inside.variables, directions)
            if pair is not None:
                return pair[0], pair[1]
        found = outputs_of(result, has_aux, function)
    every = ended([*found.outputs, *found.extras], since)
    half = len(found.outputs)
    moved = tangents(every[:half], inside.variables, moving)
    zeros = [zero_if_absent(tangent, output) for tangent, output in zip(moved, every)]
    variables = [*inside.variables, *moving]
    results = finish([*every[:half], *zeros, *every[half:]], variables, [*inside.leaves, *directions])
    value, tangent = (found.structure.unflatten(part) for part in (results[:half], results[half : 2 * half]))
    return (value, tangent, *found.extra(results[2 * half :]))


def _along(function: Function, has_aux: bool) -> Callable[..., tuple[Any, ...]]:
    """``jvp`` as a function of primals and tangents."""
    return wraps(function)(lambda primals, tangents_in: jvp(function, primals, tangents_in, has_aux))  # type: ignore[call-overload]


def directions_of(name: str, inside: Arguments, given: Sequence[Any]) -> list[Any]:
    """The leaves of tangents for the variables of ``inside``, whose arguments the trees ``given`` must be like."""
    directions = []
    for (leaves, smooth, structure), tangent in zip(inside.parts, given):
        models = [Variable(leaf_type(leaf)) for leaf in leaves]
        values = _like(name, tangent, structure, models)
        directions += [values[k] for k in smooth]
    return directions


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
        if is_complex(type.dtype) and not is_complex(node.dtype):
            raise DerivativeError(f"{name} is {type} where {node.type} is; give its real part, x.real")
        fitted.append(as_node(leaf, node.dtype) if isinstance(leaf, Node) else np.asarray(leaf, node.dtype))
    return fitted


def stop_gradient(tree: R) -> R:
    """``tree`` as constants: its values pass, derivatives do not.

    >>> float(grad(lambda x: x * stop_gradient(x))(3.0))
    3.0
    """
    return map_tree(elementwise.stop_gradient, tree)  # type: ignore[no-any-return]
