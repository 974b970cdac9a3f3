"""``vmap``: a batch at once is what each example gives, in any nesting, and what is refused."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback import (
    flatten,
    grad,
    jit,
    jvp,
    map_tree,
    nn,
    one_hot,
    optim,
    random,
    trace,
    value_and_grad,
    vjp,
    vmap,
)
from pullback.errors import BatchError, IndexRangeError, TracingError, TreeError
from pullback.graph import Node, Operation
from pullback.numpy import take

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


@dataclasses.dataclass
class Dense:
    weights: Any
    bias: Any
    units: int = 2

    def __call__(self, x: Any) -> Any:
        return np.tanh(x @ self.weights + self.bias)


def loss(model: Dense, x: Any, y: Any) -> Any:
    return ((model(x) - y) ** 2).sum() * model.units


def stacked(function: Callable[..., Any], *columns: Any) -> np.ndarray:
    """``function`` of each example by itself."""
    return np.stack([function(*row) for row in zip(*columns)])


def operators(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The operators of the graph of ``function``."""
    nodes = trace(function, *arguments).graph.nodes()
    return [node.operator.name for node in nodes if isinstance(node, Operation)]


# -- Axes in and out


def test_examples_along_the_first_axis():
    x, y = normal(4, 3), normal(4, 3)
    np.testing.assert_allclose(vmap(np.dot)(x, y), (x * y).sum(1))
    assert vmap(lambda x: x)(np.arange(3)).tolist() == [0, 1, 2]


def test_examples_along_any_axis():
    x, y = normal(3, 4), normal(4, 2, 3)
    wanted = stacked(lambda x, y: y @ x, x.T, y)
    for axis in (0, -3):
        np.testing.assert_allclose(vmap(lambda x, y: y @ x, (1, axis))(x, y), wanted)
    np.testing.assert_allclose(vmap(lambda x, y: y @ x, [-1, 0], out_axes=1)(x, y), wanted.T)
    np.testing.assert_allclose(vmap(lambda x, y: y @ x, (1, 0), out_axes=-1)(x, y), wanted.T)


def test_arguments_without_examples_stay_what_they_are():
    def repeated(x, times, table, *, add):
        assert isinstance(table, np.ndarray) and isinstance(times, int)
        for _ in range(times):
            x = x * table[0]
        return x + add

    x = normal(3, 2)
    found = vmap(repeated, (0, None, None))(x, 2, np.array([3.0]), add=np.array([10.0, 20.0, 30.0]))
    np.testing.assert_allclose(found, x * 9 + np.array([[10.0], [20.0], [30.0]]))


def test_trees_of_axes():
    tree = {"w": normal(2, 3), "rest": [normal(4, 3), normal(3)], "none": None}

    def function(tree, x):
        return {"sum": tree["w"].sum() + tree["rest"][0].sum() + tree["rest"][1] * x, "x": (x, 1.0)}

    found = vmap(function, ({"w": 1, "rest": [-1, 0], "none": None}, None), {"sum": 0, "x": None})(tree, 2.0)
    wanted = tree["w"].sum(0) + tree["rest"][0].sum(0) + 2.0 * tree["rest"][1]
    np.testing.assert_allclose(found["sum"], wanted)
    assert found["x"] == (2.0, 1.0)
    partly = vmap(lambda t: t["w"] * t["rest"][0].sum(), ({"w": 0, "rest": None, "none": None},))(tree)
    np.testing.assert_allclose(partly, tree["w"] * tree["rest"][0].sum())


def test_results_that_are_the_same_for_all_examples():
    x = normal(3, 2)
    found = vmap(lambda x, y: (x, y, 5), (0, None), (0, 1, None))(x, np.arange(4))
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], np.repeat(np.arange(4)[:, None], 3, 1))
    assert found[2] == 5


def test_a_batch_of_models():
    models = Dense(normal(5, 3, 2), normal(5, 2))
    x = normal(3)
    each = [Dense(w, b)(x) for w, b in zip(models.weights, models.bias)]
    np.testing.assert_allclose(vmap(lambda model, x: model(x), (0, None))(models, x), each)
    shared = vmap(lambda model, x: model(x), (Dense(0, None), None))(Dense(models.weights, np.ones(2)), x)
    np.testing.assert_allclose(shared, [Dense(w, np.ones(2))(x) for w in models.weights])


