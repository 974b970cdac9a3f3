"""Layers of recurrent cells against plain loops over each sequence by itself, cut at its own end."""

from operator import itemgetter

import numpy as np
import pytest

from pullback import (
    flatten,
    get_num_threads,
    grad,
    jit,
    leaf_paths,
    load,
    map_tree,
    nn,
    save,
    set_num_threads,
    stop_gradient,
    trace,
    vmap,
)
from pullback import random as keys
from pullback.compiler.passes import optimise
from pullback.errors import DTypeError, IndexRangeError, ShapeError, TreeError
from pullback.graph import OPERATORS, regions
from pullback.testing import check_grads

BATCH, STEPS, INPUTS, HIDDEN = 4, 5, 3, 2
LENGTHS = np.array([5, 2, 0, 1])

KINDS = {
    "RNN": nn.RNN,
    "GRU": nn.GRU,
    "LSTM": nn.LSTM,
    "MGU": nn.MGU,
    "peepholes": lambda *sizes, **options: nn.LSTM(*sizes, peepholes=True, **options),
    "normalised": lambda *sizes, **options: nn.GRU(*sizes, layer_norm=True, reset_after=False, **options),
}
FORMS = {
    "one": {},
    "both directions": {"bidirectional": True},
    "layers": {"layers": 3},
    "layers of both directions": {"layers": 2, "bidirectional": True},
}


class Decay(nn.Module):
    """A cell as a user writes it: its state is a pair, and holds an integer."""

    rate: np.ndarray
    weight: np.ndarray

    def initial(self, batch):
        return np.zeros((*batch, HIDDEN)), np.zeros((*batch, 1), np.int64)

    def advance(self, x, state):
        level, count = state
        return self.rate * level + np.tanh(x @ self.weight), count + 1


@pytest.fixture
def random():
    return np.random.default_rng(5)


@pytest.fixture
def x(random):
    return random.standard_normal((BATCH, STEPS, INPUTS))


def made(kind, **options):
    return KINDS[kind](INPUTS, HIDDEN, **{"dtype": np.float64, "seed": 0, **options})


def output(state):
    return state[0] if isinstance(state, tuple) else state


def loop(cell, x, state, reverse):
    """One sequence (time, features) through one cell: what it puts out, and its last state."""
    outputs = np.zeros((len(x), *output(state).shape))
    for step in reversed(range(len(x))) if reverse else range(len(x)):
        state = cell.advance(x[step], state)
        outputs[step] = output(state)
    return outputs, state


def by_hand(layer, x, lengths=None, states=None):
    """What ``layer`` puts out at all steps and at the last one, and its states: ``states[layer][direction]``."""
    lengths = np.full(len(x), x.shape[1]) if lengths is None else lengths
    grid = layer.layers()
    if states is None:
        states = [[cell.initial((len(x),)) for cell in cells] for cells in grid]
    rows, lasts, ends = [], [], []
    for number, length in enumerate(lengths):
        given, found = x[number, :length], []
        for cells, begins in zip(grid, states):
            runs = [
                loop(cell, given, map_tree(itemgetter(number), begin), direction == 1)
                for direction, (cell, begin) in enumerate(zip(cells, begins))
            ]
            given = np.concatenate([outputs for outputs, _ in runs], axis=-1)
            found.append(tuple(end for _, end in runs))
        rows.append(np.concatenate([given, np.zeros((x.shape[1] - length, given.shape[1]))]))
        lasts.append(np.concatenate([output(end) for end in found[-1]], axis=-1))
        ends.append(tuple(found))
    return np.stack(rows), np.stack(lasts), map_tree(lambda *leaves: np.stack(leaves), *ends)


def assert_same(found, expected):
    found, expected = flatten(found)[0], flatten(expected)[0]
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def changed(layer, **fields):
    copy = map_tree(lambda leaf: leaf, layer)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_states_are_those_of_each_sequence_alone(kind, form, lengths, x):
    layer = made(kind, return_sequences=True, return_state=True, **form)
    rows, lasts, ends = by_hand(layer, x, lengths)
    outputs, state = layer(x, lengths=lengths)
    assert_same(outputs, rows)
    assert_same(state, ends)
    assert_same(changed(layer, return_sequences=False, return_state=False)(x, lengths=lengths), lasts)


