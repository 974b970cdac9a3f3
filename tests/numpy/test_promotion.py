"""Promotion against NumPy's own, pair by pair, and what broadcasting refuses."""

import numpy as np
import pytest

from pullback.errors import DTypeError, ShapeError
from pullback.graph import DTYPES, Type, Variable
from pullback.numpy.promotion import any_traced, as_node, float_dtype, result_dtype
from pullback.tracing import trace

WEAK = {
    True: Type(np.dtype(bool), (), True),
    2: Type(np.dtype("int64"), (), True),
    0.5: Type(np.dtype("float64"), (), True),
}


@pytest.mark.parametrize("left", DTYPES, ids=str)
@pytest.mark.parametrize("right", DTYPES, ids=str)
def test_two_arrays(left, right):
    assert result_dtype(Type(left, (3,)), Type(right, ())) == np.result_type(left, right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", WEAK)
def test_python_numbers_take_the_dtype_that_they_meet(dtype, number):
    assert result_dtype(Type(dtype, (3,)), WEAK[number]) == np.result_type(dtype, number)


def test_numbers_among_themselves():
    assert result_dtype(WEAK[True], WEAK[2]) == np.int64
    assert result_dtype(WEAK[2], WEAK[0.5]) == np.float64


@pytest.mark.parametrize("number", [2, 0.5])
def test_a_traced_number_is_as_weak_as_a_number(number):
    graph = trace(lambda n, x: n * x, number, np.ones(3, np.float32)).graph
    assert graph.outputs[0].dtype == np.float32


def test_weakness_ends_where_a_dtype_is_named():
    x = Variable(Type(np.dtype("float64"), (), True))
    assert (x * 2).type.weak
    assert not x.astype(np.float64).type.weak
    assert (x.astype(np.float64) * np.ones(2, np.float32)).dtype == np.float64


def test_an_integer_that_does_not_fit_is_refused():
    x = Variable(Type(np.dtype("uint8"), (2,)))
    with pytest.raises(DTypeError, match=r"300 is outside uint8 \[0, 255\].*astype"):
        x + 300
    assert as_node(255, np.dtype("uint8")).dtype == np.uint8


@pytest.mark.parametrize(
    ("dtype", "wide"), [("bool", "float32"), ("int16", "float32"), ("uint64", "float64")]
)
def test_float_functions_never_use_half_precision(dtype, wide):
    assert float_dtype(np.dtype(dtype)) == wide


def test_shapes_that_do_not_broadcast():
    x = Variable(Type(np.dtype("float32"), (3, 4)))
    with pytest.raises(
        ShapeError, match=r"add: shapes \(3, 4\) and \(3,\) do not broadcast.*test_promotion\.py"
    ):
        x + np.ones(3)


def test_what_is_no_array_is_refused():
    x = Variable(Type(np.dtype("float32"), (3,)))
    for other in ("text", None, object(), np.longdouble(1)):
        with pytest.raises(DTypeError):
            x + other


def test_traced_values_are_found_in_lists_and_slices():
    x = Variable(Type(np.dtype("int64"), ()))
    assert any_traced([1, (2, x)])
    assert any_traced(slice(None, x))
    assert not any_traced(1, [2], slice(3))
