"""What is only read inside one mask is masked once, and read so.

The cotangent behind a ``relu`` is ``where(m, g, 0)``, and its products with slopes and statistics have the mask around
them: ``where(m, g * x, 0)``. Where ``m`` is true, ``g`` is the masked ``g``; with that inside as well, nobody reads
``g`` itself any more. What a product or a convolution leaves in memory is then masked as it leaves the registers
(``lower.py``), and what goes on with it in another region needs the mask no more.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> m = Variable(Type(np.dtype(np.bool_), (3,)), "m")
>>> g, x = (Variable(Type(np.dtype(np.float32), (3,)), name) for name in "gx")
>>> y = pnp.exp(g)
>>> graph = Graph((m, g, x), (pnp.where(m, y, 0), pnp.where(m, y * x, 0)))
>>> print(format_graph(masked_once(graph), sources=False))
input  %0 m: bool[3]
input  %1 g: float32[3]
input  %2 x: float32[3]
%3 = exp(%1): float32[3]
%4 = constant 0.0: float32[]
%5 = broadcast(%4, axes=(), shape=(3,)): float32[3]
%6 = where(%0, %3, %5): float32[3]
%7 = multiply(%6, %2): float32[3]
%8 = where(%0, %7, %5): float32[3]
output %6, %8
"""

from __future__ import annotations

from pullback.compiler.passes.rewriting import GraphPass, inner, readers_of, rebuilt, scalar
from pullback.graph import Graph, Node, Operation, apply
from pullback.operators.logic import where

__all__ = ["masked_once"]


def _masked_once(graph: Graph) -> Graph:
    order = graph.nodes()
    users, results = readers_of(order), set(graph.outputs)

    def inside(node: Operation, mask: Node) -> bool:
        """Whether an elementwise operation is read inside the mask only."""
        return (
            node.operator.elementwise
            and node not in results
            and all(
                inner(outer, "where") is not None
                and outer.inputs[0] is mask
                and [x is node for x in outer.inputs] == [False, True, False]
                for outer in users.get(id(node), ())
            )
        )

    replaced: dict[Node, Operation] = {}
    for node in order:
        choice = inner(node, "where")
        if choice is None or scalar(choice.inputs[2]) is None:
            continue
        mask, value, _ = choice.inputs
        others = [user for user in users[id(value)] if user is not choice]
        if not isinstance(value, Operation) or value in results or value is mask:
            continue
        if others and all(inside(user, mask) for user in others):
            replaced[value] = choice
    if not replaced:
        return graph

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node | None:
        body = node.inputs[1] if inner(node, "where") is not None else None
        if not isinstance(body, Operation):
            return None
        mask, new, other = inputs
        parts = list(new.inputs)
        for k, old in enumerate(body.inputs):
            known = replaced.get(old)
            if known is not None and known is not node and known.inputs[0] is node.inputs[0]:
                parts[k] = where(mask, parts[k], known.inputs[2])
        return where(mask, apply(body.operator, tuple(parts), body.attributes), other)

    return rebuilt(graph, rebuild)


masked_once = GraphPass("masked_once", _masked_once)
"""Values that are only read inside one mask, masked once for all that read them."""