@pytest.mark.parametrize("kind", KINDS)
def test_compiled(kind, x):
    layer = made(kind, layers=2, bidirectional=True, return_sequences=True, return_state=True)
    run = jit(lambda layer, x, lengths: layer(x, lengths=lengths))
    assert_same(run(layer, x, LENGTHS), layer(x, lengths=LENGTHS))
    assert_same(run(layer, x, LENGTHS[::-1]), layer(x, lengths=LENGTHS[::-1]))


def products(graph):
    return [getattr(node, "operator", None) for node in graph.nodes()].count(OPERATORS["contract"])


@pytest.mark.parametrize("options", [{}, {"layer_norm": True}], ids=["plain", "normalised"])
@pytest.mark.parametrize(
    ("make", "recurrent"),
    [
        (nn.GRU, 1),
        (lambda *sizes, **options: nn.GRU(*sizes, reset_after=False, **options), 2),
        (nn.LSTM, 1),
        (lambda *sizes, **options: nn.LSTM(*sizes, peepholes=True, **options), 1),
        (nn.MGU, 2),
    ],
    ids=["GRU", "GRU, reset before", "LSTM", "LSTM, peepholes", "MGU"],
)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
def test_a_loop_holds_only_products_with_the_state(make, recurrent, options, lengths, x):
    layer = make(INPUTS, HIDDEN, dtype=np.float64, **options)
    gradient = grad(lambda layer, x: layer(x, lengths=lengths).sum(), argnums=(0, 1))
    graph = optimise(trace(gradient, layer, x).graph)
    loops = [products(region) for node in graph.nodes() for region in regions(node)]
    assert loops == [recurrent, recurrent]
    # The input's product and its two pullbacks, and the gradients of the recurrent weights.
    assert products(graph) == 3 + recurrent


def test_the_same_bits_for_any_number_of_threads():
    before, found = get_num_threads(), set()
    layer = nn.LSTM(INPUTS, 20, bidirectional=True, seed=0)
    x = np.random.default_rng(0).standard_normal((50, STEPS, INPUTS)).astype(np.float32)
    step = jit(grad(lambda layer, x, n: layer(x, lengths=n).sum(), argnums=(0, 1)))
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            leaves, _ = flatten(step(layer, x, np.arange(50) % (STEPS + 1)))
            found.add(b"".join(leaf.tobytes() for leaf in leaves))
    finally:
        set_num_threads(before)
    assert len(found) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_gradients(kind, x, random):
    layer = made(kind, layers=2, bidirectional=True, return_state=True, learned_state=True)
    factors = map_tree(lambda leaf: random.standard_normal(leaf.shape), layer(x))

    def loss(layer, x, lengths):
        return sum(flatten(map_tree(lambda a, b: (a * b).sum(), layer(x, lengths=lengths), factors))[0])

    gradient = grad(loss, argnums=(0, 1))
    assert_same(jit(gradient)(layer, x, LENGTHS), gradient(layer, x, LENGTHS))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM", "peepholes"])
def test_derivatives(kind, form, lengths, x):
    layer = made(kind, return_sequences=True, return_state=True, learned_state=True, **form)
    arguments, structure = flatten((layer, x[:, :3]))
    lengths = None if lengths is None else np.minimum(lengths, 3)

    def run(*arguments):
        layer, x = structure.unflatten(arguments)
        return tuple(flatten(layer(x, lengths=lengths))[0])

    check_grads(run, arguments, order=1, tolerance=1e-6)


