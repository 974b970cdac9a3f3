"""Derivatives by a user's own rule: ``custom_pullback`` and ``custom_pushforward``.

    results = custom(inputs)              one region, and the rule by which it is differentiated

The region computes the value. The pullback of the operation is what the user's functions give when they are traced; it
is made of ordinary operations, so it has derivatives itself. A rule that gives tangents is linear in them, and its
pullback is it transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, NoReturn

from pullback.control.regions import closed, same_for_all
from pullback.errors import DerivativeError, DTypeError, ShapeError, TreeError
from pullback.graph import (
    Constant,
    Graph,
    Node,
    Operation,
    Operator,
    TupleType,
    Type,
    Variable,
    apply,
    every_node,
    free_variables,
    is_float,
    mark,
    result,
    results,
    substitute,
    with_regions,
)
from pullback.interpreter import evaluate
from pullback.numpy.promotion import cast, where_written
from pullback.operators.batching import batch_first, batch_size, is_batched
from pullback.operators.elementwise import zeros_like
from pullback.operators.reductions import sum as sum_
from pullback.operators.varying import keeps_zeros
from pullback.tracing.trace import ended, finish, leaf_type, output_nodes, traces_under_way, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, difference, flatten
from pullback.transforms.batching import batched
from pullback.transforms.forward import refuse_crooked
from pullback.transforms.reverse import cotangents

__all__ = ["custom", "custom_pullback", "custom_pushforward", "without_rules"]

Function = Callable[..., Any]
Cotangents = list[Node | None]


class Rule:
    """How an operation is differentiated: from inputs and cotangents of the results to those of the inputs."""

    @property
    def forward_only(self) -> bool:
        """Whether forward mode has a rule of its own, where ``pull`` could not be transposed."""
        return False

    def pull(self, inputs: Sequence[Node], bars: Sequence[Node]) -> Cotangents:
        raise NotImplementedError

    def push(self, inputs: Sequence[Node], directions: Sequence[Node]) -> Cotangents:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class _Call:
    """A call of a user's function: how its arguments and results are made of nodes."""

    name: str
    captured: int
    """Inputs that the function closes over, which come first."""
    arguments: Structure
    results: Structure
    result_types: tuple[Type, ...]
    static: tuple[tuple[int, Any], ...]

    def given(self, nodes: Sequence[Node]) -> tuple[Any, ...]:
        """The arguments that are no static ones."""
        arguments: tuple[Any, ...] = self.arguments.unflatten(nodes[self.captured :])
        return arguments

    def whole(self, arguments: Sequence[Any]) -> list[Any]:
        """All arguments in their order."""
        found = list(arguments)
        for position, value in self.static:
            found.insert(position, value)
        return found

    @property
    def settings(self) -> list[Any]:
        return [value for _, value in self.static]

    def same_results(self, what: str, tree: Any, smooth: bool = False) -> list[Node]:
        """The leaves of a result of the rule, which must be like those of the function."""
        nodes, structure = output_nodes(tree)
        if not structure.fits(self.results):
            raise TreeError(
                f"{self.name}: {what} has another structure than the function's result: "
                f"{difference(self.results, structure)}{where_written()}"
            )
        return [
            _fitting(f"{self.name}: {what}", node, type, path) if is_float(type.dtype) or not smooth else node
            for node, type, path in zip(nodes, self.result_types, structure.paths)
        ]


def _fitting(what: str, node: Node, type: Type, path: str) -> Node:
    """``node`` in the type that it must have."""
    place = f" at {path}" if path else ""
    if node.shape != type.shape:
        raise ShapeError(f"{what}{place} is {node.type}; it must be {type}{where_written()}")
    if node.dtype != type.dtype and not (node.type.weak or type.weak):
        raise DTypeError(
            f"{what}{place} is {node.type}; it must be {type}: cast it with .astype(np.{type.dtype})"
            f"{where_written()}"
        )
    return cast(node, type.dtype)


