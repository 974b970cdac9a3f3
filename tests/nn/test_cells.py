"""Recurrent cells against their formulas, written out gate by gate."""

import numpy as np
import pytest

from pullback import flatten, jit, leaf_paths, nn, vmap
from pullback.errors import DTypeError, ShapeError
from pullback.testing import check_grads

INPUTS, HIDDEN, BATCH = 3, 4, 2

CELLS = {
    "RNN": lambda **options: nn.RNNCell(INPUTS, HIDDEN, **options),
    "RNN, relu": lambda **options: nn.RNNCell(INPUTS, HIDDEN, "relu", **options),
    "GRU": lambda **options: nn.GRUCell(INPUTS, HIDDEN, **options),
    "GRU, reset before": lambda **options: nn.GRUCell(INPUTS, HIDDEN, reset_after=False, **options),
    "LSTM": lambda **options: nn.LSTMCell(INPUTS, HIDDEN, **options),
    "LSTM, peepholes": lambda **options: nn.LSTMCell(INPUTS, HIDDEN, peepholes=True, **options),
    "MGU": lambda **options: nn.MGUCell(INPUTS, HIDDEN, **options),
}
OPTIONS = {
    "plain": {},
    "no bias": {"bias": False},
    "two biases": {"recurrent_bias": True},
    "normalised": {"layer_norm": True},
    "normalised, two biases": {"layer_norm": True, "recurrent_bias": True},
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normal(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


class ByHand:
    """A cell's step, from columns of its weights: ``x(gate)`` and ``h(gate, state)`` are one gate's products."""

    def __init__(self, cell, x):
        self.cell, self.given = cell, x

    def columns(self, gate):
        return slice(gate * HIDDEN, (gate + 1) * HIDDEN)

    def x(self, gate):
        cell, part = self.cell, self.columns(gate)
        product = self.given @ cell.input_weight
        if cell.input_scale is not None:
            product = normal(product) * cell.input_scale
        return product[..., part] + (0 if cell.bias is None else cell.bias[part])

    def h(self, gate, state, together):
        """``together`` are the gates that are one product with ``gate``, which is normalised as a whole."""
        cell, part = self.cell, self.columns(gate)
        product = np.zeros((len(state), cell.gates * HIDDEN))
        for other in together:
            product[..., self.columns(other)] = state @ cell.recurrent_weight[:, self.columns(other)]
        chosen = np.concatenate([np.arange(cell.gates * HIDDEN)[self.columns(other)] for other in together])
        if cell.recurrent_scale is not None:
            product[..., chosen] = normal(product[..., chosen]) * cell.recurrent_scale[chosen]
        return product[..., part] + (0 if cell.recurrent_bias is None else cell.recurrent_bias[part])


def step_by_hand(cell, x, state):
    hand = ByHand(cell, x)
    if isinstance(cell, nn.RNNCell):
        total = hand.x(0) + hand.h(0, state, [0])
        return np.tanh(total) if cell.activation == "tanh" else np.maximum(total, 0)
    if isinstance(cell, nn.GRUCell) and cell.reset_after:
        r, z = (sigmoid(hand.x(gate) + hand.h(gate, state, [0, 1, 2])) for gate in (0, 1))
        n = np.tanh(hand.x(2) + r * hand.h(2, state, [0, 1, 2]))
        return (1 - z) * n + z * state
    if isinstance(cell, nn.GRUCell):
        r, z = (sigmoid(hand.x(gate) + hand.h(gate, state, [0, 1])) for gate in (0, 1))
        n = np.tanh(hand.x(2) + hand.h(2, r * state, [2]))
        return (1 - z) * n + z * state
    if isinstance(cell, nn.MGUCell):
        f = sigmoid(hand.x(0) + hand.h(0, state, [0]))
        return (1 - f) * state + f * np.tanh(hand.x(1) + hand.h(1, f * state, [1]))
    h, c = state
    p = np.zeros((3, HIDDEN)) if cell.peephole is None else cell.peephole
    i, f, g, o = (hand.x(gate) + hand.h(gate, h, [0, 1, 2, 3]) for gate in range(4))
    c = sigmoid(f + p[1] * c) * c + sigmoid(i + p[0] * c) * np.tanh(g)
    shown = c if cell.cell_scale is None else normal(c) * cell.cell_scale + cell.cell_shift
    return sigmoid(o + p[2] * c) * np.tanh(shown), c


@pytest.fixture
def random():
    return np.random.default_rng(11)


def drawn_state(cell, random):
    leaves, structure = flatten(cell.initial((BATCH,)))
    return structure.unflatten([random.standard_normal(leaf.shape) for leaf in leaves])


def with_drawn_parameters(cell, random):
    """Scales and shifts begin at ones and zeros, which would hide what they do."""
    leaves, structure = flatten(cell)
    return structure.unflatten([random.uniform(0.3, 0.9, leaf.shape) for leaf in leaves])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_a_step_is_the_formula(make, options, random):
    cell = with_drawn_parameters(make(dtype=np.float64, **options), random)
    x, state = random.standard_normal((BATCH, INPUTS)), drawn_state(cell, random)
    for found, expected in zip(flatten(cell.advance(x, state))[0], flatten(step_by_hand(cell, x, state))[0]):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_a_step_compiled_and_batched(make, random):
    cell = make(dtype=np.float64, seed=0)
    x, state = random.standard_normal((BATCH, INPUTS)), drawn_state(cell, random)
    expected = flatten(cell.advance(x, state))[0]
    for function in (jit(cell.advance), vmap(cell.advance)):
        for found, value in zip(flatten(function(x, state))[0], expected):
            np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"layer_norm": True}], ids=["plain", "normalised"])
