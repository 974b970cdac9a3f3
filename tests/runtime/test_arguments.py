"""What a program takes as arguments, what it converts, and what it refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pullback.compiler.llvm.function import Module
from pullback.compiler.runtime.engine import load
from pullback.compiler.runtime.layout import emit_pointer, region_function
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.program import Program, RegionSpec
from pullback.compiler.target import Processor
from pullback.errors import DonationError, DTypeError, ShapeError
from pullback.graph import Type

CELLS = 37
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def test_result_is_new_memory_each_time(scaling):
    program = scaling()
    first, second = program(X)[0], program(X)[0]
    assert first is not second
    assert not np.shares_memory(first, second)
    assert first.flags.owndata and first.flags.c_contiguous and first.dtype == np.float32
    np.testing.assert_array_equal(first, 2 * X)


def test_arguments_that_the_entry_takes(scaling):
    entry = scaling().entry
    unpickled = pickle.loads(pickle.dumps(X))
    for x in (X, unpickled, np.broadcast_to(X, (1, 8, 4))[0].copy(), memory_offset(X, 4)):
        np.testing.assert_array_equal(entry(x)[0], 2 * X)


def memory_offset(x, offset):
    """The same numbers at an address with this offset from a multiple of 64."""
    block = np.zeros(x.nbytes + 128, np.uint8)
    start = -block.ctypes.data % 64 + offset
    view = block[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "x",
    [
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X.astype(">f4"),
        X.tolist() and X.view(Subclass),
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(8, 4),
    ],
    ids=["fortran", "strided", "byte order", "subclass", "misaligned"],
)
def test_arguments_that_are_converted(scaling, x):
    program = scaling()
    assert program.entry(x) is NotImplemented
    np.testing.assert_array_equal(program(x)[0], 2 * X)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ((), ShapeError, "1 arguments, 0 were given"),
        ((X, X), ShapeError, "1 arguments, 2 were given"),
        ((X[:4],), ShapeError, r"shape \(4, 4\), it was compiled for \(8, 4\)"),
        ((X.reshape(32),), ShapeError, r"shape \(32,\)"),
        ((X.astype(np.float64),), DTypeError, "is float64, it was compiled for float32"),
        ((X.astype(np.int32),), DTypeError, "is int32"),
        (([[1j]],), DTypeError, "complex128"),
        ((None,), DTypeError, "object"),
    ],
)
def test_arguments_that_are_refused(scaling, values, error, message):
    program = scaling()
    assert program.entry(*values) is NotImplemented
    with pytest.raises(error, match=message):
        program(*values)
    np.testing.assert_array_equal(program(X)[0], 2 * X)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (X[:4], ShapeError, r"weights\.0 of the compiled program has shape \(4, 4\)"),
        (X.astype(np.float64), DTypeError, r"weights\.0 of the compiled program is float64"),
        (1j, DTypeError, r"weights\.0 of the compiled program is 1j"),
    ],
)
def test_arguments_that_have_names_are_called_by_them(scaling, x, error, message):
    with pytest.raises(error, match=f"^{message}"):
        scaling(names=["weights.0"])(x)
    with pytest.raises(error, match=message.replace(r"weights\.0", "^argument 0")):
        scaling()(x)


def donated_cases():
    read_only = X.copy()
    read_only.flags.writeable = False
    yield read_only, "read-only"
    yield np.asfortranarray(X), "not C-contiguous"
    yield X.astype(">f4"), "not native"
    yield X.tolist(), "is a list"
    yield X.copy().view(Subclass), "is a Subclass"


@pytest.mark.parametrize(("x", "message"), list(donated_cases()))
def test_donated_arguments_are_taken_as_they_are_or_not_at_all(scaling, x, message):
    program = scaling(donated=True)
    assert program.entry(x) is NotImplemented
    with pytest.raises(DonationError, match=message):
        program(x)


def test_donated_memory_must_not_overlap(mixing):
    program = mixing()
    block = np.arange(CELLS + 1)
    before = block.copy()
    for inside in (block[3:4].reshape(()), block[:1].reshape(())):
        for _ in range(2):  # the refusal must not be remembered as a success
            assert program.entry(block[:CELLS], inside) is NotImplemented
            with pytest.raises(DonationError, match="share memory"):
                program(block[:CELLS], inside)
    np.testing.assert_array_equal(block, before)
    program(block[:CELLS], block[CELLS:].reshape(()))  # neighbours do not overlap
    assert not np.array_equal(block, before)


SCALARS = ["float32", "float64", "int32", "int64", "bool", "uint8"]


@pytest.fixture(scope="module")
def copying():
    """For each dtype a program that copies its scalar argument."""
    module = Module()
    for size in (1, 4, 8):
        f = region_function(module, f"copy{size}")
        x, y = (emit_pointer(f, slot, f["step"]) for slot in (1, 2))
        value = f.value(f"load i{8 * size}, ptr {x}, align {size}")
        f.do(f"store i{8 * size} {value}, ptr {y}, align {size}")
    code = load(module.text(), Processor.host())

    def make(name):
        dtype = np.dtype(name)
        return Program(
            code,
            arguments=[Type(dtype, ())],
            results=[Type(dtype, ())],
            regions=[RegionSpec(f"copy{dtype.itemsize}")],
        )

    return {name: make(name) for name in SCALARS}


@pytest.mark.parametrize(
    ("name", "value", "by_entry"),
    [
        ("float32", 0.1, True),
        ("float64", 0.1, True),
        ("float64", -0.0, True),
        ("float64", 3, False),
        ("float32", True, False),
        ("float32", np.float32(0.5), True),
        ("int32", -(2**31), True),
        ("int64", 2**63 - 1, True),
        ("int64", np.int64(5), True),
        ("int64", True, False),
        ("uint8", 255, False),
        ("bool", True, True),
        ("bool", False, True),
        ("bool", np.True_, True),
        ("int64", np.array(7), True),
        ("int64", np.array(7, np.longlong), np.longlong is np.int64),
    ],
)
def test_scalars(copying, name, value, by_entry):
    program = copying[name]
    (result,) = program(value)  # with all workers started; before that the entry leaves every call to it
    assert (program.entry(value) is not NotImplemented) == by_entry
    expected = np.array(value, name)
    assert result.dtype == expected.dtype and result.shape == ()
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [("int32", 2**31), ("int64", 2**63), ("uint8", -1), ("int64", 0.5), ("bool", 1), ("float32", 1j)],
)
def test_scalars_that_do_not_fit(copying, name, value):
    assert copying[name].entry(value) is NotImplemented
    with pytest.raises(DTypeError, match=r"compiled for|cannot hold"):
        copying[name](value)


def test_without_array_fields_python_reads_the_arrays(mixing, monkeypatch):
    plain, state, expected = mixing(), np.arange(CELLS), np.arange(CELLS)
    monkeypatch.setattr(machine(), "reads_arrays", False)
    program = mixing()
    for step in range(5):
        assert program.entry(state, np.array(step)) is NotImplemented
        result, total = program(state, step)
        assert result is state
        monkeypatch.setattr(machine(), "reads_arrays", True)
        assert plain(expected, np.array(step))[1] == total
        monkeypatch.setattr(machine(), "reads_arrays", False)
    np.testing.assert_array_equal(state, expected)
