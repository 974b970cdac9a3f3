"""The convolution operator: values against loops, what its cotangents are made of, and its errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Graph, Operation, Type, Variable, constant
from pullback.interpreter import evaluate
from pullback.operators.convolution import convolve, transposed_convolve, window_count
from pullback.testing import OperatorCase, operator_cases

FLOAT = np.dtype(np.float64)
PLAIN = {"x_layout": "bc0", "w_layout": "oc0", "out_layout": "bo0", "strides": (1,), "dilations": (1,)}


def looped(case: OperatorCase, x: np.ndarray, w: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The definition, element by element."""
    layouts = [case.attributes[key] for key in ("x_layout", "w_layout", "out_layout")]
    strides, dilations = case.attributes["strides"], case.attributes["dilations"]
    y = np.zeros(shape, x.dtype)
    for place in np.ndindex(*shape):
        out = dict(zip(layouts[2], place))
        summed = [label for label in layouts[1] if label == "c" or label.isdigit()]
        extents = [w.shape[layouts[1].index(label)] for label in summed]
        for turn in itertools.product(*map(range, extents)):
            inner = dict(zip(summed, turn))
            window = [inner.get(label, out.get(label)) for label in layouts[1]]
            image = [
                out[label] * strides[int(label)] + inner[label] * dilations[int(label)]
                if label.isdigit()
                else inner.get(label, out.get(label))
                for label in layouts[0]
            ]
            y[place] += x[tuple(image)] * w[tuple(window)]
    return y


def test_the_definition():
    cases = list(operator_cases("convolve", dtypes=[FLOAT, np.dtype(np.int64)]))
    assert len(cases) >= 14
    for case in cases:
        x, w = case.arguments()
        (y,) = evaluate(case.graph(), [x, w])
        np.testing.assert_allclose(y, looped(case, x, w, y.shape), rtol=1e-12, atol=1e-12, err_msg=str(case))


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 17])
def test_cotangents_are_convolutions(stride):
    """One for each element of the window that the input's elements see at a distance of the stride; of many one."""
    x, w = (Variable(Type(FLOAT, shape), "x") for shape in ((2, 3, 21), (4, 3, 2)))
    y = convolve(x, w, **PLAIN | {"strides": (stride,)})
    for bar, of, most in zip(y.operator.pullback(y, constant(np.ones(y.shape))), (x, w), (2, 1)):
        assert bar.shape == of.shape
        names = [node.operator.name for node in Graph((x, w), (bar,)).nodes() if hasattr(node, "operator")]
        assert names.count("convolve") == (1 if stride > 16 else min(stride, most))
        shapes = {"broadcast", "interleave", "pad", "reshape", "reverse", "slice", "transpose"}
        assert {*names} <= {"convolve", *shapes}


@pytest.mark.parametrize(
    ("size", "stride", "dilation"), [(3, 2, 1), (1, 2, 1), (5, 3, 1), (3, 2, 2), (4, 6, 4)]
)
def test_a_strided_cotangent_is_not_multiplied_by_zeros_between(size, stride, dilation):
    """As many products as forward, but for those at the ends that meet zeros around the cotangent."""
    x, w = (Variable(Type(FLOAT, shape), "x") for shape in ((1, 3, 41), (4, 3, size)))
    y = convolve(x, w, **PLAIN | {"strides": (stride,), "dilations": (dilation,)})
    bar, _ = y.operator.pullback(y, constant(np.ones(y.shape)))
    made = [node for node in Graph((x, w), (bar,)).nodes() if getattr(node, "operator", None) is convolve]
    products = sum(node.shape[-1] * node.inputs[1].shape[-1] for node in made)
    assert products <= size * (y.shape[-1] + dilation * size)


def test_the_weights_cotangent_reads_no_more_than_the_windows_reach():
    x, w = (Variable(Type(FLOAT, shape), "x") for shape in ((2, 3, 10), (4, 3, 2)))
    y = convolve(x, w, **PLAIN | {"strides": (3,)})
    _, bar = y.operator.pullback(y, constant(np.ones(y.shape)))
    assert bar.shape == w.shape and bar.inputs[0].shape == (2, 3, 8)


