"""Functions that are evaluated as they go: Python may look at the values, and what it makes of them is a constant."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, IndexRangeError, TracingError


def branch(x):
    return x**3 if x > 0 else -2 * x


def newton(a):
    x = a
    while abs(x * x - a) > 1e-12:
        x = 0.5 * (x + a / x)
    return x


def steps(x, n=0):
    return x if float(x) > 100 else steps(x * x, n + 1)


def filled(x, made=None):
    made = np.zeros(3) if made is None else made
    made[0] = x
    return made.sum()


def test_branches_loops_and_recursion():
    assert pb.grad(branch)(2.0) == 12 and pb.grad(branch)(-2.0) == -2
    assert pb.grad(newton)(2.0) == pytest.approx(0.5 / math.sqrt(2))
    assert pb.grad(steps)(3.0) == 8 * 3**7
    assert pb.grad(lambda x: max(x, x * x))(3.0) == 6
    assert pb.grad(lambda x: sum(sorted([x, x * x, 1.0])[:2]))(3.0) == 1


def test_every_transformation_and_nesting():
    assert pb.value_and_grad(branch)(2.0) == (8, 12)
    assert pb.jvp(branch, (2.0,), (1.0,)) == (8, 12)
    value, pull = pb.vjp(branch, 2.0)
    assert (value, pull(1.0), pull(2.0)) == (8, (12,), (24,))
    assert pb.grad(pb.grad(branch))(2.0) == 12
    assert pb.grad(lambda x: pb.grad(branch)(x) if x > 1 else x)(2.0) == 12
    assert pb.grad(lambda x: pb.grad(lambda y: x * y if y > x else y)(x + 1))(2.0) == 1
    np.testing.assert_array_equal(
        pb.hessian(lambda x: (x**3).sum() if x.sum() > 0 else x.sum())(np.arange(2.0)), [[0, 0], [0, 6]]
    )
    np.testing.assert_array_equal(
        pb.jacobian(lambda x: x[x > 0] ** 2)(np.arange(3.0)), [[0, 2, 0], [0, 0, 4]]
    )


def test_numbers_and_text():
    seen = []

    def function(x):
        seen.extend([int(x), round(x), math.floor(x), math.ceil(x), float(x), complex(x), np.float32(x)])
        seen.extend([f"{x:.2f}", str(x), format(x), x.item()])
        return round(x, 1) * float(x)

    assert pb.grad(function)(2.75) == 0
    assert seen == [2, 3, 2, 3, 2.75, 2.75, 2.75, "2.75", "2.75", "2.75", 2.75]


def test_shapes_that_depend_on_values():
    x = np.array([-1.0, 2.0, 3.0, 2.0])
    for function, slopes in (
        (lambda x: np.sum(x[x > 0] ** 2), [0, 4, 6, 4]),
        (lambda x: np.sum(x[np.nonzero(x > 0)] ** 2), [0, 4, 6, 4]),
        (lambda x: x[np.where(x < 0)].sum(), [1, 0, 0, 0]),
        (lambda x: np.sum(np.unique(x) ** 2), [-2, 4, 6, 0]),
        (lambda x: x[: np.argmax(x)].sum(), [1, 1, 0, 0]),
        (lambda x: x[np.argmax(x)] * [1, 2, 5, 4][np.argmax(x)], [0, 0, 5, 0]),
        (lambda x: np.array([1.0, 5.0, 7.0, 9.0])[np.argsort(x)] @ x, [1, 5, 9, 7]),
        (lambda x: np.compress(x > 2, x).sum() + np.repeat(x, np.argmax(x)).sum(), [2, 2, 3, 2]),
        (lambda x: (x.sum() * np.arange(np.argmax(x) + 1)).sum(), [3, 3, 3, 3]),
    ):
        np.testing.assert_array_equal(pb.grad(function)(x), slopes)


def test_errors_come_where_they_happen():
    def function(x):
        try:
            return x[np.argmax(x) + 2]
        except IndexRangeError:
            return np.sum(x) * 2

    np.testing.assert_array_equal(pb.grad(function)(np.array([1.0, 3.0])), [2, 2])


@pytest.mark.parametrize("wrapped", [pb.jit(branch), pb.jit(pb.grad(branch))])
def test_compiled_functions_refuse_decisions(wrapped):
    with pytest.raises(TracingError, match=r"stands for every value.*np\.where.*test_known_values\.py"):
        wrapped(2.0)


@pytest.mark.parametrize(
    "wrapped", [pb.vmap(branch), pb.vmap(pb.grad(branch)), pb.grad(lambda x: pb.vmap(branch)(x).sum())]
)
def test_batches_refuse_decisions(wrapped):
    with pytest.raises(TracingError, match=r"stands for each example of a batch \(vmap\).*np\.where"):
        wrapped(np.ones(2))


def test_what_is_the_same_for_all_examples_may_decide():
    assert pb.grad(lambda x: pb.vmap(lambda y: y * x if x > 0 else y)(np.arange(3.0)).sum())(2.0) == 3


def test_derivatives_are_not_lost_on_the_way():
    with pytest.raises(TracingError, match=r"has a derivative, which would be lost.*math"):
        pb.grad(math.sin)(1.0)
    with pytest.raises(TracingError, match=r"np\.zeros_like\(x, shape=n\).*pullback\.numpy\.zeros"):
        pb.grad(filled)(1.0)
    with pytest.raises(TracingError, match=r"np\.zeros_like\(x, shape=n\)"):
        pb.jit(filled)(1.0)
    with pytest.raises(TracingError, match="would be lost"):
        pb.grad(lambda x: np.array([x, x]).sum())(1.0)
    assert pb.grad(lambda x: x * math.sin(pb.stop_gradient(x)))(1.0) == math.sin(1.0)
    assert pb.grad(lambda x: x * math.sin(float(x)))(1.0) == math.sin(1.0)


def test_values_do_not_outlive_their_trace():
    kept = []
    pb.grad(lambda x: kept.append(x * 2) or x * x)(3.0)
    with pytest.raises(TracingError, match="a trace that is over"):
        pb.grad(lambda y: y * kept[0])(2.0)


def test_arguments_are_not_written_and_results_are_the_callers():
    x = np.arange(3.0)
    value, pull = pb.vjp(lambda x: x, x)
    value[:] = 7
    np.testing.assert_array_equal(pull(np.ones(3))[0], 1)
    np.testing.assert_array_equal(x, np.arange(3.0))
    value, pull = pb.vjp(np.exp, x)
    value[:] = 0
    np.testing.assert_array_equal(pull(np.ones(3))[0], np.exp(x))


REPEATED = {
    "list": lambda x, n: sum([x] * n),
    "number first": lambda x, n: sum(n * [x, x]),
    "tuple": lambda x, n: len((0,) * n) * x,
    "text": lambda x, n: len("ab" * n) * x,
}


@pytest.mark.parametrize("function", REPEATED.values(), ids=REPEATED)
def test_a_sequence_times_an_integer_is_repeated(function):
    """As Python and NumPy have it; a product of the elements it would be of an array."""
    slope = pb.grad(lambda x: function(x[0], np.argmax(x)))
    x = np.array([2.0, 3.0, 5.0, 4.0])
    expected = function(1.0, 2)
    np.testing.assert_array_equal(slope(x), [expected, 0, 0, 0])
    with pytest.raises(TracingError, match=r"one integer .*repetition.*test_known_values\.py"):
        pb.jit(function)(2.0, 3)


def test_a_list_times_a_float_is_a_product():
    np.testing.assert_array_equal(pb.jit(lambda x: [1.0, 2.0] * x + x * (3.0, 4.0))(2.0), [8, 12])
    np.testing.assert_array_equal(pb.jit(lambda n: np.multiply([1, 2], n))(3), [3, 6])


@pytest.mark.parametrize("make", ["zeros", "ones", "empty"])
@pytest.mark.parametrize("transform", [pb.jit, lambda f: pb.vmap(lambda n: f(n[0]))])
def test_numpys_own_arrays_of_a_traced_shape(make, transform):
    with pytest.raises(
        TracingError, match=r"int64\[\] stands for.*np\.zeros.*static_argnums.*test_known_values\.py"
    ):
        transform(lambda n: getattr(np, make)(n) + n)(
            np.array(3) if transform is pb.jit else np.array([[3], [4]])
        )


def test_formats_of_numbers():
    assert pb.grad(lambda x: x * len(f"{x:.2f}"))(1.0) == 4.0
    with pytest.raises(TracingError, match=r"a format such as .*debug\.print.*test_known_values\.py"):
        pb.jit(lambda x: x * len(f"{x:.2f}"))(1.0)


LOST = "float of Python that float.* made of a traced value"


@pytest.mark.parametrize(
    "derivative",
    [
        pb.grad,
        pb.value_and_grad,
        pb.jacobian,
        pb.hessian,
        lambda f: lambda x: pb.vjp(f, x),
        lambda f: lambda x: pb.jvp(f, (x,), (x,)),
        lambda f: lambda x: pb.linearize(f, x),
        lambda f: pb.grad(lambda x: (f(x), x), has_aux=True),
    ],
)
def test_a_result_that_float_took_the_derivative_of_is_refused(derivative):
    with pytest.raises(DerivativeError, match=LOST):
        derivative(lambda x: float((x**2).sum()))(np.ones(3))


def test_numbers_that_are_constants_may_be_returned():
    assert pb.grad(lambda x: x if float(x) > 0 else 0.0)(-1.0) == 0
    assert pb.grad(lambda x: float(np.sum(np.ones(2))) + 0 * x)(-1.0) == 0


def test_float_is_understood_however_often_a_function_was_called():
    slope = pb.grad(lambda x: x.sum() * float(x.sum()))
    for _ in range(40):  # Python makes faster instructions of calls that it sees often
        assert slope(np.ones(3)).tolist() == [3, 3, 3]


@pytest.mark.parametrize("dtype", ["int64", "int8", "float64", "float32", "complex64"])
@pytest.mark.parametrize(
    "function",
    [lambda x, a: a - x, lambda x, a: x * a, lambda x, a: np.maximum(x, a.real), lambda x, a: x / (3 + a)],
)
def test_arrays_in_the_other_byte_order_are_numbers_like_others(function, dtype):
    x, a = np.array([1.0, -2.0, 0.5]), np.array([3, 1, -2], dtype)
    slope = pb.grad(lambda x, a: np.sum(np.real(function(x, a))))
    for _ in range(4):
        np.testing.assert_array_equal(slope(x, a.astype(a.dtype.newbyteorder())), slope(x, a))
