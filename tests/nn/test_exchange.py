"""Weights from and for PyTorch and Keras: what these libraries compute, recorded once, and round trips.

The numbers were computed by PyTorch 2.13, in ``float64``, and Keras 3.15, which rounds to ``float32`` on the way, with
the weights of ``wave``.
"""

import numpy as np
import pytest

from pullback import flatten, nn
from pullback.errors import DTypeError, ShapeError, TreeError

HIDDEN = 2
GATES = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4}


def wave(*shape, phase=0.0):
    return np.sin(1.7 * np.arange(np.prod(shape)) + phase).reshape(shape)


X = wave(2, 4, 3)


def torch_state(kind, layers=1, both=False, bias=True):
    width, shapes = GATES[kind] * HIDDEN, {}
    for depth in range(layers):
        for ending in ("", "_reverse")[: 1 + both]:
            shapes[f"weight_ih_l{depth}{ending}"] = (width, (1 + both) * HIDDEN if depth else 3)
            shapes[f"weight_hh_l{depth}{ending}"] = (width, HIDDEN)
            if bias:
                shapes[f"bias_ih_l{depth}{ending}"] = (width,)
                shapes[f"bias_hh_l{depth}{ending}"] = (width,)
    return {name: 0.5 * wave(*shape, phase=k) for k, (name, shape) in enumerate(shapes.items())}


def keras_weights(kind, both=False, reset_after=True):
    width = GATES[kind] * HIDDEN
    bias = (2, width) if kind is nn.GRU and reset_after else (width,)
    shapes = [(3, width), (HIDDEN, width), bias] * (1 + both)
    return [0.5 * wave(*shape, phase=k) for k, shape in enumerate(shapes)]


TORCH = {
    "RNN": (
        torch_state(nn.RNN, 2, True),
        (nn.RNN, {}),
        [
            [-0.088075735094829, 0.52867395034831, -0.40940544350672, -0.69116932925207],
            [-0.787606590943756, 0.33784871431542, 0.32248952908828, -0.7570499092509],
        ],
    ),
    "RNN, relu": (
        torch_state(nn.RNN),
        (nn.RNN, {"activation": "relu"}),
        [[0.59551039592474, 0.0], [0.834774072642484, 0.0]],
    ),
    "GRU": (
        torch_state(nn.GRU, 2, True),
        (nn.GRU, {}),
        [
            [-0.179588578731131, -0.094897831187017, 0.64034271218696, -0.298722913420461],
            [-0.155918805105249, 0.120152150368191, 0.270493898740538, -0.091146840124907],
        ],
    ),
    "GRU without biases": (
        torch_state(nn.GRU, bias=False),
        (nn.GRU, {}),
        [[0.50817482557474, 0.165380036136648], [-0.137434310744115, -0.209273800176189]],
    ),
    "LSTM": (
        torch_state(nn.LSTM, 2, True),
        (nn.LSTM, {}),
        [
            [-0.156370572940997, 0.01920960204326, 0.24123821286297, -0.338241428515801],
            [-0.320254221331759, 0.065949568910807, 0.1079936294889, -0.149009656242271],
        ],
    ),
}
"""By name: the state dict, what reads it, and the second sequence's outputs at the first and the last step."""

KERAS = {
    "SimpleRNN": (
        keras_weights(nn.RNN),
        (nn.RNN, {}),
        [[0.224547512683034, -0.106478741115813], [0.864178469264118, 0.019397108937687]],
    ),
    "GRU": (
        keras_weights(nn.GRU),
        (nn.GRU, {}),
        [[0.107826733177555, 0.117946233712864], [0.112425615775241, -0.51968166711853]],
    ),
    "GRU, reset before": (
        keras_weights(nn.GRU, reset_after=False),
        (nn.GRU, {"reset_after": False}),
        [[0.081210722374703, 0.103978808302426], [0.073803651456196, -0.748314927974663]],
    ),
    "LSTM": (
        keras_weights(nn.LSTM),
        (nn.LSTM, {}),
        [[0.046162902574896, 0.098897978397724], [0.184878801112299, -0.292462958254647]],
    ),
    "Bidirectional GRU": (
        keras_weights(nn.GRU, True),
        (nn.GRU, {"bidirectional": True}),
        [
            [0.107826733177555, 0.117946233712864, -0.046654717358698, -0.351812013440737],
            [0.112425615775241, -0.51968166711853, -0.460452988459142, 0.313608044293601],
        ],
    ),
    "Bidirectional LSTM": (
        keras_weights(nn.LSTM, True),
        (nn.LSTM, {"bidirectional": True}),
        [
            [0.046162902574896, 0.098897978397724, -0.127299731796308, 0.046592083308185],
            [0.184878801112299, -0.292462958254647, -0.049916808528793, 0.122759018000774],
        ],
    ),
}

