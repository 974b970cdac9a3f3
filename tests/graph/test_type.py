"""Types: dtype and shape, both static."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.errors import DTypeError
from pullback.graph import DTYPES, Type, is_float


def test_sizes():
    t = Type(np.dtype("float32"), (3, 4, 5))
    assert (t.rank, t.size, t.nbytes) == (3, 60, 240)
    scalar = Type(np.dtype("int64"), ())
    assert (scalar.rank, scalar.size, scalar.nbytes) == (0, 1, 8)
    assert Type(np.dtype("bool"), (3, 0)).size == 0


def test_printed_form():
    assert str(Type(np.dtype("float32"), (100, 64))) == "float32[100, 64]"
    assert str(Type(np.dtype("bool"), ())) == "bool[]"


def test_equal_types_are_equal_and_hash_alike():
    one, other = Type(np.dtype("float32"), (2,)), Type(np.dtype(np.float32), (2,))
    assert one == other and hash(one) == hash(other)
    assert one != Type(np.dtype("float32"), (2,), weak=True)
    assert one != Type(np.dtype("float64"), (2,))
    assert one != Type(np.dtype("float32"), (2, 1))


def test_parts_are_replaced_and_the_rest_kept():
    t = Type(np.dtype("float32"), (2,), weak=True)
    assert t.with_shape((3, 1)) == Type(np.dtype("float32"), (3, 1), weak=True)


@pytest.mark.parametrize("dtype", ["longdouble", "V2", "U3", "O", "datetime64[s]", ">f8"])
def test_dtypes_without_a_place_are_refused(dtype):
    with pytest.raises(DTypeError, match="has no place in a graph; cast the array to one of bool, int8"):
        Type(np.dtype(dtype), (2,))


def test_floats_and_complex_numbers_have_derivatives():
    names = ["float16", "float32", "float64", "complex64", "complex128"]
    assert [dtype.name for dtype in DTYPES if is_float(dtype)] == names