@dataclass(frozen=True, eq=False)
class _UsersPullback(Rule):
    call: _Call
    forward: Function
    backward: Function
    pushforward: Function | None = None

    @property
    def forward_only(self) -> bool:
        return self.pushforward is not None

    def pull(self, inputs: Sequence[Node], bars: Sequence[Node]) -> Cotangents:
        call = self.call
        arguments = call.given(inputs)
        made = self.forward(*call.whole(arguments))
        if not isinstance(made, tuple) or len(made) != 2:
            raise TreeError(
                f"{call.name}: forward returns (value, residuals), not a {type(made).__name__}{where_written()}"
            )
        call.same_results("what forward gives", made[0])
        given = self.backward(*call.settings, made[1], call.results.unflatten(bars))
        if not isinstance(given, tuple) or len(given) != len(arguments):
            said = f"a tuple of {len(given)}" if isinstance(given, tuple) else f"a {type(given).__name__}"
            raise TreeError(
                f"{call.name}: backward returns {said}; give a tuple with a cotangent for each of {len(arguments)} "
                f"arguments, None where there is none{where_written()}"
            )
        found: Cotangents = [zeros_like(x) if is_float(x.dtype) else None for x in inputs[: call.captured]]
        for number, (argument, cotangent) in enumerate(zip(arguments, given)):
            leaves, structure = flatten(argument)
            if cotangent is None:
                found += [None] * len(leaves)
                continue
            nodes, own = output_nodes(cotangent)
            if not own.fits(structure):
                raise TreeError(
                    f"{call.name}: the cotangent of argument {number} has another structure: "
                    f"{difference(structure, own)}{where_written()}"
                )
            what = f"{call.name}: the cotangent of argument {number}"
            found += [
                _fitting(what, bar, leaf.type, path) if is_float(leaf.dtype) else None
                for bar, leaf, path in zip(nodes, leaves, structure.paths)
            ]
        return found

    def push(self, inputs: Sequence[Node], directions: Sequence[Node]) -> Cotangents:
        if self.pushforward is not None:
            return _pushed(self.call, self.pushforward, inputs, directions)
        seeds = [Variable(type, "cotangent") for type in self.call.result_types]
        with tracing(seeds):
            bars = self.pull(inputs, seeds)
        pairs = [(bar, d) for bar, d in zip(bars, directions) if bar is not None]
        found = cotangents([bar for bar, _ in pairs], [d for _, d in pairs], seeds)
        refuse_crooked(found, seeds, self.call.name)
        return found


def _pushed(call: _Call, rule: Function, inputs: Sequence[Node], directions: Sequence[Node]) -> Cotangents:
    """The tangents that a user's rule gives, as they must be."""
    made = rule(*call.settings, call.given(inputs), call.given(directions))
    if not isinstance(made, tuple) or len(made) != 2:
        raise TreeError(
            f"{call.name}: the rule returns (value, tangent), not a {type(made).__name__}{where_written()}"
        )
    call.same_results("the value that the rule gives", made[0])
    found = call.same_results("the tangent", made[1], smooth=True)
    return [node if is_float(type.dtype) else None for node, type in zip(found, call.result_types)]


@dataclass(frozen=True, eq=False)
class _UsersPushforward(Rule):
    call: _Call
    rule: Function

    def push(self, inputs: Sequence[Node], directions: Sequence[Node]) -> Cotangents:
        return _pushed(self.call, self.rule, inputs, directions)

    def pull(self, inputs: Sequence[Node], bars: Sequence[Node]) -> Cotangents:
        tangents = [Variable(x.type, "tangent") for x in inputs]
        with tracing(tangents):
            moved = self.push(inputs, tangents)
        pairs = [(node, bar) for node, bar in zip(moved, bars) if node is not None]
        found = cotangents([node for node, _ in pairs], [bar for _, bar in pairs], tangents)
        depends = {id(v) for v in free_variables(bar for bar in found if bar is not None)}
        if any(id(tangent) in depends for tangent in tangents):
            raise DerivativeError(
                f"{self.call.name}: the tangent is not linear in the tangents of the arguments, so it has no pullback; "
                f"only products of them with other values, and sums, may occur{where_written()}"
            )
        captured = self.call.captured
        for k, x in enumerate(inputs[:captured]):
            found[k] = zeros_like(x) if is_float(x.dtype) else None
        return [bar if is_float(x.dtype) else None for bar, x in zip(found, inputs)]


