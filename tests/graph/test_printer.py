"""Graphs as text."""

from __future__ import annotations

import inspect

import numpy as np

from pullback.graph import OPERATORS, Graph, Signature, Type, Variable, constant, format_graph, written_at

FLOAT = np.dtype("float64")
ADD, SIN, SUM = (OPERATORS[name] for name in ("add", "sin", "sum"))


def test_one_node_a_line():
    x, y = Variable(Type(FLOAT, (2, 3)), "x"), Variable(Type(FLOAT, (2, 3)))
    shared = SIN(x)
    total = SUM(ADD(ADD(shared, y), shared), axes=(0, 1))
    graph = Graph((x, y), (ADD(total, constant(1.5)), shared))
    assert format_graph(graph, sources=False).splitlines() == [
        "input  %0 x: float64[2, 3]",
        "input  %1 _: float64[2, 3]",
        "%2 = sin(%0): float64[2, 3]",
        "%3 = add(%2, %1): float64[2, 3]",
        "%4 = add(%3, %2): float64[2, 3]",
        "%5 = sum(%4, axes=(0, 1)): float64[]",
        "%6 = constant 1.5: float64[]",
        "%7 = add(%5, %6): float64[]",
        "output %7, %2",
    ]


def test_large_constants_and_free_variables():
    x = Variable(Type(FLOAT, (2,)), "x")
    text = format_graph(Graph((), (ADD(x, constant([1.0, 2.0])),)), sources=False)
    assert text.splitlines() == [
        "free   %0: float64[2]",
        "%1 = constant ...: float64[2]",
        "%2 = add(%0, %1): float64[2]",
        "output %2",
    ]


def test_sources_stand_beside_their_operations():
    x = Variable(Type(FLOAT, ()), "x")
    node, line = SIN(x), inspect.currentframe().f_lineno
    with written_at(None):
        nowhere = SIN(node)
    lines = format_graph(Graph((x,), (nowhere,))).splitlines()
    assert lines[1].split("#") == [
        f"{'%1 = sin(%0): float64[]':<60}  ",
        f" test_printer.py:{line} in test_sources_stand_beside_their_operations",
    ]
    assert lines[2] == "%2 = sin(%1): float64[]"


def test_graphs_in_attributes_are_printed_inside():
    x = Variable(Type(FLOAT, ()), "x")
    inner = Graph((x,), (SIN(x),))
    outer = SIN(x)
    # An operator that takes a body, such as a loop, holds a graph as an attribute.
    held = type(outer)(Signature(outer.operator, (x.type,), {"body": inner}, outer.type), outer.inputs)
    assert (
        format_graph(Graph((x,), (held,)), sources=False).splitlines()[1]
        == "%1 = sin(%0, body=input  %0 x: float64[]"
    )
