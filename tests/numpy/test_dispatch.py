"""NumPy's functions on traced values, and the errors of what Python cannot know while tracing."""

import copy
import math
import operator

import numpy as np
import pytest

import pullback as pb
import pullback.numpy as pnp
from pullback.errors import TracingError
from pullback.graph import Constant, Node, Type, Variable
from pullback.numpy.dispatch import FUNCTIONS
from pullback.numpy.elementwise import UFUNCS
from pullback.numpy.methods import METHODS


def variable(shape=(3,), dtype="float64"):
    return Variable(Type(np.dtype(dtype), shape), "x")


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda x: 1 if x[0] > 0 else 2, "np.where"),
        (lambda x: x[0] > 0 and x[1] > 0, "combine with &"),
        (lambda x: not x[0], "np.where"),
        (lambda x: int(x[0]), "concrete Python int"),
        (lambda x: float(x[0]), "functions of the math module"),
        (lambda x: math.sin(x[0]), "NumPy's functions instead of math's"),
        (lambda x: complex(x[0]), "complex"),
        (lambda x: range(x[0].astype(int)), "x\\[i\\] takes traced integers"),
        (lambda x: [1, 2][x[0].astype(int)], "one integer"),
        (lambda x: np.zeros(x[0].astype(int)), "integer"),
        (np.asarray, "np.stack"),
        (lambda x: np.array([x[0], x[1]]), "np.stack"),
        (lambda x: x.__setitem__(0, 1.0), r"x\.at\[index\]\.set"),
        (lambda x: x.item(), "return it"),
        (lambda x: x.tolist(), "return it"),
        (lambda x: x.sort(), "in place"),
        (lambda x: x.fill(0), "in place"),
        (lambda x: np.sin(x, out=np.zeros(3)), r"y = np\.sin"),
        (np.vectorize(lambda t: t * 2), r"np\.vectorize cannot take a traced value"),
        (np.i0, r"use pullback\.scipy\.special\.i0"),
        (lambda x: np.polyfit(np.arange(3.0), x, 1), r"np\.linalg\.lstsq\(np\.vander"),
        (np.sort_complex, r"np\.sort_complex cannot take a traced value"),
        (np.arctan2.accumulate, r"np\.arctan2\.accumulate"),
        (lambda x: np.sum(x, out=np.zeros(())), "takes no out= argument"),
        (lambda x: np.sin(x, where=np.ones(3, bool)), "takes no where= argument"),
        (lambda x: np.sum(x, 0, None, np.zeros(())), "np.sum on a traced value: too many"),
    ],
)
def test_what_python_cannot_know(attempt, message):
    with pytest.raises(TypeError, match=message) as caught:
        attempt(variable())
    if isinstance(caught.value, TracingError):
        assert "test_dispatch.py" in str(caught.value)


def test_the_error_names_the_type_and_the_line():
    with pytest.raises(TracingError, match=r"bool\[\].*test_dispatch\.py:\d+ in test_the_error"):
        if variable().sum() > 0:
            pass


def test_assignment_in_place():
    x = variable()
    with pytest.raises(TracingError, match="change a value in place"):
        x[0] = 1.0


IN_PLACE = (
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "imatmul",
    "iand",
    "ior",
    "ixor",
    "ilshift",
    "irshift",
)


@pytest.mark.parametrize("name", IN_PLACE)
def test_operators_in_place(name):
    change = getattr(operator, name)
    x = variable((3,), "int32")
    with pytest.raises(
        TracingError, match=r"x (\S+)= y would change .* write x = x \1 y .*test_dispatch\.py:\d+"
    ):
        change(x, 1)
    if name != "imatmul":
        number = variable((), "int32")
        assert change(number, 1).shape == ()


def test_a_sum_of_scalars_grows_in_place():
    def total(x):
        sum = 0.0
        for each in x:
            sum += each * each
        return sum

    assert pb.jit(total)(np.array([1.0, 2.0])) == total(np.array([1.0, 2.0])) == 5.0
    np.testing.assert_array_equal(pb.grad(total)(np.array([1.0, 2.0])), [2.0, 4.0])


def test_attributes_of_an_array():
    x = variable((2, 3), "float32")
    assert (x.shape, x.ndim, x.size, x.dtype, x.nbytes, x.itemsize, len(x)) == (
        (2, 3),
        2,
        6,
        np.float32,
        24,
        4,
        2,
    )
    assert x.T.shape == x.mT.shape == (3, 2)
    assert x.real is x
    assert x.imag.shape == x.shape
    assert not hasattr(x, "no_such_method")
    with pytest.raises(AttributeError, match=r"float32\[2, 3\] has no attribute 'tofile'.*reshape"):
        _ = x.tofile


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_are_those_of_arrays(name, agrees):
    arguments = {
        "astype": (np.int32,), "clip": (0, 1), "dot": (np.ones((2, 2)),), "repeat": (2,), "reshape": (4,),
        "round": (1,), "swapaxes": (0, 1), "take": ([0, 1],), "argpartition": (0,), "compress": ([True, False],),
        "choose": ([3, 4],), "searchsorted": (0.5,),
    }.get(name, ())  # fmt: skip
    x = {"choose": np.array([[0, 1], [1, 0]]), "searchsorted": np.array([0.1, 0.7])}.get(
        name, np.array([[0.26, 1.0], [-2.0, 3.0]])
    )
    agrees(lambda x: getattr(x, name)(*arguments), x)


def test_ufuncs_with_a_dtype(agrees):
    agrees(lambda x: np.add(x, 1, dtype=np.float64), np.ones(2, np.float32))


def test_nested_lists_become_arrays(agrees):
    agrees(
        lambda x: pnp.array([[x[0], 1.0], [2.0, x[1]]]),
        np.array([3.0, 4.0]),
        expected=np.array([[3.0, 1], [2, 4]]),
    )
    assert pnp.array([1, 2], np.float32).dtype == np.float32
    assert isinstance(pnp.asarray(variable(), np.float32), Node)


def test_full_of_a_traced_value(agrees):
    agrees(lambda x: pnp.full((2, 2), x), np.float32(3), expected=np.full((2, 2), np.float32(3)))
    agrees(lambda x: pnp.full((2,), x, np.int32), 3.7, expected=np.array([3, 3], np.int32))
    np.testing.assert_array_equal(pnp.full(2, 1.5), [1.5, 1.5])


def test_closed_over_arrays_are_constants():
    table = np.arange(3.0)
    node = (variable() + table).inputs[1]
    assert isinstance(node, Constant)
    table[0] = 100.0
    assert node.value[0] == 0.0


def test_arrays_of_other_byte_order(agrees):
    table = np.arange(3.0).astype(">f8")
    agrees(lambda x: x + table, np.ones(3))


def test_every_name_of_the_namespace_is_documented():
    for name in pnp.__all__:
        assert getattr(pnp, name) is None or getattr(pnp, name).__doc__


def test_every_function_of_the_tables_belongs_to_numpy():
    for reference in [*FUNCTIONS, *UFUNCS]:
        assert callable(reference)
        assert any(
            getattr(module, reference.__name__, None) is reference
            for module in (np, np.linalg, np.fft, np.lib.stride_tricks)
        )


def test_a_copy_of_a_traced_value_is_itself():
    x = variable()
    assert copy.copy(x) is x
    assert copy.deepcopy({"x": x})["x"] is x