def test_second_derivatives(x):
    layer = made("GRU", bidirectional=True)
    check_grads(lambda x: layer(x, lengths=LENGTHS), [x], order=2, tolerance=1e-5)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_what_stands_behind_the_end_is_not_looked_at(kind, x):
    layer = made(kind, layers=2, bidirectional=True, return_sequences=True)
    padded = np.where((np.arange(STEPS) < LENGTHS[:, None])[..., None], x, np.nan)
    assert_same(layer(padded, lengths=LENGTHS), layer(x, lengths=LENGTHS))
    gradient = grad(lambda layer, x: (layer(x, lengths=LENGTHS) ** 2).sum(), argnums=(0, 1))
    assert_same(gradient(layer, padded), gradient(layer, x))
    assert not gradient(layer, x)[1][1, 2:].any()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_given(kind, form, x, random):
    layer = made(kind, return_sequences=True, return_state=True, **form)
    _, state = layer(x)
    state = map_tree(lambda leaf: random.standard_normal(leaf.shape), state)
    grid = [state] if len(layer.layers()) == 1 else state
    grid = [part if "bidirectional" in form else (part,) for part in grid]
    rows, _, ends = by_hand(layer, x, LENGTHS, grid)
    outputs, found = layer(x, state, lengths=LENGTHS)
    assert_same(outputs, rows)
    assert_same(found, ends)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_continues_a_sequence(kind, x):
    layer = made(kind, layers=2, return_state=True)
    _, state = layer(x[:, :2])
    assert_same(layer(x[:, 2:], state), layer(x))


def test_truncated_backpropagation_ends_at_the_state_given(x):
    layer = made("LSTM", return_state=True)

    def loss(layer, x, cut):
        _, state = layer(x[:, :2])
        outputs, _ = layer(x[:, 2:], stop_gradient(state) if cut else state)
        return outputs.sum()

    whole, cut = (grad(loss, argnums=1)(layer, x, cut) for cut in (False, True))
    assert whole[:, :2].any() and not cut[:, :2].any()
    np.testing.assert_allclose(cut[:, 2:], whole[:, 2:], rtol=1e-12)


def test_a_learned_state_begins_as_the_cells_do_and_is_a_parameter(x, random):
    plain, learned = (
        made("LSTM", layers=2, return_state=True, learned_state=which) for which in (False, True)
    )
    assert_same(learned(x), plain(x))
    assert set(leaf_paths(learned)) - set(leaf_paths(plain)) == {f"start.{k}.{p}" for k in "01" for p in "01"}
    other = changed(learned, start=map_tree(lambda leaf: random.standard_normal(leaf.shape), learned.start))
    states = [(map_tree(lambda leaf: np.tile(leaf, (BATCH, 1)), part),) for part in other.start]
    _, lasts, ends = by_hand(other, x, None, states)
    assert_same(other(x), (lasts, ends))
    gradient = grad(lambda layer: layer(x)[0].sum())(other)
    assert all(leaf.any() for leaf in flatten(gradient.start)[0])


def test_a_cell_of_a_users_own(x, random):
    cells = [Decay(np.full(HIDDEN, rate), random.standard_normal((INPUTS, HIDDEN))) for rate in (0.5, 0.9)]
    layer = nn.Recurrent(tuple(cells), return_sequences=True, return_state=True)
    rows, _, ends = by_hand(layer, x, LENGTHS)
    outputs, state = layer(x, lengths=LENGTHS)
    assert_same(outputs, rows)
    assert_same(state, ends[0])
    np.testing.assert_array_equal(state[0][1][:, 0], LENGTHS)
    compiled, _ = jit(lambda layer, x: layer(x, lengths=LENGTHS))(layer, x)
    assert_same(compiled, rows)


class Narrower(Decay):
    """A cell whose state loses its units."""

    def advance(self, x, state):
        level, count = super().advance(x, state)
        return level.sum(axis=-1, keepdims=True), count


class Single(Decay):
    """A cell whose state loses its second part."""

    def advance(self, x, state):
        return super().advance(x, state)[0]


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            Narrower,
            r"float64\[4, 2\] .*float64\[4, 1\]|\(\(4, 1\), \(4, 1\)\) of one of \(\(4, 2\), \(4, 1\)\)",
        ),
        (Single, r"\(\*, \*\) against \*|a state of \(4, 2\) of one of \(\(4, 2\), \(4, 1\)\)"),
    ],
)
def test_a_cell_whose_state_does_not_stay_the_same(x, cell, message, lengths):
    layer = nn.Recurrent(cell(np.ones(HIDDEN), np.ones((INPUTS, HIDDEN))))
    with pytest.raises((ShapeError, TreeError), match=message):
        layer(x, lengths=lengths)


