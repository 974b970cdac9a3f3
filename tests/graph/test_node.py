"""Nodes: equal operations are one node, as long as somebody holds it."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, SMALL_CONSTANT, Constant, Operator, Type, Variable, constant
from pullback.graph.node import _interned

FLOAT = np.dtype("float64")
ADD, SIN, SUM, RESHAPE = (OPERATORS[name] for name in ("add", "sin", "sum", "reshape"))


def variable(*shape: int, name: str = "x") -> Variable:
    return Variable(Type(FLOAT, shape), name)


def test_equal_operations_are_one_node():
    x, y = variable(3), variable(3)
    assert ADD(x, y) is ADD(x, y)
    assert ADD(x, y) is not ADD(y, x)
    assert SIN(ADD(x, y)) is SIN(ADD(x, y))
    assert RESHAPE(x, shape=(3, 1)) is RESHAPE(x, shape=(3, 1))
    assert RESHAPE(x, shape=(3, 1)) is not RESHAPE(x, shape=(1, 3))
    assert ADD(x, variable(3)) is not ADD(x, variable(3))


def test_variables_are_never_one_node():
    assert variable(3) is not variable(3)


def test_small_constants_are_one_node():
    assert constant(2.0) is constant(2.0)
    assert constant([1, 2]) is constant([1, 2])
    assert constant(2.0) is not constant(2)
    assert constant(2.0) is not constant(2.0, np.float32)
    assert constant(2.0) is not constant([2.0])
    assert constant(2.0) is not constant(2.0, weak=True)
    assert constant(0.0) is not constant(-0.0)
    assert constant(np.nan) is constant(np.nan)
    large = np.zeros(SMALL_CONSTANT + 1)
    before = constant(large)
    assert constant(large) is before
    assert constant(large.copy()) is not before
    assert constant(large.astype(np.float32), np.float64).dtype == np.float64
    large[0] = -0.0
    assert constant(large) is not before
    # Arrays that are made and lost in turns may have one address; whether they have must not change a graph.
    of_many = [constant(large + 1) for _ in range(20)]
    assert len(set(map(id, of_many))) == 20
    assert not np.signbit(before.value).any()


def test_constants_keep_their_value():
    array = np.arange(3.0)
    node = constant(array)
    array[:] = 7
    np.testing.assert_array_equal(node.value, [0, 1, 2])
    assert not node.value.flags.writeable
    fortran = constant(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    assert fortran.value.flags.c_contiguous


def test_nodes_nobody_holds_are_dropped():
    x = variable(3)
    kept = SIN(x)
    node = ADD(kept, SIN(SIN(x)))
    dropped = [weakref.ref(node), weakref.ref(node.inputs[1])]
    entries = _interned.references.values()
    assert all(any(each is reference for each in entries) for reference in dropped)
    del node
    gc.collect()
    assert [reference() for reference in dropped] == [None, None]
    len(_interned)  # sweeps the table
    assert not any(each is reference for each in entries for reference in dropped)
    assert SIN(x) is kept


def test_long_chains_are_dropped_without_recursion():
    gc.collect()
    before = len(_interned)
    node = variable()
    chain = []
    for _ in range(20_000):
        node = SIN(node)
        chain.append(weakref.ref(node))
    assert all(link() is not None for link in chain)
    del node
    gc.collect()
    assert all(link() is None for link in chain)
    assert len(_interned) <= before  # some that others have left may go as well


def test_threads_get_the_same_node():
    x = variable(3)
    made = []
    gate = threading.Barrier(4)

    def work():
        gate.wait()
        made.append([SIN(ADD(x, constant([1.0, 2.0, float(k)]))) for k in range(200)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for nodes in zip(*made, strict=True):
        assert len(set(map(id, nodes))) == 1


def test_a_node_has_an_arrays_shape():
    x = variable(2, 3)
    total = SUM(x, axes=(1,))
    assert (x.shape, x.ndim, x.size, x.dtype) == ((2, 3), 2, 6, FLOAT)
    assert (total.shape, total.ndim, total.size) == ((2,), 1, 2)
    assert x.inputs == () and total.inputs[0] is x


def test_attributes_cannot_be_changed():
    total = SUM(variable(2, 3), axes=(1,))
    with pytest.raises(TypeError):
        total.attributes["axes"] = (0,)


def test_nodes_say_what_they_are():
    x = variable(2)
    assert repr(x) == "Variable(x: float64[2])"
    assert repr(SIN(x)) == "Operation(sin: float64[2])"
    assert repr(constant(3.0)) == "Constant(3.0: float64[])"
    assert repr(constant([1, 2])) == "Constant(int64[2])"
    assert repr(SIN) == "Operator(sin)"
    assert isinstance(constant(1), Constant)


def test_errors_of_type_rules_end_with_the_users_line():
    with pytest.raises(ShapeError) as caught:
        ADD(variable(2), variable(3))
    line = caught.tb.tb_lineno if caught.tb else 0
    place = f"\n  at {__file__}:{line} in test_errors_of_type_rules_end_with_the_users_line"
    assert str(caught.value).endswith(place)
    with pytest.raises(DTypeError, match=r"float64 and int64.*\n  at "):
        ADD(variable(2), Variable(Type(np.dtype("int64"), (2,))))


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), (0.0, -0.0), ((1,), (1.0,)), ((0.0,), (-0.0,))]
)
def test_attributes_that_are_equal_but_not_the_same(one, other):
    x = Variable(Type(np.dtype(np.float64), (3,)), "x")
    marked = Operator("marked", lambda x, by: x, lambda x, by: x, None, lambda *_: x, None, ())
    del OPERATORS["marked"]
    assert one == other
    assert marked(x, by=one) is marked(x, by=one)
    assert repr(marked(x, by=other).attributes["by"]) == repr(other)