@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_derivatives_of_two_steps(make, options, random):
    cell = with_drawn_parameters(make(dtype=np.float64, **options), random)
    arguments, structure = flatten(
        (cell, random.standard_normal((2, BATCH, INPUTS)), drawn_state(cell, random))
    )

    def two_steps(*arguments):
        cell, x, state = structure.unflatten(arguments)
        return tuple(flatten(cell.advance(x[1], cell.advance(x[0], state)))[0])

    check_grads(two_steps, arguments, order=2, tolerance=1e-5)


@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_a_normalised_cell_at_zero_has_finite_derivatives(make):
    cell = make(layer_norm=True, dtype=np.float64, seed=0)
    arguments, structure = flatten(cell)

    def step(*arguments):
        cell = structure.unflatten(arguments)
        return tuple(flatten(cell.advance(np.ones((1, INPUTS)), cell.initial((1,))))[0])

    check_grads(step, arguments, order=1, tolerance=1e-5)


def test_the_reset_gate_of_a_gru_before_and_after_the_product_differ(random):
    after, before = (nn.GRUCell(INPUTS, HIDDEN, reset_after=which, seed=0) for which in (True, False))
    x, state = random.standard_normal((BATCH, INPUTS)), random.standard_normal((BATCH, HIDDEN))
    np.testing.assert_array_equal(after.input_weight, before.input_weight)
    assert np.abs(after.advance(x, state) - before.advance(x, state)).max() > 0.01


def test_a_plain_cell_from_no_state_begins_with_zeros(random):
    for options in ({}, {"recurrent_bias": True}):
        cell = nn.RNNCell(INPUTS, HIDDEN, seed=0, **options)
        x = random.standard_normal((BATCH, INPUTS)).astype(np.float32)
        np.testing.assert_allclose(cell.advance(x), cell.advance(x, cell.initial((BATCH,))), rtol=1e-6)


def test_parameters_and_where_they_begin():
    cell = nn.GRUCell(50, 25, layer_norm=True, seed=0)
    shapes = {path: leaf.shape for path, leaf in zip(leaf_paths(cell), flatten(cell)[0])}
    assert shapes == {
        "input_weight": (50, 75),
        "recurrent_weight": (25, 75),
        "bias": (75,),
        "recurrent_bias": (75,),
        "input_scale": (75,),
        "recurrent_scale": (75,),
    }
    for weight in (cell.input_weight, cell.recurrent_weight, cell.bias, cell.recurrent_bias):
        assert weight.dtype == np.float32 and 0.9 * 0.2 < np.abs(weight).max() <= 0.2
    assert (cell.input_scale == 1).all() and (cell.recurrent_scale == 1).all()
    own = nn.LSTMCell(
        5, 4, initialiser=nn.initialisers.ones, recurrent_initialiser=nn.initialisers.orthogonal
    )
    assert (own.input_weight == 1).all() and not own.bias.any()
    np.testing.assert_allclose(own.recurrent_weight @ own.recurrent_weight.T, np.eye(4), atol=1e-6)


def test_which_cells_have_a_second_bias():
    assert nn.GRUCell(3, 4).recurrent_bias is not None
    assert nn.GRUCell(3, 4, bias=False).recurrent_bias is None
    assert nn.GRUCell(3, 4, reset_after=False).recurrent_bias is None
    assert nn.LSTMCell(3, 4).recurrent_bias is None
    assert nn.LSTMCell(3, 4, recurrent_bias=True).recurrent_bias.shape == (16,)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (nn.RNNCell(3, 4, "relu"), "RNNCell(3 → 4, relu)  # 32 parameters, 128 bytes"),
        (nn.GRUCell(3, 4, reset_after=False), "GRUCell(3 → 4, reset before the product)  # 96 "),
        (nn.LSTMCell(3, 4, peepholes=True, bias=False), "LSTMCell(3 → 4, peepholes, no bias)  # 124 "),
        (nn.MGUCell(3, 4, layer_norm=True), "MGUCell(3 → 4, normalised)  # 80 parameters, 320 bytes"),
    ],
)
def test_descriptions(cell, expected):
    assert repr(cell).startswith(expected)


def test_sizes_and_dtypes_that_are_none():
    with pytest.raises(ShapeError, match=r"\[GRUCell\]"):
        nn.GRUCell(0, 4)
    with pytest.raises(ShapeError, match=r"\[LSTMCell\]"):
        nn.LSTMCell(3, 0, peepholes=True)
    with pytest.raises(DTypeError, match=r"\[MGUCell\]"):
        nn.MGUCell(3, 4, dtype=np.int32)
    with pytest.raises(ValueError, match="'tanh', 'relu'"):
        nn.RNNCell(3, 4, "sin")