PACKED = {
    "GRU": (
        [2, 4],
        [-0.070150710364809, 0.085656341094791, 0.327443728313507, -0.29931181559623],
        [-0.179588578731131, -0.094897831187017, 0.64034271218696, -0.298722913420461],
    ),
    "LSTM": (
        [4, 2],
        [-0.144515030091664, 0.029447179312527, 0.214088803609496, -0.323441412904481],
        [-0.161326280541547, 0.013229075670996, 0.216414393029849, -0.260032106762692],
    ),
}
"""By name: lengths, and what PyTorch's packed sequences give at the first step of each."""


def assert_equal_arrays(found, expected):
    assert list(found) == list(expected)
    for one, other in zip(flatten(found)[0], flatten(expected)[0]):
        assert one.dtype == other.dtype and one.flags.c_contiguous
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", TORCH)
def test_outputs_with_weights_of_pytorch(case):
    state, (kind, options), expected = TORCH[case]
    layer = nn.from_torch(kind, state, return_sequences=True, **options)
    np.testing.assert_allclose(layer(X)[1, [0, -1]], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("case", PACKED)
def test_lengths_are_packed_sequences_of_pytorch(case):
    lengths, *expected = PACKED[case]
    state, (kind, options), _ = TORCH[case]
    found = nn.from_torch(kind, state, return_sequences=True, **options)(X, lengths=np.array(lengths))
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=1e-14)
    assert not found[lengths.index(2), 2:].any()


@pytest.mark.parametrize("case", KERAS)
def test_outputs_with_weights_of_keras(case):
    weights, (kind, options), expected = KERAS[case]
    layer = nn.from_keras(kind, weights, return_sequences=True, **options)
    np.testing.assert_allclose(layer(X)[1, [0, -1]], expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", TORCH)
def test_there_and_back_is_the_same_state_dict(case, dtype):
    state, (kind, options), _ = TORCH[case]
    state = {name: array.astype(dtype) for name, array in state.items()}
    layer = nn.from_torch(kind, state, **options)
    assert all(leaf.dtype == dtype for leaf in flatten(layer)[0])
    assert_equal_arrays(nn.to_torch(layer), state)


@pytest.mark.parametrize("case", KERAS)
def test_there_and_back_is_the_same_list(case):
    weights, (kind, options), _ = KERAS[case]
    found = nn.to_keras(nn.from_keras(kind, weights, **options))
    assert len(found) == len(weights)
    for one, other in zip(found, weights):
        np.testing.assert_array_equal(one, other)


def test_the_layer_does_not_share_memory_with_the_state_dict():
    state = torch_state(nn.GRU)
    layer = nn.from_torch(nn.GRU, state)
    before = layer(X)
    for array in state.values():
        array[:] = 0
    np.testing.assert_array_equal(layer(X), before)


def test_a_prefix_chooses_a_layer_of_a_larger_model():
    state = {f"encoder.rnn.{name}": array for name, array in torch_state(nn.GRU).items()}
    layer = nn.from_torch(nn.GRU, {**state, "head.weight": np.zeros((1, 2))}, prefix="encoder.rnn.")
    assert_equal_arrays(nn.to_torch(layer, prefix="encoder.rnn."), state)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM])
def test_one_bias_becomes_two_and_two_become_one(kind):
    one = kind(3, HIDDEN, seed=0, dtype=np.float64)
    two = nn.from_torch(kind, nn.to_torch(one))
    np.testing.assert_allclose(two(X), one(X), rtol=1e-14)
    two = nn.from_torch(kind, torch_state(kind))
    np.testing.assert_allclose(nn.from_keras(kind, nn.to_keras(two))(X), two(X), rtol=1e-13)


