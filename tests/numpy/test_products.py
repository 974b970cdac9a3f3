"""Products of every rank against NumPy, random sums of Einstein's among them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback.numpy as pnp
from pullback import grad, jit
from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS
from pullback.testing import check_grads
from pullback.tracing import trace

MATMUL = [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)), ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((3, 0), (0, 2)), ((0, 2, 3), (1, 3, 4)), ((1, 2, 3), (1, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
@pytest.mark.parametrize(("left", "right"), MATMUL)
def test_matmul(left, right, dtype, agrees, draw):
    x, y = draw(left, dtype), draw(right, dtype, seed=1)
    agrees(np.matmul, x, y)
    agrees(lambda x: x @ y, x)
    agrees(lambda y: x @ y, y)


def test_matmul_promotes(agrees, draw):
    agrees(np.matmul, draw((2, 3), "int32"), draw((3, 2), "float32"))
    agrees(np.matmul, draw((2, 3), "float64"), draw((3, 2), "float32"))


@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (4, 5)), ((4,), (4,)), ((2, 3, 4), (5, 4, 2)), ((), (3,)), ((4,), (4, 2))]
)
def test_dot(left, right, agrees, draw):
    agrees(np.dot, draw(left, "float64"), draw(right, "float64", seed=1))
    agrees(lambda x, y: x.dot(y), draw(left, "float64"), draw(right, "float64", seed=1))


@pytest.mark.parametrize(("left", "right"), [((3, 4), (5, 4)), ((4,), (4,)), ((2, 3, 4), (4,)), ((), (3,))])
def test_inner(left, right, agrees, draw):
    agrees(np.inner, draw(left, "float64"), draw(right, "float64", seed=1))


def test_outer_and_vdot(agrees, draw):
    x, y = draw((2, 3), "float64"), draw((3, 2), "float64", seed=1)
    agrees(np.outer, x, y)
    agrees(np.vdot, x, y)
    agrees(np.add.outer, x, y)


@pytest.mark.parametrize("axes", [0, 1, 2, ([1], [1]), ((0, 1), (2, 0)), (0, 2)])
def test_tensordot(axes, agrees, draw):
    shapes = {1: ((2, 3), (3, 4)), 2: ((5, 2, 3), (2, 3, 4))}.get(
        axes if isinstance(axes, int) else -1, ((2, 3), (3, 3, 2))
    )
    agrees(
        lambda x, y: np.tensordot(x, y, axes), draw(shapes[0], "float64"), draw(shapes[1], "float64", seed=1)
    )


def test_diagonals(agrees, draw):
    x = draw((3, 4, 3), "float64")
    agrees(
        lambda x: (np.diagonal(x), np.trace(x), np.diagonal(x, 1, 0, 2), x.diagonal(-1), x.trace(1, 1, 2)), x
    )
    agrees(
        lambda x: (
            np.diag(x[0]),
            np.diag(x[0], -2),
            np.diag(x[0, 0]),
            np.diag(x[0, 0], 2),
            np.diag(x[0, 0], -1),
        ),
        x,
    )
    agrees(lambda x: np.diagonal(x, 9), x)


EINSUM = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij,ij->", (2, 3), (2, 3)), ("ii", (3, 3)),
    ("ii->i", (3, 3)), ("iij->j", (3, 3, 2)), ("iii", (2, 2, 2)), ("ij->ji", (2, 3)), ("ij->", (2, 3)),
    ("ba", (2, 3)), ("i,j->ij", (2,), (3,)), ("i,i->i", (3,), (3,)), ("...ij,...jk->...ik", (5, 2, 3),
    (3, 4)),
    ("...ij,...jk", (1, 5, 2, 3), (6, 1, 3, 4)), ("i...->...", (2, 3, 4)), ("...", (2, 3)),
    ("ij,kj,lk->il", (2, 3), (4, 3), (5, 4)),
    ("i,j,k->kji", (2,), (3,), (4,)), ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 2), (2, 5)), (",ij->ij", (),
    (2, 3)),
    ("ij,j", (2, 3), (3,)), ("ij,jk->k", (2, 3), (3, 4)), ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ij,jk->ik", (2, 1), (3, 4)), (" i j , j k -> i k ", (2, 3), (3, 4)), ("ij,ji->", (2, 3), (3, 2)),
    ("iij,jk->ik", (2, 2, 3), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("case", EINSUM, ids=lambda case: case[0])
def test_einsum(case, agrees, draw):
    subscripts, *shapes = case
    arrays = [draw(shape, "float64", seed=k) for k, shape in enumerate(shapes)]
    agrees(lambda *arrays: np.einsum(subscripts, *arrays), *arrays)
    check_grads(lambda *arrays: pnp.einsum(subscripts, *arrays), arrays, order=1)


@pytest.mark.parametrize("dtype", ["int32", "bool", "float32"])
def test_einsum_in_other_dtypes(dtype, agrees, draw):
    agrees(lambda x, y: np.einsum("ij,jk->ik", x, y), draw((2, 3), dtype), draw((3, 2), dtype, seed=1))
    agrees(lambda x: np.einsum("ij->j", x), draw((2, 3), dtype))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_random_sums(data):
    extents = {"a": 2, "b": 3, "c": 1, "d": 4}
    parts = data.draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=4))
    known = sorted(set("".join(parts)))
    out = data.draw(st.permutations(known)) if known else []
    out = "".join(out[: data.draw(st.integers(0, len(out)))])
    random = np.random.default_rng(0)
    arrays = [random.normal(size=[extents[letter] for letter in part]) for part in parts]
    subscripts = f"{','.join(parts)}->{out}"
    found = trace(lambda *arrays: np.einsum(subscripts, *arrays), *arrays).evaluate(arrays)
    np.testing.assert_allclose(found, np.einsum(subscripts, *arrays), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", [np.matmul, np.dot, np.inner, pnp.outer, np.vdot, np.tensordot])
def test_derivatives(function, draw):
    check_grads(function, [draw((3, 3), "float64"), draw((3, 3), "float64", seed=1)])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x @ x, r"matmul: shapes \(2, 3\) and \(2, 3\).*3, is summed with extent 2"),
        (lambda x: np.matmul(x, 2.0), "scalar"),
        (lambda x: np.tensordot(x, x, 1), "extents of each pair"),
        (lambda x: np.tensordot(x[0], x[:, :1] * x[:1], 2), "both must have as many"),
        (lambda x: np.tensordot(x, x[0], 2), "both must have as many"),
        (lambda x: np.einsum("ij,jk", x, x), "label 'j' has extents 3 and 2"),
        (lambda x: np.einsum("ij->ijk", x), "'k' is in the result only.*give an operand"),
        (lambda x: np.einsum("ij->ii", x), "each label once"),
        (lambda x: np.einsum("ijk", x), "does not label shape"),
        (lambda x: np.einsum("ij,ij", x), "for 2 operands, 1 came"),
        (lambda x: np.einsum("...->", x), "the ellipsis"),
        (lambda x: np.diag(x[None]), "vector or a matrix"),
    ],
)
def test_shapes_that_do_not_fit(function, message):
    with pytest.raises(ShapeError, match=message):
        trace(function, np.ones((2, 3)))


# -- Norms


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("order", [None, 0, 1, 2, 3, 0.5, np.inf, -np.inf])
def test_norms_of_vectors(order, axis, agrees, draw):
    agrees(lambda x: np.linalg.norm(x, order, axis, keepdims=True), draw((3, 4), "float64"))


@pytest.mark.parametrize("order", [None, "fro", 1, -1, np.inf, -np.inf])
def test_norms_of_matrices(order, agrees, draw):
    agrees(lambda x: np.linalg.norm(x, order), draw((3, 4), "float32"))
    agrees(lambda x: np.linalg.norm(x, order, (0, 2)), draw((3, 2, 4), "float64"))


@pytest.mark.parametrize("order", [None, 2, 3, 1])
def test_the_derivative_of_the_norm_of_zero_is_zero(order):
    np.testing.assert_array_equal(grad(lambda x: np.linalg.norm(x, order))(np.zeros(3)), np.zeros(3))


def test_the_derivative_of_a_norm_is_the_direction(draw):
    x = draw((4,), "float64")
    np.testing.assert_allclose(grad(np.linalg.norm)(x), x / np.linalg.norm(x))
    check_grads(lambda x: np.linalg.norm(x, 3), [x])


def test_the_largest_of_no_elements_is_zero(agrees):
    agrees(lambda x: np.linalg.norm(x, np.inf, axis=1), np.zeros((2, 0)), expected=np.zeros(2))


def test_norms_that_need_singular_values_are_refused():
    with pytest.raises(TracingError, match="'fro'"):
        trace(lambda x: np.linalg.norm(x, 3), np.ones((2, 2)))
    with pytest.raises(TracingError, match="use a number"):
        trace(lambda x: np.linalg.norm(x, "nuc"), np.ones(2))


@pytest.mark.parametrize(
    "axes", [([0, 1], [1, 2], [0, 2]), ([0, 1], [1, 2]), ([..., 0], [0, 3], [..., 3]), ([51, 3], [3, 0])]
)
def test_einsum_with_lists_of_axes(axes, agrees, draw):
    first, second, *result = axes
    agrees(
        lambda x, y: np.einsum(x, first, y, second, *result),
        draw((2, 3), "float64"),
        draw((3, 4), "float64", seed=1),
    )


def test_einsum_with_axes_that_are_none(draw):
    with pytest.raises(TracingError, match=r"found 'ij'"):
        trace(lambda x: np.einsum(x, "ij"), draw((2, 3), "float64"))


def test_einsum_multiplies_from_the_left_as_numpy_does():
    x, big = np.zeros((2, 3), np.float32), np.full((3, 2, 2), 1e30, np.float32)
    other = np.full((3, 2, 4), 1e30, np.float32)
    of_three = lambda x, y, z: np.einsum("ab,bca,bcd->acb", x, y, z)  # noqa: E731
    np.testing.assert_array_equal(jit(of_three)(x, big, other), np.zeros((2, 2, 3)))


def test_einsum_takes_another_order_where_that_saves_much_or_is_asked_for():
    chain = [np.ones((32, 32)), np.ones((32, 32)), np.ones(32)]

    def products(**how):
        graph = trace(lambda *operands: np.einsum("ij,jk,k->i", *operands, **how), *chain).graph
        return [
            node.shape for node in graph.nodes() if getattr(node, "operator", None) is OPERATORS["contract"]
        ]

    assert products() == products(optimize=True) == [(32,), (32,)]
    assert products(optimize=False) == [(32, 32), (32,)]
    assert products(optimize=["einsum_path", (0, 1), (0, 1)]) == [(32, 32), (32,)]
    few = [np.ones((3, 3)), np.ones((3, 3)), np.ones(3)]
    graph = trace(lambda *operands: np.einsum("ij,jk,k->i", *operands), *few).graph
    assert any(node.shape == (3, 3) for node in graph.nodes() if node.inputs)


@pytest.mark.parametrize("axis", [0, -1])
def test_reductions_take_an_axis_of_a_scalar(axis):
    for function in (
        np.sum,
        np.prod,
        np.max,
        np.min,
        np.any,
        np.all,
        np.argmax,
        np.cumsum,
        np.cumprod,
        np.ptp,
    ):
        wanted = function(np.float64(3), axis=axis)
        found = jit(lambda x, function=function: function(x, axis=axis))(np.float64(3))
        assert np.shape(found) == np.shape(wanted)
        assert found == wanted
    with pytest.raises(ShapeError, match="axis 1 of a scalar"):
        jit(lambda x: np.sum(x, axis=1))(np.float64(3))


def test_einsum_of_no_products_is_zero_whatever_the_others_are():
    x, nothing = np.array([[1.0, np.nan], [np.inf, 2.0]]), np.zeros((0, 2))
    for call in (lambda x, y: np.einsum("ab,cb->b", x, y), lambda x, y: np.einsum("cb,ab,ad->bd", y, x, x)):
        np.testing.assert_array_equal(jit(call)(x, nothing), call(x, nothing))
        np.testing.assert_array_equal(grad(lambda x, call=call: call(x, nothing).sum())(x), np.zeros((2, 2)))
