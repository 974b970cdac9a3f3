"""Multi-head attention against sums over keys, written out query by query."""

import numpy as np
import pytest

from pullback import flatten, grad, jit, leaf_paths, load, nn, save, vmap
from pullback import random as keys
from pullback.errors import DTypeError, ShapeError
from pullback.testing import check_grads

BATCH, QUERIES, KEYS, FEATURES, HEADS = 2, 3, 4, 6, 2
KEY_MASK = np.array([[True, True, False, False], [True, True, True, True]])


@pytest.fixture
def random():
    return np.random.default_rng(2)


@pytest.fixture
def layer(random):
    made = nn.MultiHeadAttention(FEATURES, HEADS, key_features=5, value_features=7, dtype=np.float64)
    leaves, structure = flatten(made)
    return structure.unflatten([random.standard_normal(leaf.shape) * 0.5 for leaf in leaves])


@pytest.fixture
def inputs(random):
    return [random.standard_normal((BATCH, n, f)) for n, f in ((QUERIES, 6), (KEYS, 5), (KEYS, 7))]


def by_hand(layer, query, key, value, seen, added):
    """``seen`` and ``added`` have the shape (batch, heads, queries, keys)."""
    size, result = FEATURES // HEADS, np.zeros(query.shape)
    for b, q in np.ndindex(query.shape[:2]):
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            asked = (query[b, q] @ layer.query.weight + layer.query.bias)[part]
            powers, total = 0.0, np.zeros(size)
            for k in range(key.shape[1]):
                if seen[b, head, q, k]:
                    offered = (key[b, k] @ layer.key.weight + layer.key.bias)[part]
                    given = (value[b, k] @ layer.value.weight + layer.value.bias)[part]
                    power = np.exp(asked @ offered / np.sqrt(size) + added[b, head, q, k])
                    powers, total = powers + power, total + power * given
            result[b, q, part] = total / powers if powers else 0
    return result @ layer.output.weight + layer.output.bias


def masks(random):
    """By name: what the layer is called with, and which keys are seen and what is added."""
    seen = np.ones((BATCH, HEADS, QUERIES, KEYS), bool)
    some = random.random((QUERIES, KEYS)) < 0.5
    each = random.random((BATCH, HEADS, QUERIES, KEYS)) < 0.6
    slopes = random.standard_normal((HEADS, 1, KEYS))
    barred = np.where(some, 0.5, -np.inf)
    none = each & (np.arange(QUERIES) != 1)[:, None]
    lower, padding = np.tril(seen), KEY_MASK[:, None, None]
    return {
        "all": ({}, seen, 0),
        "some": ({"mask": some}, seen & some, 0),
        "for each head": ({"mask": each}, each, 0),
        "added": ({"mask": slopes}, seen, slopes),
        "added infinities": ({"mask": barred}, seen & some, 0.5),
        "padding": ({"key_mask": KEY_MASK}, seen & padding, 0),
        "causal": ({"causal": True}, lower, 0),
        "several": ({"causal": True, "key_mask": KEY_MASK, "mask": slopes}, lower & padding, slopes),
        "nothing for one query": ({"mask": none}, none, 0),
        "nothing": ({"key_mask": np.zeros((BATCH, KEYS), bool)}, np.zeros_like(seen), 0),
    }


CASES = list(masks(np.random.default_rng(0)))


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_attention_is_the_weighted_mean(layer, inputs, random, case, compiled):
    options, seen, added = masks(random)[case]
    expected = by_hand(layer, *inputs, seen, np.broadcast_to(added, seen.shape))

    def call(layer, inputs, mask, key_mask):
        return layer(*inputs, mask=mask, key_mask=key_mask, causal=options.get("causal", False))

    run = jit(call) if compiled else call
    found = run(layer, inputs, options.get("mask"), options.get("key_mask"))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_derivatives(layer, inputs, random, case):
    options = masks(random)[case][0]
    arguments, structure = flatten((layer, inputs))

    def run(*arguments):
        layer, inputs = structure.unflatten(arguments)
        return layer(*inputs, **options)

    check_grads(run, arguments, order=1, tolerance=1e-6)


def test_a_query_that_sees_nothing_gives_no_derivative(layer, inputs, random):
    options = masks(random)["nothing for one query"][0]
    gradient = grad(lambda query: (layer(query, *inputs[1:], **options) ** 2).sum())
    for run in (gradient, jit(gradient)):
        found = run(inputs[0])
        assert np.isfinite(found).all() and not found[:, 1].any() and found[:, 0].any()


def test_large_scores_do_not_overflow(layer, inputs):
    found = layer(inputs[0] * 1e4, *inputs[1:], key_mask=KEY_MASK)
    assert np.isfinite(found).all()


def test_padding_is_not_looked_at(layer, inputs):
    query, key, value = inputs
    key, value = (np.where(KEY_MASK[..., None], part, np.nan) for part in (key, value))
    np.testing.assert_array_equal(
        layer(query, key, value, key_mask=KEY_MASK), layer(*inputs, key_mask=KEY_MASK)
    )
    gradient = grad(lambda layer: layer(query, key, value, key_mask=KEY_MASK).sum())(layer)
    assert all(np.isfinite(leaf).all() for leaf in flatten(gradient)[0])


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("hidden", [np.nan, np.inf])
def test_padding_of_self_attention_asks_nothing(random, hidden, compiled):
    """The loss does not look at what is put out there; the gradients of shared weights pass through all the same."""
    layer = nn.MultiHeadAttention(FEATURES, HEADS, seed=0, dtype=np.float64)
    x = random.standard_normal((BATCH, KEYS, FEATURES))
    seen = KEY_MASK[..., None]

    def loss(layer, x):
        return (np.where(seen, layer(x, key_mask=KEY_MASK), 0) ** 2).sum()

    slope = jit(grad(loss, (0, 1))) if compiled else grad(loss, (0, 1))
    found, expected = (slope(layer, np.where(seen, x, other)) for other in (hidden, 0.0))
    for one, other in zip(flatten(found)[0], flatten(expected)[0]):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    # A place that is no key may be a query, as a masked word is.
    np.testing.assert_array_equal(layer(x, key_mask=KEY_MASK), layer(x, x.copy(), key_mask=KEY_MASK))