@pytest.mark.parametrize("size", [0, 1, 3])
def test_batches_of_any_size_and_dtype(size):
    flags, counts = np.arange(size) % 2 == 0, np.arange(2 * size).reshape(size, 2)
    found = vmap(lambda flag, count: (np.where(flag, count, -count), ~flag, count.sum(dtype=np.int64)))(
        flags, counts
    )
    np.testing.assert_array_equal(found[0], np.where(flags[:, None], counts, -counts))
    np.testing.assert_array_equal(found[1], ~flags)
    np.testing.assert_array_equal(found[2], counts.sum(1))
    assert [x.dtype for x in found] == [counts.dtype, bool, np.int64]


def test_results_are_the_callers_own():
    x = np.ones((2, 3))
    same, repeated = vmap(lambda x: (x, 1.0))(x)
    same += 1
    repeated += 1
    np.testing.assert_array_equal(x, 1.0)
    np.testing.assert_array_equal(repeated, 2.0)


# -- Derivatives


def test_gradients_of_examples():
    model, x, y = Dense(normal(3, 2), normal(2)), normal(5, 3), normal(5, 2)
    found = vmap(grad(loss), (None, 0, 0))(model, x, y)
    each = [grad(loss)(model, *row) for row in zip(x, y)]
    np.testing.assert_allclose(found.weights, [g.weights for g in each])
    np.testing.assert_allclose(found.bias, [g.bias for g in each])
    assert found.units == 2
    total = grad(lambda model: vmap(loss, (None, 0, 0))(model, x, y).sum())(model)
    np.testing.assert_allclose(found.weights.sum(0), total.weights)
    values, again = vmap(value_and_grad(loss), (None, 0, 0))(model, x, y)
    np.testing.assert_allclose(values, [loss(model, *row) for row in zip(x, y)])
    np.testing.assert_array_equal(again.bias, found.bias)


def test_jacobians():
    matrix, x = normal(3, 4), normal(4)
    function = lambda x: np.tanh(matrix @ x)  # noqa: E731
    wanted = (1 - function(x) ** 2)[:, None] * matrix
    _, pull = vjp(function, x)
    np.testing.assert_allclose(vmap(pull)(np.eye(3))[0], wanted)
    push = lambda v: jvp(function, (x,), (v,))[1]  # noqa: E731
    np.testing.assert_allclose(vmap(push, out_axes=1)(np.eye(4)), wanted)


def test_derivatives_of_a_batch_are_a_batch_of_derivatives():
    x, v = normal(3, 4), normal(3, 4)
    function = lambda x: np.sin(x) * x[::-1]  # noqa: E731
    one = jvp(vmap(function), (x,), (v,))[1]
    other = vmap(lambda x, v: jvp(function, (x,), (v,))[1])(x, v)
    np.testing.assert_allclose(one, other)
    np.testing.assert_allclose(
        vjp(vmap(function), x)[1](v)[0], vmap(lambda x, v: vjp(function, x)[1](v)[0])(x, v)
    )
    hessians = vmap(
        lambda x: vmap(lambda v: jvp(grad(lambda x: function(x).sum()), (x,), (v,))[1])(np.eye(4))
    )(x)
    step = 1e-6 * v
    slope = vmap(grad(lambda x: function(x).sum()))
    np.testing.assert_allclose(
        np.einsum("nij,nj->ni", hessians, step) / 1e-6, (slope(x + step) - slope(x - step)) / 2e-6, atol=1e-8
    )


def test_gradients_of_integers_among_the_leaves():
    model = Dense(normal(3, 2), np.array([1, 2]))
    found = vmap(grad(loss), (None, 0, None))(model, normal(4, 3), np.zeros(2))
    np.testing.assert_array_equal(found.bias, np.zeros((4, 2), int))


# -- Nesting


def test_vmap_of_vmap():
    x, y = normal(3, 2), normal(4, 2)
    table = vmap(vmap(np.dot, (None, 0)), (0, None))(x, y)
    np.testing.assert_allclose(table, x @ y.T)
    np.testing.assert_allclose(vmap(vmap(np.dot, (0, None), 0), (None, 0), 1)(x, y), x @ y.T)
    assert vmap(vmap(lambda x: x.sum()))(normal(3, 2, 4)).shape == (3, 2)


def test_the_inner_function_may_close_over_the_outer_example():
    x, y = normal(3), normal(4)
    found = vmap(lambda a: vmap(lambda b: a * b)(y))(x)
    np.testing.assert_allclose(found, np.outer(x, y))
    inner = vmap(lambda a: vmap(lambda b: b + 1)(y) * a)(x)
    np.testing.assert_allclose(inner, np.outer(x, y + 1))
    slopes = vmap(lambda a: grad(lambda c: vmap(lambda b: a * b * c * c)(y).sum())(a))(x)
    np.testing.assert_allclose(slopes, 2 * x * x * y.sum())