def test_any_number_of_batch_axes(x):
    layer = made("GRU", bidirectional=True, return_sequences=True)
    two = x.reshape(2, 2, STEPS, INPUTS)
    assert_same(layer(two).reshape(BATCH, STEPS, -1), layer(x))
    assert_same(
        layer(two, lengths=LENGTHS.reshape(2, 2)).reshape(BATCH, STEPS, -1), layer(x, lengths=LENGTHS)
    )
    assert_same(layer(x[0]), layer(x)[0])
    assert_same(layer(x[1], lengths=2), layer(x, lengths=LENGTHS)[1])
    assert_same(vmap(lambda x, n: layer(x, lengths=n))(x, LENGTHS), layer(x, lengths=LENGTHS))


@pytest.mark.parametrize("dtype", [np.float64, np.uint8, np.int64, bool])
def test_inputs_of_another_dtype(dtype):
    layer = nn.GRU(INPUTS, HIDDEN, seed=0)
    x = np.arange(BATCH * STEPS * INPUTS).reshape(BATCH, STEPS, INPUTS).astype(dtype)
    found = layer(x)
    assert found.dtype == np.result_type(dtype, np.float32)
    np.testing.assert_allclose(found, layer(x.astype(np.float32)), rtol=1e-5)


def test_dropout_between_layers(x):
    layer = made("GRU", layers=2, dropout=0.5, return_sequences=True)
    plain = changed(layer, dropout=0.0)
    np.testing.assert_array_equal(layer(x), plain(x))
    with nn.training(keys.key(3)):
        first = nn.Recurrent(layer.cells[0], return_sequences=True)(x)
        expected = nn.Recurrent(layer.cells[1], return_sequences=True)(nn.Dropout(0.5)(first))
    with nn.training(keys.key(3)):
        np.testing.assert_allclose(layer(x), expected, rtol=1e-12)
    with nn.training(keys.key(3)):
        single = made("GRU", dropout=0.5)
        np.testing.assert_array_equal(single(x), changed(single, dropout=0.0)(x))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "peepholes"])
def test_saved_and_loaded(kind, x, tmp_path):
    options = {"layers": 2, "bidirectional": True, "learned_state": True}
    layer = made(kind, **options)
    save(layer, tmp_path / "layer.safetensors")
    again = load(tmp_path / "layer.safetensors", like=made(kind, seed=1, **options))
    np.testing.assert_array_equal(again(x), layer(x))


def test_names_of_parameters():
    assert leaf_paths(nn.RNN(3, 4, layers=2)) == [
        *(f"cells.0.{name}" for name in ("input_weight", "recurrent_weight", "bias")),
        *("input_weight", "recurrent_weight", "bias"),
    ]
    assert leaf_paths(nn.LSTM(3, 4, bidirectional=True)) == [
        f"cells.0.{direction}.{name}"
        for direction in "01"
        for name in ("input_weight", "recurrent_weight", "bias")
    ]


def test_descriptions():
    both = nn.GRU(3, 4, layers=2, bidirectional=True, dropout=0.25, return_sequences=True, reset_after=False)
    assert both.describe() == (
        "GRU(3 → 4, 2 layers, both directions, dropout 0.25, all states, reset before the product)"
    )
    assert (
        nn.RNN(3, 4, layers=2, learned_state=True).describe() == "RNN(3 → 4, tanh, 2 layers, learned state)"
    )
    pair = nn.Recurrent((nn.MGUCell(3, 4), nn.MGUCell(3, 4)), nn.MGUCell(8, 2), dropout=0.5)
    assert repr(pair).splitlines() == [
        "Recurrent(",
        "  0 forward: MGUCell(3 → 4),  # 64 parameters, 256 bytes",
        "  0 backward: MGUCell(3 → 4),  # 64 parameters, 256 bytes",
        "  MGUCell(8 → 2),  # 44 parameters, 176 bytes",
        "  dropout: 0.5,",
        ")  # 172 parameters, 688 bytes",
    ]


def misfit(**call):
    layer = nn.LSTM(INPUTS, HIDDEN, layers=2)
    return lambda: layer(**{"x": np.zeros((BATCH, STEPS, INPUTS), np.float32), **call})


