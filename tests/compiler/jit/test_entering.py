"""What enters a compiled function: every dtype in every layout, and what is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.data import Dataset
from pullback.errors import ArrayClassError, DTypeError, PullbackError, TreeError
from pullback.graph import DTYPES

DTYPE_NAMES = [*map(str, DTYPES), "longlong", "ulonglong"]


def layouts(a):
    """One array in the layouts that NumPy can give it."""
    wide = np.zeros((2 * a.shape[0], *a.shape[1:], 2), a.dtype)
    wide[::2, ..., 0] = a
    read_only = a.copy()
    read_only.flags.writeable = False
    unaligned = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    unaligned[...] = a
    swapped = a.astype(a.dtype.newbyteorder())
    return {
        "as it is": a,
        "strided": wide[::2, ..., 0],
        "negative": np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
        "transposed": np.ascontiguousarray(a.T).T,
        "broadcast": np.broadcast_to(a[:1], a.shape),
        "byte order": swapped,
        "byte order, transposed": np.ascontiguousarray(swapped.T).T,
        "read-only": read_only,
        "unaligned": unaligned,
        "unpickled": pickle.loads(pickle.dumps(a)),
        "no rows": a[:0],
        "no columns": a[:, :0],
        "no axes": a[1, 1].reshape(()),
        "scalar": a[1, 1],
    }


@pytest.fixture(scope="module")
def both():
    """A function compiled once for all layouts, as a program is that has met others before."""
    return pb.jit(lambda x: (x, x.sum()))


@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_every_dtype_in_every_layout(name, both):
    a = (np.arange(12).reshape(3, 4) * 3 % 7).astype(name)
    for layout, x in layouts(a).items():
        for compiled in (both, pb.jit(both.function)):
            same, total = compiled(x)
            assert same.dtype == x.dtype.newbyteorder("=") and same.shape == x.shape, layout
            np.testing.assert_array_equal(same, x, layout)
            np.testing.assert_array_equal(total, x.sum(), layout)


def test_an_unpickled_array_of_bytes_is_updated_in_place():
    state = pickle.loads(pickle.dumps(np.arange(5, dtype=np.int8)))
    update = pb.jit(lambda state: state + np.int8(1), donate_argnums=0)
    assert update(state) is state
    np.testing.assert_array_equal(state, np.arange(1, 6))


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "U1", "S1", "O", "M8[s]"])
def test_dtypes_without_a_place_are_refused(dtype):
    x = np.zeros(3, dtype)
    for attempt in (pb.jit(lambda x: x), pb.grad(lambda x: x.sum()), pb.jit(lambda y: np.where(True, y, x))):
        argument = np.ones(3) if attempt.__wrapped__.__code__.co_varnames == ("y",) else x
        with pytest.raises(DTypeError, match="has no place in a graph; cast"):
            attempt(argument)


def test_a_constant_without_a_place_is_named_with_the_line():
    with pytest.raises(DTypeError, match=r"class NoneType .*test_entering\.py:\d+"):
        pb.jit(lambda x: x * None)(1.0)


@pytest.mark.parametrize("value", ["a", b"a", range(3), object()])
def test_what_is_no_array_is_refused(value):
    with pytest.raises(TreeError, match=f"holds a {type(value).__name__}"):
        pb.jit(lambda x: x)(value)


def test_python_numbers():
    same = pb.jit(lambda x: x)
    assert [same(x) for x in (True, 3, 2.5)] == [True, 3, 2.5]
    with pytest.raises(DTypeError, match="int64 cannot hold"):
        same(10**30)


with_meaning = pytest.mark.parametrize(
    "x",
    [
        np.ma.array([[1.0, 1e9], [2.0, 3.0]], mask=[[False, True], [False, False]]),
        np.ones((2, 2)).view(np.matrix),
    ],
    ids=["masked", "matrix"],
)


@with_meaning
def test_arrays_that_mean_more_than_their_numbers_are_refused(x):
    plain = np.ones((2, 2))
    model = nn.Dense(2, 1, seed=0)
    trainer = pb.Trainer(model, nn.squared_error, optim.SGD(0.1), metrics=())
    attempts = {
        "an argument": lambda: pb.jit(lambda x: x.sum())(x),
        "in a tree": lambda: pb.jit(lambda tree: tree["x"].sum())({"x": x}),
        "grad": lambda: pb.grad(lambda x: x.sum())(x),
        "cotangent": lambda: pb.vjp(lambda x: x * 2.0, plain)[1](x),
        "tangent": lambda: pb.jvp(lambda x: x * 2.0, (plain,), (x,)),
        "vmap": lambda: pb.vmap(lambda x: x * 2.0)(x),
        "right": lambda: pb.jit(lambda y: y * x)(plain),
        "ufunc": lambda: pb.jit(lambda y: np.maximum(x, y))(plain),
        "function": lambda: pb.jit(lambda y: np.concatenate([y, x]))(plain),
        "table": lambda: pb.jit(lambda i: pb.numpy.take(x, i, 0))(np.array([0])),
        "index": lambda: pb.jit(lambda y: y[x.astype(int)])(np.ones(5)),
        "result": lambda: pb.jit(lambda y: x)(plain),
        "inputs": lambda: Dataset(x, np.zeros(2)),
        "labels": lambda: Dataset(np.zeros(2), x),
        "predict": lambda: trainer.predict(x),
        "state": lambda: optim.Adam(0.1).init({"x": x}),
        "save": lambda: pb.save({"x": x}, "never.safetensors"),
    }
    for name, attempt in attempts.items():
        with pytest.raises(ArrayClassError, match=r"would lose its .* give .*test_entering\.py:\d+"):
            print(name, attempt())


@with_meaning
def test_no_operator_computes_with_them(x):
    for operator in (lambda y: x * y, lambda y: x @ y, lambda y: y + x, lambda y: np.add(x, y)):
        with pytest.raises(PullbackError):
            pb.jit(operator)(np.ones((2, 2)))


def test_scalars_of_all_kinds_in_turn():
    same = pb.jit(lambda x: x)
    kinds = [np.dtype(name).type for name in DTYPE_NAMES]
    given = [kind(value) for kind in kinds for value in (0, 1, 7)] + [True, 3, 2.5, np.array(2.5), np.ones(2)]
    for _ in range(2):
        for x in given:
            found = same(x)
            expected = np.asarray(x)[()]
            assert type(found) is type(expected) or found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            if not np.ndim(x):
                assert hash(found) == hash(expected)