def test_inside_and_around_compiled_functions():
    model, x, y = Dense(normal(3, 2), normal(2)), normal(5, 3), normal(5, 2)
    wanted = vmap(grad(loss), (None, 0, 0))(model, x, y)
    for function in (
        jit(vmap(grad(loss), (None, 0, 0))),
        vmap(jit(grad(loss)), (None, 0, 0)),
        jit(vmap(jit(grad(loss)), (None, 0, 0))),
    ):
        found = function(model, x, y)
        np.testing.assert_allclose(found.weights, wanted.weights, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found.bias, wanted.bias, rtol=1e-12, atol=1e-14)


def test_inside_a_trace_it_gives_nodes():
    seen = []

    def function(x):
        seen.append(vmap(lambda y: y * x)(np.ones(3)))
        seen.append(vmap(lambda y: 2 * y)(np.ones(3)))
        return seen[0]

    np.testing.assert_array_equal(trace(function, 2.0).evaluate([2.0]), [2.0, 2.0, 2.0])
    assert isinstance(seen[0], Node)
    np.testing.assert_array_equal(seen[1], [2.0, 2.0, 2.0])


# -- What is made of it


def test_nothing_is_done_once_per_example():
    matrix, x = normal(3, 4), normal(100, 4)
    assert operators(vmap(lambda a, x: a @ x, (None, 0)), matrix, x).count("contract") == 1
    images, kernels = normal(10, 8, 8, 3), normal(3, 3, 3, 2)
    layer = nn.Conv2d(3, 2, 3)
    batched = operators(vmap(lambda x: layer(x[None])[0]), images.astype(np.float32).transpose(0, 3, 1, 2))
    assert batched.count("convolve") == 1
    assert "scatter_add" not in operators(vmap(lambda x: x[:, 1:]), kernels)


def test_what_is_the_same_for_all_examples_is_computed_once():
    nodes = trace(vmap(lambda a, x: np.exp(a) * x, (None, 0)), normal(3), normal(5, 3)).graph.nodes()
    assert [n.shape for n in nodes if isinstance(n, Operation) and n.operator.name == "exp"] == [(3,)]


def test_a_network_of_one_sample():
    """Convolution, pooling, normalisation and a loss, written for a batch, for each sample of a batch by itself."""
    network = nn.Chain(
        nn.Conv2d(2, 3, 3), nn.relu, nn.MaxPool2d(2), nn.Reshape(27), nn.LayerNorm(27), nn.Dense(27, 4)
    )
    x, labels = normal(5, 2, 8, 8).astype(np.float32), np.arange(5) % 4

    def one_loss(network, x, label):
        return nn.softmax_cross_entropy(network(x[None]), one_hot(label, 4)[None])

    values, slopes = vmap(value_and_grad(one_loss), (None, 0, 0))(network, x, labels)
    compiled = jit(vmap(value_and_grad(one_loss), (None, 0, 0)))(network, x, labels)
    for k in range(5):
        value, slope = value_and_grad(one_loss)(network, x[k], labels[k])
        for values_of, slopes_of in ((values, slopes), compiled):
            np.testing.assert_allclose(values_of[k], value, rtol=1e-5)
            for batch, one in zip(flatten(slopes_of)[0], flatten(slope)[0]):
                np.testing.assert_allclose(batch[k], one, rtol=1e-4, atol=1e-5)


def test_an_ensemble_is_trained():
    """Models of a batch, each with an optimiser's state and a dropout of its own, on the same examples."""
    optimiser, x = optim.Adam(0.1), normal(6, 3).astype(np.float32)
    dropout = nn.Dropout(0.5)

    def step(model, state, key):
        def loss(model):
            with nn.training(key):
                return (dropout(model(x)) ** 2).mean()

        value, gradient = value_and_grad(loss)(model)
        return value, *optimiser.update(gradient, state, model)

    models = [Dense(normal(3, 2).astype(np.float32), np.ones(2, np.float32)) for _ in range(3)]
    many = map_tree(lambda *leaves: np.stack(leaves), *models)
    keys = random.split(random.key(0), 3)
    states = vmap(optimiser.init)(many)
    for found in (vmap(step)(many, states, keys), jit(vmap(step))(many, states, keys)):
        for k, model in enumerate(models):
            each = step(model, optimiser.init(model), keys[k])
            for batch, one in zip(flatten(found)[0], flatten(each)[0]):
                np.testing.assert_allclose(batch[k], one, rtol=1e-5, atol=1e-6)