@dataclass(frozen=True, eq=False)
class _ForMany(Rule):
    """A rule for many examples at once, by that for one."""

    rule: Rule
    ones: tuple[Type, ...]
    results: tuple[Type, ...]

    @property
    def forward_only(self) -> bool:
        return self.rule.forward_only

    def pull(self, inputs: Sequence[Node], bars: Sequence[Node]) -> Cotangents:
        found = self._many(self.rule.pull, inputs, bars, self.results)
        size = bars[0].shape[0]
        return [
            None if many is None else _total(many, one, x, size)
            for many, one, x in zip(found, self.ones, inputs)
        ]

    def push(self, inputs: Sequence[Node], directions: Sequence[Node]) -> Cotangents:
        found = self._many(self.rule.push, inputs, directions, self.ones)
        size = next(x.shape[0] for x, one in zip(inputs, self.ones) if x.ndim > one.rank)
        return [
            None if many is None else same_for_all(many, Variable(one), size)
            for many, one in zip(found, self.results)
        ]

    def _many(
        self,
        rule: Callable[[Sequence[Node], Sequence[Node]], Cotangents],
        inputs: Sequence[Node],
        others: Sequence[Node],
        types: Sequence[Type],
    ) -> Cotangents:
        ones = [Variable(one, "example") for one in self.ones]
        seeds = [Variable(type, "example") for type in types]
        with tracing([*ones, *seeds]):
            made = rule(ones, seeds)
        there = iter(batched([n for n in made if n is not None], [*ones, *seeds], [*inputs, *others]))
        return [None if node is None else next(there) for node in made]


def _total(many: Node, one: Type, x: Node, size: int) -> Node:
    """The cotangent of an input: of each example, or their sum if it is the same for all."""
    whole = same_for_all(many, Variable(one), size)
    return whole if x.ndim > one.rank else sum_(whole, axes=(0,))


# -- what a user calls


class _Custom:
    """A function with a derivative of its own."""

    def __init__(self, function: Function, static_argnums: int | Sequence[int], kind: str) -> None:
        self.function, self.kind = function, kind
        self.static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        update_wrapper(self, function)

    def _rule(self, call: _Call) -> Rule | None:
        raise NotImplementedError

    def __call__(self, *arguments: Any) -> Any:
        return shows_users_frames(self._called)(*arguments)

    def _called(self, *arguments: Any) -> Any:
        name = f"{self.kind} {getattr(self.function, '__name__', 'function')}"
        static = tuple((k, arguments[k]) for k in sorted(k % len(arguments) for k in self.static))
        fixed = {k for k, _ in static}
        moving = tuple(argument for k, argument in enumerate(arguments) if k not in fixed)
        leaves, structure = flatten(moving)
        if not traces_under_way() and not any(isinstance(leaf, Node) for leaf in leaves):
            return self.function(*arguments)
        types = [leaf_type(leaf, f"{name}: argument {p}") for leaf, p in zip(leaves, structure.paths)]
        variables = [Variable(type, "argument") for type in types]
        since = mark()
        made = structure.unflatten(variables)
        call = _Call(name, 0, structure, structure, (), static)
        with tracing(variables, made):
            outputs, out = output_nodes(self.function(*call.whole(made)))
        outputs = ended(outputs, since)
        captured, body = closed(outputs, variables, since)
        call = _Call(name, len(captured), structure, out, tuple(node.type for node in outputs), static)
        rule = self._rule(call)
        if rule is None:
            raise DerivativeError(f"{name}: its rule is not given; give it with .define(…){where_written()}")
        around = [Variable(type, "argument") for type in types]
        kept = [
            x if isinstance(x, Constant) or not is_float(x.dtype) else no_derivative(x, what=name)
            for x in captured
        ]
        node = custom(*kept, *around, body=body, rule=rule)
        return out.unflatten(finish(results(node), around, leaves))


class _CustomPullback(_Custom):
    def define(
        self, forward: Function, backward: Function, pushforward: Function | None = None
    ) -> _CustomPullback:
        """Give the rule; returns the function itself."""
        self.rules = forward, backward, pushforward
        return self

    def _rule(self, call: _Call) -> Rule | None:
        return _UsersPullback(call, *self.rules) if hasattr(self, "rules") else None


class _CustomPushforward(_Custom):
    def define(self, rule: Function) -> _CustomPushforward:
        """Give the rule; returns the function itself."""
        self.rule = rule
        return self

    def _rule(self, call: _Call) -> Rule | None:
        return _UsersPushforward(call, self.rule) if hasattr(self, "rule") else None