def test_layers_of_keras_in_one_list_are_stacked():
    first, second = (
        nn.GRU(size, HIDDEN, bidirectional=True, seed=size, return_sequences=True) for size in (3, 4)
    )
    both = nn.from_keras(nn.GRU, nn.to_keras(first) + nn.to_keras(second), bidirectional=True)
    x = X.astype(np.float32)
    np.testing.assert_array_equal(both(x), second(first(x))[:, [-1, -1, 0, 0], [0, 1, 2, 3]])
    again = nn.to_keras(both)
    assert len(again) == 12
    np.testing.assert_array_equal(again[6], nn.to_keras(second)[0])


def torch_with(**arrays):
    return {**torch_state(nn.GRU), **arrays}


def keras_with(position, array):
    weights = keras_weights(nn.GRU)
    weights[position] = array
    return weights


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: nn.from_torch(nn.LSTM, torch_state(nn.GRU)),
            ShapeError,
            r"'weight_ih_l0' has shape \(6, 3\).*\(8, 3\)",
        ),
        (
            lambda: nn.from_torch(nn.GRU, torch_with(bias_hh_l0=np.zeros(5))),
            ShapeError,
            r"'bias_hh_l0' has shape \(5,\).*\(6,\)",
        ),
        (
            lambda: nn.from_torch(nn.GRU, torch_with(weight_hh_l0=np.zeros(6))),
            ShapeError,
            r"'weight_ih_l0' has shape \(6, 3\)",
        ),
        (
            lambda: nn.from_torch(nn.GRU, torch_with(weight_hr_l0=np.zeros(5))),
            TreeError,
            "has 'weight_hr_l0' beside",
        ),
        (lambda: nn.from_torch(nn.GRU, {}), TreeError, "lacks 'weight_ih_l0', 'weight_hh_l0'"),
        (
            lambda: nn.from_torch(nn.GRU, torch_state(nn.GRU), prefix="gru."),
            TreeError,
            "lacks 'gru.weight_ih_l0'",
        ),
        (
            lambda: nn.from_torch(nn.GRU, torch_with(bias_ih_l0=np.zeros(6, np.float32))),
            DTypeError,
            "'bias_ih_l0'",
        ),
        (
            lambda: nn.from_torch(nn.GRU, torch_state(nn.GRU), reset_after=False),
            ValueError,
            "no reset_after=False",
        ),
        (lambda: nn.from_torch(nn.GRU, torch_state(nn.GRU), layers=2), TypeError, "layers"),
        (lambda: nn.from_torch(nn.MGU, torch_state(nn.GRU)), TypeError, "MGU has no counterpart"),
        (lambda: nn.to_torch(nn.LSTM(3, 2, peepholes=True)), ValueError, "no peepholes"),
        (lambda: nn.to_torch(nn.GRU(3, 2, reset_after=False)), ValueError, "no reset_after=False"),
        (lambda: nn.to_torch(nn.GRU(3, 2, learned_state=True)), ValueError, "learned initial state"),
        (lambda: nn.from_keras(nn.GRU, keras_weights(nn.GRU)[:2]), TreeError, "2 arrays; each layer has 3"),
        (lambda: nn.from_keras(nn.GRU, []), TreeError, "0 arrays"),
        (
            lambda: nn.from_keras(nn.GRU, keras_weights(nn.GRU), reset_after=False),
            ShapeError,
            r"bias of layer 0 has shape \(2, 6\).*\(6,\)",
        ),
        (
            lambda: nn.from_keras(nn.GRU, keras_with(0, np.zeros((3, 5)))),
            ShapeError,
            r"the kernel of layer 0 has shape \(3, 5\).*\(3, 6\)",
        ),
        (lambda: nn.from_keras(nn.GRU, keras_with(1, np.zeros((2, 6), int))), DTypeError, "int64"),
        (lambda: nn.from_keras(nn.LSTM, keras_weights(nn.LSTM), peepholes=True), ValueError, "no peepholes"),
        (lambda: nn.to_keras(nn.LSTM(3, 2, layer_norm=True)), ValueError, "no layer_norm"),
        (lambda: nn.to_keras(nn.Recurrent(nn.GRUCell(3, 2))), TypeError, "Recurrent has no counterpart"),
    ],
)
def test_what_does_not_fit(call, error, message):
    with pytest.raises(error, match=message):
        call()
