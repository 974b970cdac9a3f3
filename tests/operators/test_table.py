"""Every operator of the table, checked in every way that follows from its cases."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import pkgutil

import numpy as np
import pytest

from pullback import operators
from pullback.graph import OPERATORS, Graph, check, constant, is_complex, is_float
from pullback.interpreter import evaluate
from pullback.testing import OperatorCase, check_grads, operator_cases
from pullback.transforms.reverse import cotangents

FLOAT16, FLOAT32, FLOAT64 = (np.dtype(kind) for kind in (np.float16, np.float32, np.float64))
COMPLEX64, COMPLEX128 = np.dtype(np.complex64), np.dtype(np.complex128)
FINE = (FLOAT64, COMPLEX128)
"""The dtypes that finite differences are taken in."""

HOLDING = {"call", "compiled", "custom", "host_call", "no_derivative", "result", "scan", "switch", "while"}
HOLDING |= {"all_gather", "pmax", "pmin", "psum", "psum_scatter"}
HOLDING |= {"fixed", *(name for name in OPERATORS if name.startswith("lapack_"))}
"""Operators of control flow, which have attributes that no case can name, and those that the compiler makes of others;
``tests/control``, ``tests/transforms`` and ``tests/compiler`` check them."""

every_operator = pytest.mark.parametrize("name", [name for name in OPERATORS if name not in HOLDING])


@functools.cache
def described() -> set[str]:
    """Names bound, in a module of operators, by an assignment that a docstring follows."""
    names = set()
    for module in pkgutil.iter_modules(operators.__path__):
        body = ast.parse(inspect.getsource(importlib.import_module(f"pullback.operators.{module.name}"))).body
        for statement, following in itertools.pairwise(body):
            if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)):
                continue
            if isinstance(statement, ast.Assign):
                names.update(target.id for target in statement.targets if isinstance(target, ast.Name))
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                names.add(statement.target.id)
    return names


def gradient(case: OperatorCase) -> Graph:
    """The cotangents of the case's differentiable inputs for random cotangents of its output."""
    graph = case.graph()
    random, output = np.random.default_rng(0), graph.outputs[0]
    values = random.uniform(-1, 1, output.shape)
    if is_complex(output.dtype):
        values = values + 1j * random.uniform(-1, 1, output.shape)
    seed = constant(values, output.dtype)
    bars = cotangents(graph.outputs, [seed], [graph.inputs[k] for k in case.differentiable])
    return Graph(graph.inputs, tuple(bar for bar in bars if bar is not None))


def is_smooth(case: OperatorCase) -> bool:
    """Whether the case is one of floats, in and out."""
    return bool(case.differentiable) and is_float(case.graph().outputs[0].dtype)


@every_operator
def test_has_a_case_and_a_description(name: str) -> None:
    assert list(operator_cases(name)), "no case is of a dtype that the operator takes"
    assert name in described(), "say what it computes in a docstring under the operator"


@every_operator
def test_reference_follows_type_rule(name: str) -> None:
    for case in operator_cases(name):
        graph = case.graph()
        check(graph)
        with np.errstate(all="ignore"):
            value = np.asarray(case.operator.reference(*case.arguments(), **case.attributes))
        assert value.dtype == graph.outputs[0].dtype, case
        assert value.shape == graph.outputs[0].shape, case


@every_operator
def test_reference_leaves_its_inputs_alone(name: str) -> None:
    for case in operator_cases(name, vary_shapes=False):
        arguments = case.arguments()
        for argument in arguments:
            argument.flags.writeable = False
        evaluate(case.graph(), arguments)


@every_operator
def test_derivatives_agree_with_finite_differences(name: str) -> None:
    cases = [case for case in operator_cases(name, dtypes=FINE) if is_smooth(case)]
    cases = [case for case in cases if case.graph().outputs[0].dtype in FINE]
    takes_floats = any(is_float(dtype) for case in operator_cases(name) for dtype in case.dtypes)
    assert cases or not takes_floats or OPERATORS[name].pullback is None, "no case has a derivative to check"
    for case in cases:
        try:
            check_grads(case.apply, case.arguments(), active=case.differentiable)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from error


@every_operator
def test_float32_gradients_are_those_of_float64(name: str) -> None:
    for case in operator_cases(name, dtypes=[FLOAT32, COMPLEX64]):
        kinds = {kind for kind in case.dtypes if kind in (FLOAT32, COMPLEX64)}
        if not is_smooth(case) or not kinds:
            continue
        single = case.arguments()
        twice = {FLOAT32: FLOAT64, COMPLEX64: COMPLEX128}
        double = [x.astype(twice.get(x.dtype, x.dtype)) for x in single]
        rough = evaluate(gradient(case), single)
        wide = case.in_dtype(FLOAT32, FLOAT64).in_dtype(COMPLEX64, COMPLEX128)
        exact = evaluate(gradient(wide), double)
        for r, e in zip(rough, exact, strict=True):
            assert r.dtype in kinds, case
            np.testing.assert_allclose(r, e, rtol=2e-5, atol=2e-5, err_msg=str(case))


@every_operator
def test_float16_gradients_are_those_of_float32(name: str) -> None:
    """Rounded after each operation: to a few units in the last place of the largest."""
    for case in operator_cases(name, dtypes=[FLOAT16], vary_shapes=False):
        if FLOAT16 not in case.dtypes or not is_smooth(case):
            continue
        half = case.arguments()
        single = [x.astype(np.float32) if x.dtype == FLOAT16 else x for x in half]
        rough, exact = (
            evaluate(gradient(case), half),
            evaluate(gradient(case.in_dtype(FLOAT16, FLOAT32)), single),
        )
        for r, e in zip(rough, exact, strict=True):
            assert r.dtype == FLOAT16, case
            scale = 1 + float(np.abs(e).max(initial=0))
            np.testing.assert_allclose(r, e, rtol=0, atol=2e-2 * scale, err_msg=str(case))


@every_operator
def test_gradient_graphs_are_well_typed(name: str) -> None:
    for case in operator_cases(name):
        if is_smooth(case):
            graph = gradient(case)
            check(graph)
            kept = [case.types[k] for k in case.differentiable]
            assert all(
                any(bar.type.shape == t.shape and bar.dtype == t.dtype for t in kept) for bar in graph.outputs
            )


@every_operator
def test_linear_operators_are_linear(name: str) -> None:
    if not OPERATORS[name].linear:
        return
    for case in operator_cases(name, dtypes=FINE):
        if not is_smooth(case):
            continue
        arguments = case.arguments()
        floats = [k for k, dtype in enumerate(case.dtypes) if is_float(dtype)]
        moved = [x * 3.0 if k in floats else x for k, x in enumerate(arguments)]
        (once,), (thrice,) = evaluate(case.graph(), arguments), evaluate(case.graph(), moved)
        np.testing.assert_allclose(thrice, 3.0 * once, rtol=1e-6, err_msg=str(case))
