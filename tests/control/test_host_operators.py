"""Operators without a lowering in compiled programs: called by their references, or as routines at addresses."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.key.graph import graph_key
from pullback.compiler.programs.executable import make_executable
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.control.host import with_host_calls
from pullback.errors import CallbackError
from pullback.graph import (
    OPERATORS,
    Graph,
    InputAt,
    Operator,
    OutputAt,
    Routine,
    Scalar,
    TupleType,
    Type,
    Variable,
    result,
    results,
)

Array = Any
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(6, 3))


# ---------------------------------------------------------------------- operators without a lowering


@pytest.fixture
def without_lowering() -> Iterator[tuple[Operator, Operator]]:
    """Operators of one result and of two that nobody has written a lowering for."""
    from pullback.operators.batching import batch_first

    ranks = Operator(
        "ranks_of_test",
        lambda x, axis: x,
        lambda x, axis: np.argsort(np.argsort(x, axis=axis), axis=axis).astype(x.dtype),
        None,
        batch_first,
        None,
        (),
    )
    halves = Operator(
        "halves_of_test",
        lambda x: TupleType.of([x, Type(np.dtype(np.int64), x.shape)]),
        lambda x: [x / 2, np.floor(x / 2).astype(np.int64)],
        None,
        batch_first,
        None,
        (),
    )
    try:
        yield ranks, halves
    finally:
        del OPERATORS["ranks_of_test"], OPERATORS["halves_of_test"]


def test_an_operator_without_a_lowering_is_called(without_lowering: tuple[Operator, Operator]) -> None:
    ranks, halves = without_lowering
    x = Variable(Type(np.dtype(np.float64), (6, 3)), "x")
    half, whole = (result(halves(ranks(x * 2, axis=1)), index=k) for k in (0, 1))
    graph = Graph((x,), (half + x, whole))
    made = make_executable(graph, {}).program(X)
    order = np.argsort(np.argsort(X, axis=1), axis=1)
    np.testing.assert_array_equal(made[0], order / 2 + X)
    np.testing.assert_array_equal(made[1], order // 2)
    check_stages(graph, [X], Processor.host())
    looped = pb.trace(lambda x: pb.scan(lambda c, row: (c + ranks(row * c, axis=0), c), x[0], x), X)
    check_stages(with_host_calls(looped.graph), [X], Processor.host())
    found = make_executable(looped.graph, {}).program(X)
    for value, right in zip(found, pb.flatten(looped.evaluate([X]))[0]):
        np.testing.assert_allclose(value, right, rtol=1e-12)


def test_a_reference_of_another_shape_is_an_error() -> None:
    try:
        wrong = Operator("wrong_of_test", lambda x: x, lambda x: x[:1], None, lambda *_: None, None, ())
        x = Variable(Type(np.dtype(np.float64), (3,)), "x")
        with pytest.raises(CallbackError, match=r"wrong_of_test: its reference gives \[1\], its type rule"):
            make_executable(Graph((x,), (wrong(x),)), {}).program(X[0])
    finally:
        del OPERATORS["wrong_of_test"]


# ---------------------------------------------------------------------- routines at addresses


def lapack(name: str) -> int:
    """The address of one of LAPACK's functions in SciPy."""
    functions = pytest.importorskip("scipy.linalg.cython_lapack").__pyx_capi__
    python = ctypes.pythonapi
    name_of, pointer_of = python.PyCapsule_GetName, python.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer_of(functions[name], name_of(functions[name]))
    return address


@pytest.fixture
def factor() -> Iterator[Operator]:
    """Cholesky's factor of matrices, of which LAPACK writes the lower triangle, and how it ended."""
    address, integer = lapack("dpotrf"), np.dtype(np.int32)

    def type_rule(x: Type) -> TupleType:
        return TupleType.of([x, Type(integer, x.shape[:-2])])

    def reference(x: Array) -> list[Array]:
        return [np.linalg.cholesky(x) + np.triu(x, 1), np.zeros(x.shape[:-2], integer)]

    def routine(x: Type) -> Routine:
        n = Scalar(x.shape[-1], integer)
        upper = Scalar(ord("U"), np.dtype(np.int8))  # of the transposed matrix, which is stored by columns
        arguments = (upper, n, OutputAt(0, start=0), n, OutputAt(1))
        return Routine("dpotrf", address, arguments, count=math.prod(x.shape[:-2]))

    def batch(node: Any, inputs: Any) -> Any:
        return results(node.operator(*inputs))

    try:
        yield Operator("factor_of_test", type_rule, reference, None, batch, None, (), routine=routine)
    finally:
        OPERATORS.pop("factor_of_test", None)


