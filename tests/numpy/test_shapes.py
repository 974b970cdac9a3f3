"""Functions that move elements, against NumPy."""

import numpy as np
import pytest

from pullback.errors import ShapeError, TracingError
from pullback.testing import check_grads
from pullback.tracing import trace

X = np.arange(24.0).reshape(2, 3, 4)

FUNCTIONS = {
    "reshape": lambda x: (np.reshape(x, (4, -1)), x.reshape(24), x.reshape(2, 12), x.reshape((3, 8)),
        np.reshape(x, -1)),
    "ravel": lambda x: (np.ravel(x), x.ravel(), x.flatten()),
    "transpose": lambda x: (x.T, np.transpose(x),
        np.transpose(x, (1, 0, 2)), x.transpose(2, 0, -2), x.transpose()),
    "swapaxes": lambda x: (np.swapaxes(x, 0, -1), x.swapaxes(1, 2), x.transpose(None)),
    "moveaxis": lambda x: (np.moveaxis(x, 0, -1), np.moveaxis(x, (0, 1), (2, 0)), np.moveaxis(x, -1, 0)),
    "expand_dims": lambda x: (np.expand_dims(x, 1), np.expand_dims(x, (0, -1))),
    "squeeze": lambda x: (np.squeeze(x[:1]), np.squeeze(x[:, :1], 1), x[:1, :1].squeeze((0, 1))),
    "broadcast_to": lambda x: (np.broadcast_to(x, (5, 2, 3, 4)), np.broadcast_to(x[:, :1], (2, 3, 4))),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, np.ones((3, 1))),
    "concatenate": lambda x: (np.concatenate([x, x], 1), np.concatenate((x, np.ones((1, 3, 4)))),
        np.concatenate([x, x], None)),
    "concatenate an array": np.concatenate,
    "stack": lambda x: (np.stack([x, x]), np.stack((x, np.zeros_like(X)), -1)),
    "vstack": lambda x: (np.vstack([x[0], x[1]]), np.vstack([x[0, 0], x[0, 1]])),
    "hstack": lambda x: (np.hstack([x[0], x[1]]), np.hstack([x[0, 0], x[0, 1, :2]])),
    "column_stack": lambda x: np.column_stack([x[0, 0], x[0, 1], x[1, :, :].T]),
    "split": lambda x: [*np.split(x, 2), *np.split(x, [1, 3], axis=2), *np.split(x, [2, 1], 1)],
    "array_split": lambda x: [*np.array_split(x, 3, axis=2), *np.array_split(x, 5, axis=1)],
    "flip": lambda x: (np.flip(x), np.flip(x, 1), np.flip(x, (0, -1)), np.flipud(x), np.fliplr(x)),
    "pad": lambda x: (np.pad(x, 1), np.pad(x, (1, 2)), np.pad(x, ((0, 1), (2, 0), (0, 0)))),
    "pad with a value": lambda x: (np.pad(x, 1, constant_values=7.5), np.pad(x, 0, constant_values=3)),
    "repeat": lambda x: (np.repeat(x, 2, axis=1), x.repeat(3), np.repeat(x, [1, 0, 2], axis=1),
        np.repeat(x, 0, 0)),
    "tile": lambda x: (np.tile(x, 2), np.tile(x, (2, 1, 3)), np.tile(x, (2, 2, 1, 1)),
        np.tile(x[0, 0], (2, 2))),
    "roll": lambda x: (np.roll(x, 1), np.roll(x, -1, axis=2), np.roll(x, (1, 2), (0, 1)), np.roll(x, 5, 0)),
    "diff": lambda x: (np.diff(x), np.diff(x, axis=0), np.diff(x, n=2, axis=1)),
    "triangles": lambda x: (np.tril(x), np.triu(x), np.tril(x, 1), np.triu(x, -1), np.triu(x, 2),
        np.tril(x[0, 0]), np.triu(x[0, 1], 1)),
    "at least": lambda x: (np.atleast_1d(x), np.atleast_2d(x[0, 0]), np.atleast_1d(x[0, 0, 0]),
        np.atleast_2d(x[0, 0, 0])),
    "like": lambda x: (np.zeros_like(x), np.ones_like(x, dtype=np.int32), np.full_like(x, 3),
        np.zeros_like(x, shape=(2,))),
    "sizes": lambda x: np.zeros((len(x), np.ndim(x), *np.shape(x), np.size(x) // 8, x.size // 6)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_as_numpy(name, dtype, agrees):
    agrees(FUNCTIONS[name], X.astype(dtype))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("like", "sizes")])
