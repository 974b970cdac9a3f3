"""Writing into arrays means what NumPy means: compared with NumPy, uncompiled, compiled, differentiated, in batches."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import TracingError
from pullback.testing import check_grads

X = np.array([0.5, -1.0, 2.0, 3.0])


def filled(x):
    out = np.zeros_like(x)
    for i in range(len(x)):
        out[i] = x[i] ** 2
    return out


def updated(x):
    y = x * 2
    y += x
    y[0] = 5.0
    y[1:] *= 2
    return y


def through_views(x):
    y = x.copy()
    v = y[1:3]
    v[:] = v * 10
    w = y.reshape(2, 2)
    w[0] += 1
    t = w.T
    t[0, 1] = x[0]
    return y + v.sum()


def out_of_functions(x):
    c = np.empty_like(x)
    np.add(x, 1, out=c)
    np.multiply(c, x, out=c)
    return c


def names(x):
    y = x * 1
    z = y
    z += 1
    a = y.copy()
    a[:] = 0
    y2 = y
    y = y + 1
    y2[0] = 9
    return y + a + y2


def at_masks_and_repeated_places(x):
    y = x * 1
    y[y > 0] = 0.0
    np.add.at(y, [0, 0], x[1])
    return y


def views_and_copies(x):
    m = np.outer(x, x)
    np.fill_diagonal(m, 0)
    r = m.T.reshape(-1)  # a copy
    r[0] = 100
    for row in m:
        np.add(row, x, out=row)
    d = m.ravel()  # a view
    d[0] = 7 * x[0]
    return m


def pieces(x):
    y = x * 1
    a, b = np.split(y, 2)
    a *= 3
    b[0] = a[1]
    y.sort()
    return y


def at_a_place_that_is_computed(x):
    y = np.outer(x, x)
    row = y[np.argmax(x)]
    row += 1
    row[0] = 7
    return y


def helped(x):
    def add(target, value):
        target += value

    y = np.zeros_like(x)
    for k in range(3):
        add(y, x * k)
        add(y[k:], x[0])
    return y


def flat_places(x):
    y = np.outer(x, x)
    np.put(y, [0, 5, -1], x)
    np.put(y, [1, 2, 3, 30], x[:2] * 2, mode="wrap")
    y.put([6, 40], x[0], mode="clip")
    np.put(y, [], x)
    np.put(y, np.argsort(x), x)
    y.flat[7:9] = x[3]
    y.flat[::5] = x[:2]
    return y + y.flat[3]


def flat_as_a_whole(x):
    y = np.outer(x, x)
    y.flat = x
    total = 0.0
    for k, each in enumerate(y.flat):
        total = total + k * each
    return y * len(y.flat) + total


def masked_places(x):
    y = np.outer(x, x)
    np.place(y, y > 1.1, x * 3)
    np.place(y, np.eye(4, dtype=bool), x[:3])
    np.putmask(y, y > 5, np.outer(x, x) / 2)
    np.putmask(y, np.tri(4, dtype=bool), x[1:])
    np.copyto(y, x, where=np.array([True, False, False, True]))
    return y


def results_of_methods(x):
    y, z = np.outer(x, x), np.zeros_like(x)
    y.sum(axis=0, out=z)
    y[0].cumsum(out=y[1])
    y.mean(1, out=y[:, 2])
    y.take([1, 0, 3, 2], axis=0, out=y)
    y.clip(-1, 4, out=y)
    y[:2].dot(y, out=y[2:])
    return y + z


def ufuncs_where(x):
    y = x * 2
    np.sqrt(x, out=y, where=x > 0)
    np.add(y, 1, out=y, where=np.array([True, False, True, True]))
    np.negative.at(y, [0, 2])
    np.floor_divide.at(y, slice(3, 4), 2)
    return y


def in_order(x):
    y = np.outer(x, x)
    y[1].sort(kind="stable")
    y.T.sort(axis=-1)
    y[2].partition(3)  # all but the last
    return y.max(axis=0) + y[:, 3]


FUNCTIONS = (
    *(flat_places, flat_as_a_whole, masked_places, results_of_methods, ufuncs_where, in_order),
    *(
        filled,
        updated,
        through_views,
        out_of_functions,
        names,
        at_masks_and_repeated_places,
        views_and_copies,
        pieces,
    ),
    *(at_a_place_that_is_computed, helped),
)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_are_numpys(function):
    wanted = function(X.copy())
    np.testing.assert_allclose(pb.vjp(function, X)[0], wanted)
    np.testing.assert_allclose(pb.jit(function)(X), wanted)
    np.testing.assert_allclose(pb.vmap(function)(np.stack([X, X]))[1], wanted)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives(function):
    check_grads(function, [X], order=1)
    weights = np.arange(1.0, 1 + function(X.copy()).size).reshape(function(X.copy()).shape)
    gradient = pb.grad(lambda x: (function(x) * weights).sum())
    np.testing.assert_allclose(pb.jit(gradient)(X), gradient(X), rtol=1e-12)


def test_in_the_body_of_a_loop():
    def function(start, xs):
        def step(c, x):
            out = np.zeros_like(c)
            out[0] = c[1] * x
            out[1:] += c[:-1]
            return out, out.sum()

        return pb.scan(step, start, xs)[1].sum()

    for run in (pb.grad(function), pb.jit(pb.grad(function))):
        np.testing.assert_array_equal(run(np.ones(3), np.arange(4.0)), [8, 1, 0])


def test_zeros_of_the_namespace_take_traced_values():
    def function(x):
        made = pb.numpy.zeros(3)
        made[1:] = x
        return (made**2).sum()

    assert pb.grad(function)(2.0) == pb.jit(pb.grad(function))(2.0) == 8
    assert type(pb.numpy.zeros(3)) is np.ndarray


def test_what_would_change_something_of_the_caller_is_refused():
    def argument(x):
        x += 1
        return x.sum()

    def part(tree):
        tree["w"][0] = 1.0
        return tree["w"].sum()

    for wrap in (pb.jit, pb.grad, pb.vmap):
        with pytest.raises(TracingError, match=r"writes into an argument.*x = x\.copy\(\).*test_in_place"):
            wrap(argument)(np.ones((2, 2)) if wrap is pb.vmap else X)
    with pytest.raises(TracingError, match="writes into an argument"):
        pb.grad(part)({"w": X})
    np.testing.assert_array_equal(X, [0.5, -1, 2, 3])


def test_arrays_from_outside_a_loop_are_not_written_inside():
    def function(x):
        total = np.zeros_like(x)

        def step(c, _):
            total[0] += 1
            return c, c

        pb.scan(step, x, np.arange(3.0))
        return total.sum()

    with pytest.raises(TracingError, match="made outside"):
        pb.jit(function)(X)


def test_numpys_own_arrays_and_read_only_views():
    with pytest.raises(TracingError, match=r"np\.zeros_like\(x, shape=n\).*pullback\.numpy\.zeros"):
        pb.grad(lambda x: np.add(x, 1, out=np.zeros(4)).sum())(X)
    with pytest.raises(ValueError, match="read-only"):
        pb.grad(lambda x: np.broadcast_to(x * 1, (2, 4)).__setitem__(0, 1.0))(X)


@pytest.mark.parametrize(
    "make", [lambda x: x.T * 2, lambda x: np.zeros_like(x.T), lambda x: np.stack([x, x]).swapaxes(0, 2) + 1]
)
def test_reshaped_results_of_unknown_order(make: Any):
    """Where NumPy's own array may lie column by column, it reshapes a copy: what is written there goes no further."""

    def through(x: Any) -> Any:
        y = make(x)
        y.reshape(-1)[0] = 5.0
        return y

    def copied(x: Any) -> Any:
        y = make(x).copy()
        y.reshape(-1)[0] = 5.0
        return y

    x = np.arange(6.0).reshape(2, 3)
    with pytest.raises(TracingError, match=r"say \.copy"):
        pb.jit(through)(x)
    np.testing.assert_array_equal(pb.jit(copied)(x), copied(x))