@pytest.mark.parametrize(("low", "high"), [((0,), (0,)), ((2,), (1,)), ((-1,), (-3,)), ((-4,), (2,))])
def test_transposed_convolution_widened_and_cut(low, high):
    random = np.random.default_rng(0)
    x, w = random.standard_normal((1, 1, 4)), random.standard_normal((1, 1, 3))
    full = np.zeros(12)
    for p, k in itertools.product(range(4), range(3)):
        full[3 * p + k] += x[0, 0, p] * w[0, 0, k]
    wide = np.pad(full, (max(low[0], 0), max(high[0], 0)))
    expected = wide[max(-low[0], 0) : len(wide) - max(-high[0], 0)]
    layouts = {"x_layout": "bc0", "w_layout": "oc0", "out_layout": "bo0"}
    node = transposed_convolve(
        constant(x), constant(w), **layouts, strides=(3,), dilations=(1,), low=low, high=high
    )
    (found,) = evaluate(Graph((), (node,)), [])
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("count", "size", "stride", "dilation", "low", "high"),
    list(itertools.product((1, 4), (1, 3, 4), (1, 2, 3, 18), (1, 2, 3), (-2, 0, 3), (-1, 1))),
)
def test_transposed_convolutions_are_sums_of_windows(count, size, stride, dilation, low, high):
    random = np.random.default_rng(0)
    x, w = random.standard_normal((2, 2, count)), random.standard_normal((3, 2, size))
    extent = (count - 1) * stride + (size - 1) * dilation + 1
    full = np.zeros((2, 3, extent + 8))
    for p, k in itertools.product(range(count), range(size)):
        full[:, :, 4 + p * stride + k * dilation] += x[:, :, p] @ w[:, :, k].T
    expected = full[:, :, 4 - low : 4 + extent + high]
    if not expected.shape[-1]:
        return
    layouts = {"x_layout": "bc0", "w_layout": "oc0", "out_layout": "bo0"}
    settings = {"strides": (stride,), "dilations": (dilation,), "low": (low,), "high": (high,)}
    node = transposed_convolve(constant(x), constant(w), **layouts, **settings)
    (found,) = evaluate(Graph((), (node,)), [])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_transposed_convolution_of_single_elements_is_a_product():
    """Of nothing but the window: no element of it meets the zeros around an image."""
    x, w = (Variable(Type(np.dtype(np.float32), shape)) for shape in ((8, 1, 5, 1), (6, 5, 4, 3)))
    layouts = {"x_layout": "b0c1", "w_layout": "oc01", "out_layout": "bo01"}
    settings = {"strides": (2, 5), "dilations": (1, 1), "low": (0, -1), "high": (0, 0)}
    node = transposed_convolve(x, w, **layouts, **settings)
    made = [each.operator.name for each in Graph((x, w), (node,)).nodes() if isinstance(each, Operation)]
    assert sorted(made) == ["contract", "reshape", "slice"]
    assert node.shape == (8, 6, 4, 2)


def test_window_count():
    assert [window_count(7, 3, stride, 1) for stride in (1, 2, 3, 4, 5)] == [5, 3, 2, 2, 1]
    assert window_count(7, 3, 1, 3) == 1 and window_count(7, 3, 1, 4) < 1


@pytest.mark.parametrize(
    ("x", "w", "changes", "message"),
    [
        ((2, 3, 5), (4, 2, 2), {}, "3 channels meet 2"),
        ((2, 3, 5), (4, 3, 6), {}, "a window of 6 elements at distance 1 does not fit into 5 along axis 2"),
        ((2, 3, 5), (4, 3, 3), {"dilations": (3,)}, "at distance 3"),
        ((2, 3, 5), (4, 3, 0), {}, "a window of 0"),
        ((2, 3, 5), (4, 3, 2), {"strides": (0,)}, "1 or more"),
        ((2, 3, 5), (4, 3, 2), {"dilations": (1, 1)}, "1 or more"),
        ((2, 3, 5), (4, 3, 2), {"x_layout": "bo0"}, "layout 'bo0' of x"),
        ((2, 3, 5, 5), (4, 3, 2), {}, "layout 'bc0' of x of shape"),
        ((2, 3, 5), (4, 3, 2), {"out_layout": "bo1"}, "layout 'bo1' of the result"),
        (
            (2, 2, 3, 5),
            (3, 4, 3, 2),
            {"x_layout": "bgc0", "w_layout": "goc0", "out_layout": "bgo0"},
            "groups",
        ),
    ],
)
def test_what_does_not_fit(x, w, changes, message):
    with pytest.raises(ShapeError, match=message):
        convolve(constant(np.zeros(x)), constant(np.zeros(w)), **PLAIN | changes)


def test_dtypes():
    x, w = constant(np.zeros((2, 3, 5), np.float32)), constant(np.zeros((4, 3, 2)))
    with pytest.raises(DTypeError, match="float32 and float64 differ"):
        convolve(x, w, **PLAIN)
    with pytest.raises(DTypeError, match="no bool"):
        convolve(*(constant(np.zeros(shape, bool)) for shape in (x.shape, w.shape)), **PLAIN)