def test_derivatives(name):
    check_grads(FUNCTIONS[name], [X / 24], order=1)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 1)])
def test_empty_and_single_axes(shape, agrees):
    x = np.zeros(shape)
    agrees(
        lambda x: (np.concatenate([x, x], 0), np.flip(x), np.roll(x, 1, 0), np.repeat(x, 2, 1), np.pad(x, 1)),
        x,
    )
    agrees(lambda x: (np.reshape(x, (-1, 3)), np.diff(x, axis=-1), np.tile(x, 2), np.stack([x, x])), x)


def test_dtypes_are_promoted_when_joined(agrees):
    x = np.arange(3, dtype=np.int32)
    agrees(lambda x: (np.concatenate([x, np.ones(2, np.float32)]), np.stack([x, np.ones(3, bool)])), x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.reshape(x, (5, 5)), r"24 elements of shape \(2, 3, 4\) do not fill shape \(5, 5\)"),
        (lambda x: np.reshape(x, (-1, -1)), "do not fill"),
        (lambda x: x.reshape(7, -1), "do not fill"),
        (lambda x: np.reshape(x, ("a",)), "tuple of integers"),
        (lambda x: np.concatenate([x, x[:, :2]]), r"shapes \(2, 3, 4\) and \(2, 2, 4\) differ beside axis 0"),
        (lambda x: np.stack([x, x[:, :2]]), "all must be equal"),
        (lambda x: np.squeeze(x, 0), "has not extent 1"),
        (lambda x: np.broadcast_to(x, (2, 3, 5)), "do not broadcast"),
        (lambda x: np.broadcast_to(x, (3, 4)), "does not broadcast"),
        (lambda x: np.split(x, 5, axis=2), "array_split"),
        (lambda x: np.array_split(x, 0), "at least one"),
        (lambda x: np.transpose(x, (0, 1)), "name each once"),
        (lambda x: np.moveaxis(x, (0, 1), (0,)), "as many"),
        (lambda x: np.pad(x, ((1, 1), (2, 2))), "a pair for each axis"),
        (lambda x: np.pad(x, -1), "negative"),
        (lambda x: np.pad(x[:, :0], 1, mode="reflect"), r"axis 1 of shape \(2, 0, 4\) has no elements"),
        (lambda x: np.tril(x[0, 0, 0]), "tril: a number has no triangle"),
    ],
)
def test_shapes_that_do_not_fit(function, message):
    with pytest.raises(ShapeError, match=message):
        trace(function, X)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.pad(x, 1, mode=lambda *_: None), "constant"),
        (lambda x: np.pad(x, 1, mode="edge", constant_values=1), "keyword of its own"),
        (lambda x: np.reshape(x, 24, order="X"), "'C' or 'F'"),
        (lambda x: np.repeat(x, x[0, 0, 0].astype(int)), "depend on values"),
    ],
)
def test_what_cannot_be_traced(function, message):
    with pytest.raises(TracingError, match=message):
        trace(function, X)


@pytest.mark.parametrize(
    ("shift", "axis"), [([1, 2], 0), ([1, 2], None), (1, (0, 1)), ([1, 2], (0, 1)), (2, 1)]
)
def test_roll_by_several_distances(shift, axis, agrees, draw):
    agrees(lambda x: np.roll(x, shift, axis), draw((3, 4), "float64"))


def test_axes_in_an_array(agrees, draw):
    agrees(lambda x: np.flip(x, np.array([0, 1])), draw((3, 4), "float64"))
    agrees(lambda x: np.transpose(x, np.array([1, 0])), draw((3, 4), "float64"))
    agrees(lambda x: np.sum(x, axis=(np.int64(0),)), draw((3, 4), "float64"))


def test_an_axis_that_is_no_integer(draw):
    with pytest.raises(ShapeError, match=r"sum: axis 0\.5 is no integer"):
        trace(lambda x: np.sum(x, axis=0.5), draw((3, 4), "float64"))