@pytest.mark.parametrize("make", [lambda x: x * 2, lambda x: x[:, 1:] * 2, lambda x: np.abs(x[::-1])])
def test_reshaped_results_of_known_order(make: Any):
    def through(x: Any) -> Any:
        y = make(x)
        y.reshape(-1)[0] = 5.0
        return y

    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(pb.jit(through)(x), through(x))


M = np.arange(1.0, 10.0).reshape(3, 3)
VIEWS = {
    "diagonal by einsum": (lambda y: np.einsum("ii->i", y), M),
    "transpose by einsum": (lambda y: np.einsum(y, [0, 1], [1, 0]), M),
    "sums by einsum": (lambda y: np.einsum("ij->i", y), M),
    "diag of a matrix": (np.diag, M),
    "diag of a vector": (np.diag, X),
    "astype without a copy": (lambda y: y.astype(np.float64, copy=False), M),
    "astype with one": (lambda y: y.astype(np.float64), M),
    "astype of another dtype": (lambda y: y.astype(np.float32, copy=False), M),
    "conj of real numbers": (lambda y: y.conj(), M),
    "conj of complex ones": (lambda y: y.conj(), M + 1j * M.T),
    "np.conj": (np.conj, M),
    "real_if_close": (np.real_if_close, M),
    "nan_to_num": (np.nan_to_num, M),
    "nan_to_num in place": (lambda y: np.nan_to_num(y, copy=False), np.where(M == 5, np.nan, M)),
    "windows": (lambda y: np.lib.stride_tricks.sliding_window_view(y, (2, 2)), M),
    "broadcast_arrays": (lambda y: np.broadcast_arrays(y, np.ones((2, 3, 3)))[0], M),
    "meshgrid": (lambda y: np.stack(np.meshgrid(y, y)), X),
    "meshgrid of views": (lambda y: np.meshgrid(y, X[:3], copy=False)[0], X),
    "meshgrid of views, ij": (lambda y: np.meshgrid(X[:3], y, copy=False, indexing="ij")[1], X),
}