STATE = tuple((np.zeros((BATCH, HIDDEN)), np.zeros((BATCH, HIDDEN))) for _ in range(2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (misfit(lengths=LENGTHS + 1), IndexRangeError, r"length.* 6 "),
        (misfit(lengths=LENGTHS - 1), IndexRangeError, r"length.* -1 "),
        (misfit(lengths=LENGTHS[:3]), ShapeError, r"lengths have shape \(3,\).*must have \(4,\)"),
        (misfit(lengths=LENGTHS * 1.0), DTypeError, "lengths of dtype float64"),
        (misfit(x=np.zeros((BATCH, STEPS, 2))), ShapeError, "last axis must have 3"),
        (misfit(x=np.zeros((BATCH, 0, INPUTS))), ShapeError, "no steps"),
        (misfit(x=np.zeros(INPUTS)), ShapeError, "no steps"),
        (misfit(state=STATE[0]), TreeError, "the state is"),
        (
            misfit(state=map_tree(lambda leaf: leaf[:1], STATE)),
            ShapeError,
            r"at 0\.0 has shape \(1, 2\).*\(4, 2\)",
        ),
        (nn.Recurrent, TypeError, "as a cell"),
        (lambda: nn.Recurrent((nn.MGUCell(3, 4),) * 3), TypeError, r"\[3\] cells"),
        (lambda: nn.Recurrent(nn.MGUCell(3, 4), nn.Dense(4, 4)), TypeError, "layer 1 has a Dense"),
        (
            lambda: nn.Recurrent((nn.MGUCell(3, 4), nn.MGUCell(3, 4)), nn.MGUCell(4, 4)),
            ShapeError,
            r"puts out 8 features and layer 1, MGUCell\(4 → 4\), reads 4",
        ),
        (lambda: nn.GRU(3, 4, layers=0), ValueError, "layers is 0"),
        (lambda: nn.GRU(3, 4, dropout=1.0), ValueError, "rate is 1.0"),
    ],
)
def test_what_does_not_fit(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_lengths_that_do_not_fit_in_a_compiled_call(x):
    run = jit(lambda layer, x, lengths: layer(x, lengths=lengths))
    with pytest.raises(IndexRangeError, match="length"):
        run(made("GRU"), x, LENGTHS + 1)


@pytest.mark.parametrize("inner", [nn.Dense(INPUTS, 2, seed=0, dtype=np.float64), nn.Chain(nn.relu)])
def test_a_layer_for_each_step(inner, x):
    layer = nn.TimeDistributed(inner)
    np.testing.assert_allclose(layer(x), vmap(inner, in_axes=1, out_axes=1)(x), rtol=1e-12)
    np.testing.assert_allclose(jit(layer)(x), layer(x), rtol=1e-12)


def test_a_layer_for_each_step_takes_all_steps_as_one_batch(x):
    layer, norm = nn.TimeDistributed(nn.BatchNorm(INPUTS)), nn.BatchNorm(INPUTS)
    with nn.training(keys.key(0)) as mode:
        found, learned = layer(x), mode.updated(layer).layer.running_mean
    with nn.training(keys.key(0)) as mode:
        expected, other = norm(x.reshape(-1, INPUTS)), mode.updated(norm).running_mean
    np.testing.assert_array_equal(found.reshape(-1, INPUTS), expected)
    np.testing.assert_array_equal(learned, other)
    with pytest.raises(ShapeError, match=r"\[TimeDistributed\].*\(3,\)"):
        layer(x[0, 0])
    with pytest.raises(TypeError, match="cannot be called"):
        nn.TimeDistributed(7)


def test_a_state_that_does_not_say_what_is_put_out():
    class Named(nn.Module):
        weight: np.ndarray

        def initial(self, batch):
            return {"h": np.zeros((*batch, 2))}

        def advance(self, x, state):
            return {"h": np.tanh(x @ self.weight + state["h"])}

    with pytest.raises(
        TreeError, match=r"Named has a dict for its state. Make it an array, or a tuple of arrays"
    ):
        nn.Recurrent(Named(np.ones((3, 2))))(np.ones((2, 4, 3)))