def custom_pullback(function: Function, static_argnums: int | Sequence[int] = ()) -> _CustomPullback:
    r"""``function`` with a pullback of your own, which ``.define(forward, backward)`` gives.

    .. math:: \bar x = B(r, \bar y), \quad (y, r) = F(x)

    ``forward(*arguments)`` returns the value and whatever ``backward`` needs, ``(value, residuals)``;
    ``backward(residuals, cotangent)`` returns a tuple with the cotangent of each argument, ``None`` for one that has
    none. Arguments in ``static_argnums`` are no arrays: functions or settings. They stand first among the arguments of
    ``backward``. The rule holds in every transformation, also in forward mode, which transposes it; its own derivatives
    are those of what it computes. A rule that is not linear in its cotangent, as one that iterates until its result is
    close enough, cannot be transposed: for forward mode it takes a third function, ``pushforward(primals, tangents)``,
    which is that of ``custom_pushforward``. What the function closes over has no derivative: make it an argument.
    ``testing.check_grads(function, arguments)`` compares a rule with differences.

    Raises ``TreeError``, ``ShapeError`` or ``DTypeError`` where cotangents are not like the arguments, and
    ``DerivativeError`` where what is closed over is differentiated.

    Source: the meaning is that of ``jax.custom_vjp``.

    >>> import numpy as np, pullback as pb
    >>> @custom_pullback
    ... def softplus(x):
    ...     return np.log(1 + np.exp(x))
    >>> def forward(x):
    ...     return softplus(x), x
    >>> def backward(x, cotangent):
    ...     return (cotangent * pb.sigmoid(x),)
    >>> _ = softplus.define(forward, backward)
    >>> float(pb.grad(softplus)(0.0)), float(pb.grad(pb.grad(softplus))(0.0))
    (0.5, 0.25)

    The derivative of a fixed point :math:`x = f(a, x)` needs no derivative of the steps to it, only another fixed
    point, :math:`w = \bar x + w \, \partial f / \partial x`:

    >>> def fixed_point(f, a, guess):
    ...     apart = lambda pair: abs(pair[0] - pair[1]) > 1e-12
    ...     return pb.while_loop(apart, lambda pair: (f(a, pair[0]), pair[0]), (f(a, guess), guess))[0]
    >>> solve = custom_pullback(fixed_point, static_argnums=0)
    >>> def solve_forward(f, a, guess):
    ...     x = solve(f, a, guess)
    ...     return x, (a, x)
    >>> def solve_backward(f, residuals, bar):
    ...     a, x = residuals
    ...     def transposed(arguments, w):
    ...         a, x, bar = arguments
    ...         return bar + pb.vjp(lambda x: f(a, x), x)[1](w)[0]
    ...     w = solve(transposed, (a, x, bar), bar)
    ...     return pb.vjp(lambda a: f(a, x), a)[1](w)[0], None
    >>> _ = solve.define(solve_forward, solve_backward)
    >>> root = lambda a: solve(lambda a, x: (x + a / x) / 2, a, a)
    >>> round(float(root(2.0)), 6), round(float(pb.grad(root)(2.0)), 6), round(float(pb.grad(pb.grad(root))(2.0)), 6)
    (1.414214, 0.353553, -0.088388)
    """
    return _CustomPullback(function, static_argnums, "custom_pullback")


def custom_pushforward(function: Function, static_argnums: int | Sequence[int] = ()) -> _CustomPushforward:
    r"""``function`` with a pushforward of your own, which ``.define(rule)`` gives.

    .. math:: \dot y = P(x, \dot x)

    ``rule(primals, tangents)`` takes tuples with an entry for each argument and returns ``(value, tangent)``; the
    tangent is linear in the ``tangents``. Reverse mode transposes it. Arguments in ``static_argnums`` stand first, and
    all else is as with ``custom_pullback``.

    Source: the meaning is that of ``jax.custom_jvp``.

    >>> import numpy as np, pullback as pb
    >>> @custom_pushforward
    ... def length(x):
    ...     return np.sqrt((x * x).sum())
    >>> @length.define
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     value = length(x)
    ...     return value, (x * t).sum() / np.where(value > 0, value, 1.0)
    >>> pb.grad(lambda x: length(x))(np.zeros(2))
    array([0., 0.])
    """
    return _CustomPushforward(function, static_argnums, "custom_pushforward")