def test_random_numbers_follow_their_keys():
    key = random.key(1)
    same = vmap(lambda x: random.uniform(key, (3,)) + 0 * x)(np.zeros(2, np.float32))
    np.testing.assert_array_equal(same, [random.uniform(key, (3,))] * 2)
    traced = jit(lambda key: vmap(lambda x: random.uniform(key, (3,)) + x)(np.zeros(2, np.float32)))(key)
    np.testing.assert_array_equal(traced, same)
    keys = random.split(key, 4)
    wanted = np.stack([random.uniform(k, (3,)) for k in keys])
    np.testing.assert_array_equal(vmap(lambda k: random.uniform(k, (3,)))(keys), wanted)
    np.testing.assert_array_equal(jit(vmap(lambda k: random.uniform(k, (3,))))(keys), wanted)


def test_an_index_outside_names_its_example():
    with pytest.raises(IndexRangeError, match=r"7 at position \(2,\)"):
        vmap(lambda k: take(np.arange(4.0), k))(np.array([0, 1, 7]))


# -- What is refused


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: vmap(lambda t, x: x, (0, 1))({"w": np.ones((3, 2))}, np.ones((3, 4))),
            r"argument 0 at w has 3 along axis 0 \(float64\[3, 2\]\), argument 1 has 4 along axis 1 .*None",
        ),
        (
            lambda: vmap(lambda x, y: x)(np.ones(2), y=np.ones(3)),
            "argument 0 has 2 .*, keyword y has 3 along axis 0",
        ),
        (lambda: vmap(np.sin)(1.0), r"axis 0 of argument 0, which is float64\[\] and has no axes"),
        (lambda: vmap(np.sin, -3)(np.ones((2, 3))), "axis -3 of argument 0, .* has axes -2 to 1"),
        (lambda: vmap(np.sin, None)(1.0), "in_axes None no array of the arguments is batched"),
        (lambda: vmap(np.add, (None, None))(1.0, 2.0), r"in_axes \(None, None\) no array"),
        (lambda: vmap(lambda x: 1.0)([]), "no array of the arguments is batched"),
        (
            lambda: vmap(np.sin, out_axes=None)(np.ones(3)),
            r"out_axes is None for the result, float64\[\] for each",
        ),
        (lambda: vmap(lambda x: {"y": x}, out_axes={"y": None})(np.ones(3)), "the result at y"),
        (
            lambda: vmap(np.sin, out_axes=2)(np.ones((3, 4))),
            r"axis 2 of the result .* float64\[3, 4\] .* -2 to 1",
        ),
        (lambda: vmap(np.sin, out_axes=1)(np.ones(3)), "has axes -1 to 0"),
    ],
)
def test_what_is_no_batch(attempt, message):
    with pytest.raises(BatchError, match=message):
        attempt()


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: vmap(np.add, (0,))(np.ones(2), np.ones(2)), "has 1 entries and .* 2 positional arguments"),
        (
            lambda: vmap(lambda t: t, ([0, 0],))((np.ones(2), np.ones(2))),
            r"in_axes of argument 0: .*\[\*, \*\] for \(",
        ),
        (
            lambda: vmap(lambda t: t, ({"a": 0},))({"a": np.ones(2), "b": 1.0}),
            "another structure at the root",
        ),
        (
            lambda: vmap(lambda t: t, ({"a": (0, 1)},))({"a": np.ones(2)}),
            r"another structure at a: \(\*, \*\) for \*",
        ),
        (lambda: vmap(np.sin, 1.0)(np.ones(2)), "in_axes of argument 0 holds 1.0; an axis is an integer"),
        (lambda: vmap(np.sin, True)(np.ones(2)), "holds True"),
        (lambda: vmap(np.sin, ("0",))(np.ones(2)), "in_axes of argument 0: .* holds a str"),
        (lambda: vmap(np.sin, out_axes=(0, 0))(np.ones(2)), "out_axes of the result: another structure"),
        (lambda: vmap(lambda x: "text")(np.ones(2)), "the result of a traced function"),
    ],
)
def test_axes_that_do_not_fit(attempt, message):
    with pytest.raises(TreeError, match=message):
        attempt()


def test_python_decisions_about_an_example():
    with pytest.raises(TracingError, match=r"np\.where.*test_mapping\.py"):
        vmap(lambda x: x if x > 0 else -x)(np.ones(3))


def test_an_example_that_is_kept():
    kept = []
    vmap(lambda x: kept.append(x) or x)(np.ones(3))
    with pytest.raises(TracingError, match="belongs to a trace that is over"):
        vmap(lambda x: x + kept[0])(np.ones(3))


def test_the_function_keeps_its_name():
    assert vmap(loss).__name__ == "loss"
