"""The transformations: gradients as trees, nesting, confusion of perturbations, and what is refused."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback import grad, hessian, jit, jvp, stop_gradient, trace, value_and_grad, vjp
from pullback.errors import DerivativeError, TreeError
from pullback.graph import Node
from pullback.tracing import flatten


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Dense:
    weights: Any
    bias: Any
    count: Any = None
    units: int = 2


def loss(model, x):
    return ((x @ model.weights + model.bias) ** 2).sum() * model.units


# -- Values


def test_gradient_of_a_number():
    np.testing.assert_allclose(grad(lambda x: np.sin(np.cos(x)))(1.0), -np.cos(np.cos(1)) * np.sin(1))
    assert isinstance(grad(np.sin)(np.float32(0.5)), np.float32)
    assert isinstance(grad(np.sin)(0.5), np.float64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_has_the_type_of_the_argument(dtype):
    x = np.ones((2, 3), dtype)
    value, gradient = value_and_grad(lambda x: (x * np.float64(2)).sum())(x)
    assert (gradient.dtype, gradient.shape, value.dtype) == (dtype, (2, 3), np.float64)
    np.testing.assert_array_equal(gradient, 2.0)


def test_the_gradient_of_a_tree_is_a_tree():
    tree = {"w": [np.ones(2), 3.0], "p": Pair(2.0, None)}
    gradient = grad(lambda t: (t["w"][0] * t["w"][1]).sum() * t["p"].a)(tree)
    np.testing.assert_array_equal(gradient["w"][0], [6.0, 6.0])
    assert gradient["w"][1] == 4.0
    assert gradient["p"] == Pair(6.0, None)


def test_the_gradient_of_a_model_is_a_model():
    model = Dense(np.ones((3, 2)), np.zeros(2), np.array([1, 2]))
    gradient = grad(loss)(model, np.ones((1, 3)))
    np.testing.assert_array_equal(gradient.bias, [12.0, 12.0])
    assert gradient.units == 2
    # An integer table among the weights has no derivative; its place is kept.
    np.testing.assert_array_equal(gradient.count, [0, 0])
    assert gradient.count.dtype == model.count.dtype


def test_several_arguments():
    function = lambda x, y, z: x * y**2 + z  # noqa: E731
    assert grad(function, 1)(3.0, 2.0, 1.0) == 12.0
    assert grad(function, (2, 0))(3.0, 2.0, 1.0) == (1.0, 4.0)
    assert grad(function, -1)(3.0, 2.0, 1.0) == 1.0
    assert value_and_grad(function, (0,))(3.0, 2.0, 1.0) == (13.0, (4.0,))


def test_other_arguments_stay_concrete():
    def repeated(x, times, labels, *, add=0.0):
        assert isinstance(labels, np.ndarray)
        for _ in range(times):
            x = x * x
        return x[labels].sum() + add

    np.testing.assert_array_equal(
        grad(repeated)(np.array([1.0, 2.0]), 2, np.array([1, 1]), add=1.0), [0.0, 64.0]
    )


def test_an_argument_that_does_not_matter():
    np.testing.assert_array_equal(grad(lambda x: 3.0)(np.ones(2)), [0.0, 0.0])
    np.testing.assert_array_equal(grad(lambda x: np.floor(x).sum())(np.ones(2)), [0.0, 0.0])


def test_extra_results():
    function = lambda x: (x * x, {"twice": 2 * x, "n": 5})  # noqa: E731
    gradient, extra = grad(function, has_aux=True)(3.0)
    assert (gradient, extra) == (6.0, {"twice": 6.0, "n": 5})
    (value, extra), gradient = value_and_grad(function, has_aux=True)(3.0)
    assert (value, gradient, extra["twice"]) == (9.0, 6.0, 6.0)
    value, pull, extra = vjp(function, 3.0, has_aux=True)
    assert (value, pull(1.0), extra["twice"]) == (9.0, (6.0,), 6.0)


def test_arguments_are_not_written_into():
    x = np.ones(3)
    gradient = grad(lambda x: x.sum())(x)
    gradient += 1
    np.testing.assert_array_equal(x, 1.0)


def test_shared_values_are_accumulated():
    def function(x):
        y = np.sin(x)
        return (y * y + y * x + y).sum()

    x = np.array([0.3, 0.7])
    expected = np.cos(x) * (2 * np.sin(x) + x + 1) + np.sin(x)
    np.testing.assert_allclose(grad(function)(x), expected)


# -- Nesting


def test_derivatives_of_derivatives():
    function = lambda x: x**5  # noqa: E731
    for order, expected in enumerate([80.0, 160.0, 240.0, 240.0, 120.0, 0.0]):
        function = grad(function)
        assert function(2.0) == expected, order


def test_no_confusion_of_perturbations():
    # Siskind & Pearlmutter, 2005: d/dx (x * d/dy (x + y)) = 1, where confusing the two gives 2.
    assert grad(lambda x: x * grad(lambda y: x + y)(1.0))(1.0) == 1.0
    assert grad(lambda x: x * jvp(lambda y: x + y, (1.0,), (1.0,))[1])(1.0) == 1.0
    assert jvp(lambda x: x * grad(lambda y: x * y)(2.0), (3.0,), (1.0,))[1] == 6.0
    assert jvp(lambda x: x * jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))[1] == 1.0


def test_the_inner_argument_may_depend_on_the_outer():
    assert grad(lambda x: grad(lambda y: x * y * y)(x))(3.0) == 12.0
    assert grad(lambda x: vjp(lambda y: y**3, x)[1](x)[0])(2.0) == 36.0


def test_forward_over_reverse_is_reverse_over_forward():
    function = lambda x: (np.tanh(x) * x[::-1]).sum()  # noqa: E731
    x, v = np.array([0.3, -0.7, 1.1]), np.array([1.0, 2.0, -1.0])
    one = jvp(grad(function), (x,), (v,))[1]
    other = grad(lambda x: (grad(function)(x) * v).sum())(x)
    third = grad(lambda x: jvp(function, (x,), (v,))[1])(x)
    np.testing.assert_allclose(one, other)
    np.testing.assert_allclose(one, third)


def test_inside_a_trace_they_give_nodes():
    seen = []

    def function(x):
        gradient = grad(lambda y: (y * y * x).sum())(np.ones(2))
        seen.append(gradient)
        return gradient + vjp(np.sin, x)[1](x)[0]

    traced = trace(function, np.ones(2))
    assert isinstance(seen[0], Node)
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(traced.evaluate([x]), 2 * x + x * np.cos(x))


def test_a_gradient_that_closes_over_nothing_is_concrete():
    def function(x):
        step = grad(lambda y: y**2)(1.5)
        assert not isinstance(step, Node)
        return x * step

    assert grad(function)(1.0) == 3.0


# -- vjp and jvp


def test_pullback_of_a_tree():
    value, pull = vjp(
        lambda x, y: {"product": x * y, "sum": x.sum(), "n": np.array([1, 2])}, np.array([1.0, 2.0]), 3.0
    )
    np.testing.assert_array_equal(value["product"], [3.0, 6.0])
    x_bar, y_bar = pull({"product": np.array([1.0, 10.0]), "sum": 100.0, "n": np.zeros(2)})
    np.testing.assert_array_equal(x_bar, [103.0, 130.0])
    assert y_bar == 21.0
    again, _ = pull({"product": np.zeros(2), "sum": 1.0, "n": np.zeros(2)})
    np.testing.assert_array_equal(again, [1.0, 1.0])


def test_directional_derivative_of_a_tree():
    primals = ({"a": np.array([1.0, 2.0]), "b": 3.0},)
    value, tangent = jvp(
        lambda t: (t["a"] * t["b"], t["b"], np.ones(2)), primals, ({"a": np.ones(2), "b": 10.0},)
    )
    np.testing.assert_array_equal(value[0], [3.0, 6.0])
    np.testing.assert_array_equal(tangent[0], [13.0, 23.0])
    assert tangent[1] == 10.0
    np.testing.assert_array_equal(tangent[2], [0.0, 0.0])


def test_forward_agrees_with_reverse():
    matrix = np.arange(6.0).reshape(2, 3)
    function = lambda x: np.tanh(matrix @ x)  # noqa: E731
    x, v, w = np.array([0.1, 0.2, -0.3]), np.array([1.0, 0.5, 2.0]), np.array([2.0, -1.0])
    tangent = jvp(function, (x,), (v,))[1]
    np.testing.assert_allclose(tangent @ w, vjp(function, x)[1](w)[0] @ v)


def test_cotangents_take_the_dtype_of_the_result():
    assert vjp(lambda x: x * x, np.ones(2, np.float32))[1](np.ones(2))[0].dtype == np.float32
    traced = trace(lambda g: vjp(lambda x: x * x, np.ones(2, np.float32))[1](g)[0], np.ones(2))
    assert traced.graph.outputs[0].dtype == np.float32


def test_stop_gradient_on_trees():
    assert grad(lambda x: x * stop_gradient({"x": x})["x"])(3.0) == 3.0
    assert jvp(lambda x: x * stop_gradient(x), (3.0,), (1.0,))[1] == 3.0
    assert stop_gradient([1, 2.0]) == [1, 2.0]


# -- What is refused


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: grad(np.sin)(np.ones(2)), r"returned float64\[2\].*sum or mean .*take jacobian.*or vjp"),
        (lambda: grad(np.sin)(1), r"argument 0 is int64\[\], and integers have no derivative.*astype"),
        (lambda: grad(lambda x, y: x, 1)(1.0, np.arange(3)), "argument 1 is int64"),
        (lambda: grad(lambda t: t["a"])({"a": 1.0, "b": [2.0, True]}), r"argument 0 at b\.1 is bool"),
        (lambda: grad(lambda x: x.astype(int))(1.0), r"returned int64\[\], and only floats"),
        (lambda: grad(lambda x: None)(1.0), "returned a NoneType"),
        (lambda: grad(lambda x: (x, x))(1.0), "has_aux=True"),
        (lambda: grad(lambda x: x, 1)(1.0), "argnums 1 of a function called with 1"),
        (lambda: grad(lambda x: x, (0, -1))(1.0), "names an argument twice"),
        (lambda: vjp(lambda x: x, np.arange(3)), "integers have no derivative.*close over it"),
        (lambda: vjp(lambda x: x, np.ones(2))[1](np.ones(3)), r"the cotangent has shape \(3,\), not \(2,\)"),
        (lambda: jvp(lambda x: x, ([np.ones(2)],), ([1.0],)), r"the tangent at 0 has shape \(\), not \(2,\)"),
    ],
)
def test_derivatives_that_do_not_exist(attempt, message):
    with pytest.raises(DerivativeError, match=message):
        attempt()


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: grad(lambda x: x)("text"), "holds a str"),
        (lambda: grad(lambda x: x, has_aux=True)(1.0), r"returns \(value, extra\)"),
        (lambda: vjp(lambda x: (x, x), 1.0)[1](1.0), "another structure at the root"),
        (lambda: jvp(np.sin, 1.0, 1.0), r"jvp\(f, \(x,\), \(t,\)\)"),
        (lambda: jvp(np.sin, (1.0,), (1.0, 2.0)), "1 primals and 2 tangents"),
        (lambda: jvp(np.sin, (1.0,), ([1.0],)), "another structure"),
    ],
)
def test_structures_that_do_not_fit(attempt, message):
    with pytest.raises(TreeError, match=message):
        attempt()


def test_errors_about_results_name_the_functions_line():
    def doubled(x):
        return x * 2

    def loss(x):
        return doubled(x)

    def extra(x):
        return {"a": x}

    first = loss.__code__.co_firstlineno
    transformed = (
        grad(loss),
        value_and_grad(loss),
        jit(grad(loss)),
        hessian(loss),
        grad(partial(loss)),
        grad(jit(loss)),
    )
    for function in transformed:
        with pytest.raises(DerivativeError) as caught:
            function(np.ones(2))
        assert f"its result: {__file__}:{first - 2} in doubled" in str(caught.value)
        assert f"the function: {__file__}:{first} in loss" in str(caught.value)
    with pytest.raises(DerivativeError, match=rf"the function: .*:{first + 3} in extra$"):
        grad(extra)(1.0)
    with pytest.raises(TreeError, match=rf"it returned a dict; .*\n.*:{first + 3} in extra$"):
        vjp(extra, 1.0, has_aux=True)
    with pytest.raises(DerivativeError) as caught:
        grad(doubled)(np.ones(2))
    assert str(caught.value).endswith(f"\n  its result: {__file__}:{first - 2} in doubled")


def test_the_function_keeps_its_name():
    assert grad(loss).__name__ == "loss"
    assert flatten(grad(np.sin)(1.0))[0] == [np.cos(1.0)]


@pytest.mark.parametrize("one", [1, np.int64(1), np.float64(1), True], ids=repr)
def test_directions_of_other_dtypes_are_cast_inside_other_transformations(one):
    """A number beside a traced argument is no tangent of its dtype yet."""
    expected = float(pb.grad(np.tan)(0.3))
    functions = [
        lambda x: pb.jvp(np.tan, (x,), (one,))[1],
        lambda x: pb.vjp(np.tan, x)[1](one)[0],
        lambda x: pb.hvp(np.tan, (x,), (one,))[0][0],
        lambda x: pb.linearize(np.tan, x)[1](one),
        lambda x: pb.taylor(np.tan, (x,), ([one, 0],))[1][0],
    ]
    for function in functions:
        assert pb.jit(function)(0.3) == pytest.approx(expected)
        assert pb.vmap(function)(np.array([0.3])) == pytest.approx(expected)
        assert pb.jit(function)(np.float32(0.3)).dtype == np.float32
        assert pb.grad(function)(0.3) == pytest.approx(float(pb.grad(pb.grad(np.tan))(0.3)))