# -- the operators


def _type_rule(*types: Type, body: Graph, rule: Rule) -> Type:
    for position, (given, variable) in enumerate(zip(types, body.inputs, strict=True)):
        if (given.dtype, given.shape) != (variable.dtype, variable.shape):
            raise ShapeError(f"custom: input {position} is {given}, its region takes {variable.type}")
    return TupleType.of([node.type for node in body.outputs])


def _traced(
    rule: Callable[[Sequence[Node], Sequence[Node]], Cotangents],
    inputs: Sequence[Node],
    others: Sequence[Node],
) -> Cotangents:
    """A user's rule traced on variables of its own, with nodes in their places afterwards."""
    variables = [Variable(x.type, "argument") for x in (*inputs, *others)]
    with tracing(variables):
        made = rule(variables[: len(inputs)], variables[len(inputs) :])
    replaced: dict[Node, Node] = dict(zip(variables, (*inputs, *others)))
    there = iter(substitute([node for node in made if node is not None], replaced))
    return [None if node is None else next(there) for node in made]


def _pullback(node: Operation, bars: Sequence[Node | None], wanted: Sequence[bool]) -> Cotangents:
    outputs = node.attributes["body"].outputs
    seeds = [zeros_like(output) if bar is None else bar for output, bar in zip(outputs, bars)]
    return _traced(node.attributes["rule"].pull, node.inputs, seeds)


def _pushforward(node: Operation, directions: Sequence[Node | None]) -> Cotangents:
    given = [zeros_like(x) if d is None else d for x, d in zip(node.inputs, directions)]
    return _traced(node.attributes["rule"].push, node.inputs, given)


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    body: Graph = node.attributes["body"]
    size = batch_size(inputs, node.inputs)
    own = [
        Variable(v.type.with_shape((size, *v.shape)), v.name) if is_batched(x, v) else v
        for x, v in zip(inputs, body.inputs)
    ]
    made = batched(body.outputs, body.inputs, own)
    outputs = [same_for_all(many, one, size) for many, one in zip(made, body.outputs)]
    rule = _ForMany(
        node.attributes["rule"],
        tuple(v.type for v in body.inputs),
        tuple(output.type for output in body.outputs),
    )
    return results(custom(*inputs, body=Graph(tuple(own), tuple(outputs)), rule=rule))


custom = Operator(  # type: ignore[arg-type]
    "custom",
    _type_rule,
    lambda *arrays, body, rule: evaluate(body, arrays),
    _pullback,
    _batch,
    None,
    (),
    pushforward=_pushforward,
    forward_only=lambda node: node.attributes["rule"].forward_only,
)
"""See the head of this file."""


def _refuse(node: Operation, cotangent: Node) -> NoReturn:
    raise DerivativeError(
        f"{node.attributes['what']}: a derivative is asked for by {node.type}, which the function closes over, and its "
        f"rule says nothing about that; make it an argument, or use stop_gradient{where_written()}"
    )


no_derivative = Operator(
    "no_derivative",
    lambda x, what: x,
    lambda x, what: x,
    _refuse,
    batch_first,
    lambda node, operands, index: operands[0](index),
    (),
    vary=keeps_zeros,
)
"""What a function with a rule of its own closes over."""


def without_rules(graph: Graph) -> Graph:
    """``graph`` as it is computed: with the regions in place of operations that have a user's rule."""
    names = ("custom", "no_derivative")
    if not any(isinstance(node, Operation) and node.operator.name in names for node in every_node(graph)):
        return graph
    several: dict[int, Sequence[Node]] = {}

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if node.operator is no_derivative:
            return inputs[0]
        if node.operator is custom:
            body = without_rules(node.attributes["body"])
            several[id(node)] = substitute(body.outputs, dict(zip(body.inputs, inputs)))
            return node
        if node.operator is result and id(inputs[0]) in several:
            picked: Node = several[id(inputs[0])][node.attributes["index"]]
            return picked
        return apply(node.operator, inputs, with_regions(node.attributes, without_rules))

    return replace(graph, outputs=substitute(graph.outputs, {}, rebuild))