def positive(*shape: int) -> Array:
    x = RANDOM.normal(size=(*shape, 5, 5))
    return x @ np.swapaxes(x, -1, -2) + np.eye(5)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_an_operator_may_be_a_routine_at_an_address(factor: Operator, shape: tuple[int, ...]) -> None:
    a = positive(*shape)
    x = Variable(Type(a.dtype, a.shape), "x")
    lower, info = (result(factor(x * 2), index=k) for k in (0, 1))
    graph = Graph((x,), (lower + 1, info))
    wanted = np.linalg.cholesky(2 * a) + np.triu(2 * a, 1) + 1
    for _ in range(2):  # compiled, then from the cache
        found = make_executable(graph, {}).program(a)
        np.testing.assert_allclose(found[0], wanted, rtol=1e-12)
        np.testing.assert_array_equal(found[1], np.zeros(shape, np.int32))
    check_stages(graph, [a], Processor.host())
    bad = np.broadcast_to(-np.eye(5), a.shape)
    assert (make_executable(graph, {}).program(bad)[1] == 1).all()


def test_a_routine_in_a_loop(factor: Operator) -> None:
    def f(xs: Array) -> Any:
        def step(c: Array, x: Array) -> Any:
            made = result(factor(x + c @ c.T), index=0)
            return np.tril(made), np.sum(c)

        return pb.scan(step, np.zeros((5, 5)), xs)

    xs = positive(4)
    traced = pb.trace(f, xs)
    assert pb.trace(pb.vmap(f), xs[None]).out_structure == traced.out_structure
    wanted = pb.flatten(traced.evaluate([xs]))[0]
    before = pb.get_num_threads()
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            for value, right in zip(pb.flatten(pb.jit(f)(xs))[0], wanted):
                np.testing.assert_allclose(value, right, rtol=1e-9)
    finally:
        pb.set_num_threads(before)


def test_what_a_routine_is_given() -> None:
    kinds = (ctypes.POINTER(ctypes.c_double), ctypes.c_double, ctypes.c_int64, ctypes.POINTER(ctypes.c_float))
    seen: list[Any] = []

    def scale(x: Any, factor: float, size: int, made: Any) -> None:
        seen.append((factor, size))
        for k in range(size):
            made[k] = x[k] * factor

    function = ctypes.CFUNCTYPE(None, *kinds)(scale)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0

    def routine(x: Type, by: float) -> Routine:
        double, integer = np.dtype(np.float64), np.dtype(np.int64)
        given = (InputAt(0), Scalar(by, double, True), Scalar(x.shape[1], integer, True), OutputAt(0))
        return Routine("scale", address, given, count=x.shape[0])

    try:
        scaled = Operator(
            "scaled_of_test",
            lambda x, by: Type(np.dtype(np.float32), x.shape),
            lambda x, by: (x * by).astype(np.float32),
            None,
            lambda *_: None,
            None,
            (),
            routine=routine,
        )
        x = Variable(Type(np.dtype(np.float64), (6, 3)), "x")
        keys = []
        for by in (2.0, -0.1):
            graph = Graph((x,), (scaled(x, by=by),))
            keys.append(graph_key(with_host_calls(graph), {}))
            (found,) = make_executable(graph, {}).program(X)
            np.testing.assert_array_equal(found, (X * by).astype(np.float32))
        assert seen == [(2.0, 3)] * 6 + [(-0.1, 3)] * 6
        assert keys[0] != keys[1]
        both = Graph((x,), (scaled(x, by=0.0), scaled(x, by=-0.0)))
        found = make_executable(both, {}).program(np.ones((6, 3)))
        assert not np.signbit(found[0]).any() and np.signbit(found[1]).all()
    finally:
        del OPERATORS["scaled_of_test"]