@pytest.mark.parametrize(("view", "x"), VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("transform", [pb.jit, lambda f: lambda x: pb.jvp(f, (x,), (0 * x,))[0]])
def test_views_follow_what_they_are_views_of(view: Any, x: np.ndarray, transform: Any):
    """And copies do not: whichever NumPy gives."""

    def read_later(x: Any) -> Any:
        y = x.copy()
        seen = view(y)
        y[...] = y * 10
        return seen * 1

    np.testing.assert_allclose(transform(read_later)(x), read_later(x))


@pytest.mark.parametrize(("view", "x"), VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("transform", [pb.jit, lambda f: lambda x: pb.jvp(f, (x,), (0 * x,))[0]])
def test_what_is_written_into_a_view_is_in_the_array(view: Any, x: np.ndarray, transform: Any):
    def written(x: Any) -> Any:
        y = x.copy()
        view(y)[0] = 7
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            expected = written(x)
        except (ValueError, DeprecationWarning):  # read-only, or soon to be
            with pytest.raises(ValueError, match="read-only"):
                transform(written)(x)
            return
    np.testing.assert_allclose(transform(written)(x), expected)


@pytest.mark.parametrize("shuffle", [np.random.default_rng(0).shuffle, np.random.RandomState(0).shuffle])
@pytest.mark.parametrize("transform", [pb.grad, lambda f: lambda x: pb.vmap(f)(x[None])])
def test_numpys_shuffle_would_lose_rows(shuffle: Any, transform: Any):
    def shuffled(x: Any) -> Any:
        y = x.copy()
        shuffle(y)
        return np.sum(y * M)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            TracingError, match=r"rng\.permutation.*pullback\.random\.shuffle.*test_in_place\.py"
        ):
            transform(shuffled)(np.eye(3))


def test_views_are_swapped_as_numpy_does():
    def swapped(x: Any) -> Any:
        y = x.copy()
        y[0], y[1] = y[1], y[0]  # views: both rows become the second one
        y[1:] = y[:-1]
        y[0] += y[2]
        return y

    np.testing.assert_array_equal(pb.jit(swapped)(M), swapped(M))


REFUSED = {
    "resize": (lambda y: y.resize((2, 2)), TracingError, r"y = x\.reshape\(shape\)"),
    "where without out": (lambda y: np.sqrt(y, where=y > 0), TracingError, r"out=np\.zeros_like\(x\)"),
    "at of places named twice": (lambda y: np.negative.at(y, [0, 0]), TracingError, r"np\.negative\.at"),
    "put in no such mode": (
        lambda y: np.put(y, [0], 1.0, mode="lift"),
        TracingError,
        "'raise', 'wrap' or 'clip'",
    ),
    "put of floats": (lambda y: np.put(y, [0.5], 1.0), TypeError, "integer|astype"),
    "put beyond the end": (lambda y: np.put(y, [4], 1.0), IndexError, "4"),
    "place of nothing": (lambda y: np.place(y, y > 0, []), ValueError, "no values"),
    "place by a short mask": (lambda y: np.place(y, [True], 1.0), ValueError, "mask of shape"),
    "putmask by a short mask": (lambda y: np.putmask(y, [True], 1.0), ValueError, "mask of shape"),
    "putmask of complex numbers": (lambda y: np.putmask(y, y > 0, 1j), TypeError, "complex128"),
    "copyto of complex numbers": (lambda y: np.copyto(y, y * 1j), TypeError, "same_kind"),
    "copyto by no casting": (lambda y: np.copyto(y, y.astype(np.float32), casting="no"), TypeError, "'no'"),
    "out of another method": (lambda y: y.reshape(2, 2, out=y), TracingError, "reshape"),
}


@pytest.mark.parametrize(("write", "kind", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("transform", [pb.jit, lambda f: lambda x: pb.jvp(f, (x,), (0 * x,))[0]])
def test_what_cannot_be_written_is_refused(write: Any, kind: Any, message: str, transform: Any):
    def function(x: Any) -> Any:
        y = x * 1
        write(y)
        return y

    with pytest.raises(kind, match=message):
        transform(function)(X)