@pytest.mark.parametrize(
    "mask",
    [
        KEY_MASK[:, None, None],
        np.where(KEY_MASK[:, None, None], 0.5, -np.inf),
        np.broadcast_to(KEY_MASK[:, None, None], (BATCH, 1, QUERIES, KEYS)) & (np.arange(KEYS) > 0),
        KEY_MASK[0],
    ],
    ids=["bools", "floats", "for each query", "of keys alone"],
)
def test_keys_that_a_mask_hides_from_all_queries_are_not_looked_at(layer, inputs, mask):
    query, key, value = inputs
    hidden = (mask == -np.inf if mask.dtype.kind == "f" else ~mask).all(axis=tuple(range(mask.ndim))[-3:-1])
    bad = [np.where(hidden[..., None], np.nan, part) for part in (key, value)]
    for run in (lambda layer, *of: layer(*of, mask=mask), jit(lambda layer, *of: layer(*of, mask=mask))):
        np.testing.assert_array_equal(run(layer, query, *bad), run(layer, *inputs))
        gradient = grad(lambda layer, run=run: run(layer, query, *bad).sum())(layer)
        assert all(np.isfinite(leaf).all() for leaf in flatten(gradient)[0])


def test_self_attention_and_values_that_are_the_keys(random):
    layer = nn.MultiHeadAttention(FEATURES, 3, seed=0, dtype=np.float64)
    x, memory = random.standard_normal((2, BATCH, QUERIES, FEATURES))
    np.testing.assert_array_equal(layer(x), layer(x, x, x))
    np.testing.assert_array_equal(layer(x, memory), layer(x, memory, memory))
    np.testing.assert_allclose(layer(x[0]), layer(x)[0], rtol=1e-12)
    np.testing.assert_allclose(vmap(layer)(x), layer(x), rtol=1e-12)


def test_a_mask_does_not_change_the_dtype():
    layer, x = nn.MultiHeadAttention(FEATURES, HEADS), np.ones((BATCH, QUERIES, FEATURES), np.float32)
    for options in ({"mask": np.zeros((QUERIES, QUERIES))}, {"causal": True}):
        assert layer(x, **options).dtype == np.float32


def test_dropout_is_of_the_weights(layer, inputs):
    plain = layer(*inputs)
    layer.dropout = 0.5
    np.testing.assert_array_equal(layer(*inputs), plain)
    with nn.training(keys.key(0)):
        dropped = layer(*inputs)
    assert np.abs(dropped - plain).max() > 0.01


def test_saved_and_loaded(layer, inputs, tmp_path):
    assert leaf_paths(layer) == [
        f"{part}.{name}" for part in ("query", "key", "value", "output") for name in ("weight", "bias")
    ]
    save(layer, tmp_path / "layer.safetensors")
    like = nn.MultiHeadAttention(FEATURES, HEADS, key_features=5, value_features=7, dtype=np.float64)
    again = load(tmp_path / "layer.safetensors", like=like)
    np.testing.assert_array_equal(again(*inputs), layer(*inputs))


def test_description():
    layer = nn.MultiHeadAttention(8, 2, key_features=4, bias=False, dropout=0.1)
    assert repr(layer) == (
        "MultiHeadAttention(8, 2 heads, keys of 4, no bias, dropout 0.1)  # 192 parameters, 768 bytes"
    )


X = np.zeros((BATCH, QUERIES, FEATURES))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda layer: nn.MultiHeadAttention(6, 4), ShapeError, "6 features do not fall into 4 heads"),
        (lambda layer: nn.MultiHeadAttention(6, 2, dropout=1), ValueError, "rate is 1"),
        (lambda layer: layer(X[..., :5]), ShapeError, "last axis must have 6"),
        (lambda layer: layer(X[0, 0]), ShapeError, r"shape \(6,\)"),
        (lambda layer: layer(X, X[:1]), ShapeError, r"\(2, 3, 6\), \(1, 3, 6\)"),
        (lambda layer: layer(X, X, X[:, :2]), ShapeError, "each key a value"),
        (
            lambda layer: layer(X, mask=np.ones((3, 4), bool)),
            ShapeError,
            r"mask has shape \(3, 4\).*\(2, 2, 3, 3\)",
        ),
        (lambda layer: layer(X, mask=np.ones((3, 3), int)), DTypeError, "mask of dtype int64"),
        (lambda layer: layer(X, key_mask=np.ones((3, 3), bool)), ShapeError, r"key_mask has shape \(3, 3\)"),
        (
            lambda layer: layer(X, key_mask=np.ones((2, 3))),
            DTypeError,
            "key_mask of dtype float64. Give booleans",
        ),
    ],
)
def test_what_does_not_fit(call, error, message):
    with pytest.raises(error, match=message):
        call(nn.MultiHeadAttention(FEATURES, HEADS))
