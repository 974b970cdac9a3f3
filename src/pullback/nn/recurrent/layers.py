"""Recurrent layers: cells taken over the steps of sequences, stacked, in one direction or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.control import scan
from pullback.counts import count
from pullback.errors import DTypeError, NamedAxisError, ShapeError, TreeError
from pullback.graph import OPERATORS, Node, dtype_kind
from pullback.graph.named import is_named
from pullback.nn.dropout import Dropout
from pullback.nn.layers import Seed, check_features, sizes
from pullback.nn.module import Module
from pullback.nn.recurrent.cells import Cell, CellOptions, GRUCell, LSTMCell, MGUCell, RNNCell
from pullback.numpy import arange, astype, broadcast_to, concatenate, moveaxis, stack, where
from pullback.numpy.promotion import as_array_node
from pullback.tracing import flatten, map_tree, static

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["GRU", "LSTM", "MGU", "RNN", "Recurrent"]


class LayerOptions(CellOptions, total=False):
    """What the layers of one kind of cell may be given beside their sizes; ``Recurrent`` and the cells explain."""

    layers: int
    bidirectional: bool
    dropout: float
    return_sequences: bool
    return_state: bool
    learned_state: bool


class Recurrent(Module):
    r"""Any recurrent cells, taken over the steps of sequences: :math:`s_t = \text{cell}(x_t, s_{t-1})`.

    (…, time, features) → (…, hidden), what the cell puts out at the last step, or with ``return_sequences`` at
    all steps, (…, time, hidden). Several cells are layers, each reading what the one before puts out. In place of
    a cell a pair of them makes a layer of two directions: the second cell goes from the last step to the first,
    and what both put out is joined along the last axis.

    - ``dropout``: the rate of dropout between layers, while training.
    - Sequences of different lengths: ``layer(x, lengths=n)`` with an integer for each sequence. Its state stops
      changing where it ends, what is put out behind is zero, the last state is that of its last step, and the other
      direction begins there. What stands behind the end is not looked at, so the steps behind the longest sequence
      may be cut off: ``Trainer(bucket=…)`` and ``data.bucketed_order`` make batches of similar length for that.
    - States: ``layer(x, state)`` begins with this state instead of the cell's initial one, and with
      ``return_state`` the result is the pair ``(outputs, state)`` with the state at the end. It is the cell's
      state, a pair of them for a pair of cells, and a tuple of these for several layers. With ``learned_state`` the
      initial states are parameters, ``start``, that begin as the cells' are.

    A cell is a module with the methods ``initial(batch)`` and ``advance(x, state)``, such as ``nn.GRUCell`` or one
    of your own (``nn.recurrent`` shows one).

    Raises ``ShapeError`` for inputs of another size or without steps, for states and lengths of another shape,
    ``DTypeError`` for lengths that are no integers, ``IndexRangeError`` for lengths below zero or beyond the
    sequence (in a compiled function: when it runs), ``TreeError`` for a state of another structure.

    >>> from pullback import nn, stop_gradient
    >>> layer = nn.Recurrent(nn.GRUCell(3, 8, seed=0), nn.MGUCell(8, 4, seed=0), return_state=True)
    >>> layer
    Recurrent(
      GRUCell(3 → 8),  # 312 parameters, 1.2 kB
      MGUCell(8 → 4),  # 104 parameters, 416 bytes
      return_state: True,
    )  # 416 parameters, 1.7 kB
    >>> outputs, state = layer(np.zeros((2, 5, 3), np.float32))
    >>> outputs.shape, [part.shape for part in state]
    ((2, 4), [(2, 8), (2, 4)])

    Truncated back-propagation carries the state from one stretch of a long sequence to the next as a constant:

    >>> outputs, state = layer(np.ones((2, 5, 3), np.float32), stop_gradient(state))
    """

    cells: tuple[Any, ...]
    start: Any
    dropout: float = static()
    return_sequences: bool
    return_state: bool

    def __init__(
        self,
        *cells: Any,
        dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        learned_state: bool = False,
    ) -> None:
        self.cells = tuple(tuple(layer) if isinstance(layer, (tuple, list)) else layer for layer in cells)
        self.dropout = Dropout(dropout).rate
        self.return_sequences = return_sequences
        self.return_state = return_state
        self._check_cells()
        self.start = self._initial(()) if learned_state else None

    def layers(self) -> list[tuple[Any, ...]]:
        """For each layer its cell, or its two cells."""
        return [layer if isinstance(layer, tuple) else (layer,) for layer in self.cells]

    def __call__(self, x: Any, state: Any = None, lengths: Any = None) -> Any:
        self._check_input(x)
        valid = None if lengths is None else self._valid(lengths, x)
        if valid is not None:
            x = where(valid[..., None], x, 0)
        layers = self.layers()
        begins = self._begins(layers, state, tuple(x.shape[:-2]))
        ends = []
        for depth, (cells, begin) in enumerate(zip(layers, begins)):
            if depth:
                x = Dropout(self.dropout)(x)
            sequences = self.return_sequences or depth < len(layers) - 1
            runs = [
                self._run(cell, x, first, valid, reverse=direction == 1, sequences=sequences)
                for direction, (cell, first) in enumerate(zip(cells, begin))
            ]
            ends.append([end for _, end in runs])
            x = _joined([outputs if sequences else _output(end) for outputs, end in runs])
        return (x, self._tidy(ends)) if self.return_state else x

    def _run(
        self, cell: Any, x: Any, state: Any, valid: Any, *, reverse: bool, sequences: bool
    ) -> tuple[Any, Any]:
        """What ``cell`` puts out at all steps, if that is wanted, and its last state; ``state`` None is initial."""
        if state is None:
            state = cell.initial(tuple(x.shape[:-2]))
        if not hasattr(_output(state), "dtype"):
            raise TreeError(
                f"[{self.describe()}] {type(cell).__name__} has a {type(state).__name__} for its state. Make it an "
                "array, or a tuple of arrays of which the first is what the cell puts out."
            )

        def step(state: Any, given: Any) -> tuple[Any, Any]:
            now, here = given
            state, output = _advanced(cell, now, here, state)
            return state, output if sequences else None

        steps = [moveaxis(x, -2, 0), None if valid is None else moveaxis(valid, -1, 0)]
        end, outputs = scan(step, _in_one_dtype(cell, state, x), steps, reverse=reverse)
        return moveaxis(outputs, 0, -2) if sequences else None, end

    def _begins(self, layers: list[tuple[Any, ...]], state: Any, batch: tuple[int, ...]) -> Any:
        """For each cell of each layer the state given for it, or learned, or None."""
        if state is None and self.start is None:
            return [[None for _ in cells] for cells in layers]
        if state is None:
            # NumPy cannot make an array as long as a named axis, even of one number.
            given = (
                as_array_node if any(isinstance(n, int) and is_named(n) for n in batch) else lambda leaf: leaf
            )
            state = map_tree(lambda leaf: broadcast_to(given(leaf), (*batch, *leaf.shape)), self.start)
        else:
            self._check_state(state, batch)
        if len(layers) == 1:
            state = (state,)
        return [part if len(cells) == 2 else (part,) for cells, part in zip(layers, state)]

    def _initial(self, batch: tuple[int, ...]) -> Any:
        """What the cells begin with, in the form of ``state``."""
        return self._tidy([[cell.initial(batch) for cell in cells] for cells in self.layers()])

    def _tidy(self, states: Sequence[Sequence[Any]]) -> Any:
        """The states of all cells as a user sees them: no tuples around single ones."""
        parts = tuple(tuple(part) if len(part) == 2 else part[0] for part in states)
        return parts if len(parts) > 1 else parts[0]

    def _valid(self, lengths: Any, x: Any) -> Any:
        """Which steps (…, time) are before the end of their sequence."""
        lengths = lengths if isinstance(lengths, Node) else np.asarray(lengths)
        shape = as_array_node(x).shape
        batch, steps = shape[:-2], shape[-2]
        if lengths.dtype.kind not in "iu":
            raise DTypeError(f"[{self.describe()}] lengths of dtype {lengths.dtype}. Give integers.")
        if tuple(as_array_node(lengths).shape) != batch:
            raise ShapeError(
                f"[{self.describe()}] lengths have shape {tuple(lengths.shape)}; the input has shape "
                f"{tuple(x.shape)}, so they must have {batch}. Give one length for each sequence."
            )
        check = OPERATORS["check_index"]
        limits = {"extent": steps + 1, "what": "length", "wrap": False}
        if isinstance(lengths, Node):
            lengths = check(as_array_node(lengths), **limits)
        else:
            lengths = check.reference(lengths, **limits)
        return arange(steps) < lengths[..., None]

    def _check_cells(self) -> None:
        layers = self.layers()
        if not layers or any(len(cells) not in (1, 2) for cells in layers):
            raise TypeError(
                f"[{type(self).__name__}] layers of {[len(cells) for cells in layers]} cells. Give each layer as "
                "a cell, or as a pair of them for two directions."
            )
        for depth, cells in enumerate(layers):
            for cell in cells:
                if not (
                    callable(getattr(cell, "advance", None)) and callable(getattr(cell, "initial", None))
                ):
                    raise TypeError(
                        f"[{type(self).__name__}] layer {depth} has a {type(cell).__name__}, which is no cell. "
                        "Give a module with the methods initial(batch) and advance(x, state), such as nn.GRUCell."
                    )
        for depth, (before, after) in enumerate(pairwise(layers)):
            if all(isinstance(cell, Cell) for cell in (*before, *after)):
                given = sum(cell.hidden for cell in before)
                for cell in after:
                    if cell.inputs != given:
                        raise ShapeError(
                            f"[{type(self).__name__}] layer {depth} puts out {given} features and layer "
                            f"{depth + 1}, {cell.describe()}, reads {cell.inputs}. Make it for {given}."
                        )

    def _check_input(self, x: Any) -> None:
        for cell in self.layers()[0]:
            if isinstance(cell, Cell):
                check_features(self, x, cell.inputs)
        if x.ndim < 2 or x.shape[-2] == 0:
            raise ShapeError(
                f"[{self.describe()}] the input has shape {tuple(x.shape)}, which has no steps. "
                "Give it the axes (…, time, inputs) with at least one step."
            )

    def _check_state(self, state: Any, batch: tuple[int, ...]) -> None:
        leaves, structure = flatten(state)
        expected, form = flatten(self._initial(batch))
        if not structure.fits(form):
            raise TreeError(
                f"[{self.describe()}] the state is {structure!r}, the layer's own {form!r}. Give what the layer "
                "returns with return_state=True."
            )
        for path, leaf, like in zip(structure.paths, leaves, expected):
            if tuple(np.shape(leaf)) != tuple(like.shape):
                where_ = f" at {path}" if path else ""
                raise ShapeError(
                    f"[{self.describe()}] the state{where_} has shape {tuple(np.shape(leaf))}; with a batch of "
                    f"{batch} it must have {tuple(like.shape)}. Give each sequence a state of its own."
                )

    def parts(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for depth, cells in enumerate(self.layers()):
            names = (f"{depth}",) if len(cells) == 1 else (f"{depth} forward", f"{depth} backward")
            found.update(zip(names, cells))
        options = {
            "dropout": self.dropout,
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "learned_state": self.start is not None,
        }
        return found | {name: value for name, value in options.items() if value}


class Stack(Recurrent):
    """What the layers of one kind of cell share: sizes of their cells, drawn from one seed, and a description."""

    def __init__(
        self,
        make: Callable[..., Cell],
        /,
        inputs: int,
        hidden: int,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        learned_state: bool = False,
        seed: Seed = None,
        **options: Any,
    ) -> None:
        cells = _cells(
            type(self).__name__, partial(make, **options), inputs, hidden, layers, bidirectional, seed
        )
        super().__init__(
            *(cells if bidirectional else [cell for (cell,) in cells]),
            dropout=dropout,
            return_sequences=return_sequences,
            return_state=return_state,
            learned_state=learned_state,
        )

    def describe(self) -> str:
        cell = self.layers()[0][0]
        options = [f"{cell.inputs} → {cell.hidden}", *_options(self), *cell.options()]
        return f"{type(self).__name__}({', '.join(options)})"

    def parts(self) -> dict[str, Any]:
        return {}


class GRU(Stack):
    """Layers of gated recurrent units, (…, time, inputs) → (…, hidden); ``nn.GRUCell`` has the formula.

    ``layers`` are stacked; with ``bidirectional`` each has a second cell, which goes from the end to the begin, and
    puts out 2 · hidden. ``dropout``, ``return_sequences``, ``return_state``, ``learned_state`` and the call
    are those of ``nn.Recurrent``; ``reset_after``, ``layer_norm`` and the other options those of ``nn.GRUCell``.

    >>> gru = GRU(3, 8, layers=2, bidirectional=True, return_state=True, seed=0)
    >>> gru
    GRU(3 → 8, 2 layers, both directions)  # 1,872 parameters, 7.5 kB
    >>> y, ((forward, backward), _) = gru(np.zeros((2, 5, 3), np.float32), lengths=np.array([5, 2]))
    >>> y.shape, forward.shape
    ((2, 16), (2, 8))
    """

    def __init__(
        self, inputs: int, hidden: int, *, reset_after: bool = True, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(partial(GRUCell, reset_after=reset_after), inputs, hidden, **options)


class LSTM(Stack):
    """Layers of long short-term memory, (…, time, inputs) → (…, hidden); ``nn.LSTMCell`` has the formula.

    ``layers`` are stacked; with ``bidirectional`` each has a second cell, which goes from the end to the begin, and
    puts out 2 · hidden. ``dropout``, ``return_sequences``, ``return_state``, ``learned_state`` and the call
    are those of ``nn.Recurrent``; ``peepholes``, ``layer_norm`` and the other options those of ``nn.LSTMCell``.

    >>> lstm = LSTM(3, 8, return_state=True, seed=0)
    >>> lstm
    LSTM(3 → 8)  # 384 parameters, 1.5 kB
    >>> y, (output, memory) = lstm(np.zeros((2, 5, 3), np.float32))
    >>> y is output, memory.shape
    (True, (2, 8))
    """

    def __init__(
        self, inputs: int, hidden: int, *, peepholes: bool = False, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(partial(LSTMCell, peepholes=peepholes), inputs, hidden, **options)


class MGU(Stack):
    """Layers of minimal gated units, (…, time, inputs) → (…, hidden); ``nn.MGUCell`` has the formula.

    ``layers`` are stacked; with ``bidirectional`` each has a second cell, which goes from the end to the begin, and
    puts out 2 · hidden. ``dropout``, ``return_sequences``, ``return_state``, ``learned_state`` and the call
    are those of ``nn.Recurrent``; ``layer_norm`` and the other options those of ``nn.MGUCell``.

    >>> MGU(3, 8, seed=0)(np.zeros((2, 5, 3), np.float32)).shape
    (2, 8)
    """

    def __init__(self, inputs: int, hidden: int, **options: Unpack[LayerOptions]) -> None:
        super().__init__(MGUCell, inputs, hidden, **options)


class RNN(RNNCell, Recurrent):
    r"""A vanilla recurrent layer, :math:`h_t = f(x_t W_x + h_{t-1} W_h + b)` with :math:`h_0 = 0`.

    (…, time, inputs) → (…, hidden), the last state, or with ``return_sequences`` all states,
    (…, time, hidden), which is what another recurrent layer takes. ``f`` is ``"tanh"`` or ``"relu"``. Called
    as ``rnn(x, state)`` it begins with a state of shape (…, hidden) instead of zeros, such as the last one of
    the sequence before.

    ``layers`` are stacked; with ``bidirectional`` each has a second cell, which goes from the end to the begin, and
    puts out 2 · hidden. ``dropout``, ``return_state``, ``learned_state`` and the call are those of
    ``nn.Recurrent``.

    The layer is its own first cell, an ``nn.RNNCell``: ``input_weight`` has shape (inputs, hidden),
    ``recurrent_weight`` (hidden, hidden), ``bias`` (hidden,) or is None with ``bias=False``, and ``advance`` is one
    step. By default all begin uniform in :math:`\pm 1 / \sqrt{\text{hidden}}`, as PyTorch's do; with
    ``initialiser`` or ``recurrent_initialiser`` the bias begins at zero. ``cells`` are those of further layers and
    directions. The steps are unrolled, and the compiler fuses across them; for hundreds of them
    ``nn.Recurrent(nn.RNNCell(…))`` is a loop, which compiles once for all.

    Raises ``ShapeError`` for inputs of another size or without steps.

    Source: Elman, *Finding structure in time*, Cognitive Science 14, 1990.

    >>> rnn = RNN(196, 64, seed=0)
    >>> rnn
    RNN(196 → 64, tanh)  # 16,704 parameters, 66.8 kB
    >>> rnn(np.zeros((100, 4, 196), np.float32)).shape
    (100, 64)
    """

    bidirectional: bool

    def __init__(
        self,
        inputs: int,
        hidden: int,
        activation: str = "tanh",
        *,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        learned_state: bool = False,
        seed: Seed = None,
        **options: Any,
    ) -> None:
        make = partial(RNNCell, activation=activation, **options)
        (first, *rest), *further = _cells("RNN", make, inputs, hidden, layers, bidirectional, seed)
        for name, value in vars(first).items():
            setattr(self, name, value)
        self.bidirectional = bidirectional
        Recurrent.__init__(
            self,
            *[*rest, *(cell for cells in further for cell in cells)],
            dropout=dropout,
            return_sequences=return_sequences,
            return_state=return_state,
            learned_state=learned_state,
        )

    def layers(self) -> list[tuple[Any, ...]]:
        cells, directions = (self, *self.cells), 2 if self.bidirectional else 1
        return [cells[k : k + directions] for k in range(0, len(cells), directions)]

    def _run(
        self, cell: Any, x: Any, state: Any, valid: Any, *, reverse: bool, sequences: bool
    ) -> tuple[Any, Any]:
        if state is None and valid is not None:
            state = cell.initial(tuple(x.shape[:-2]))
        steps = as_array_node(x).shape[-2]
        if is_named(steps):
            raise NamedAxisError(
                f"[{self.describe()}] the steps are written out, and an input of shape {tuple(x.shape)} has any number "
                "of them. Use nn.Recurrent(nn.RNNCell(…)), which is a loop."
            )
        outputs: list[Any] = [None] * steps
        for step in reversed(range(len(outputs))) if reverse else range(len(outputs)):
            now = None if valid is None else valid[..., step]
            state, outputs[step] = _advanced(cell, x[..., step, :], now, state)
        return stack(outputs, axis=-2) if sequences else None, state

    def options(self) -> list[str]:
        activation, *others = super().options()
        return [activation, *_options(self), *others]

    def parts(self) -> dict[str, Any]:
        return {}


def _cells(
    layer: str,
    make: Callable[..., Cell],
    inputs: int,
    hidden: int,
    layers: int,
    bidirectional: bool,
    seed: Seed,
) -> list[tuple[Cell, ...]]:
    """The cells of each layer, drawn in turn."""
    layers = count(layer, "layers", layers)
    inputs, hidden = sizes(layer, inputs=inputs, hidden=hidden)
    random, directions = np.random.default_rng(seed), 2 if bidirectional else 1
    read = [inputs, *[directions * hidden] * (layers - 1)]
    return [tuple(make(size, hidden, seed=random) for _ in range(directions)) for size in read]


def _options(layer: Recurrent) -> list[str]:
    """What differs from one plain layer, for the description."""
    layers = layer.layers()
    found = [f"{len(layers)} layers"] * (len(layers) > 1) + ["both directions"] * (len(layers[0]) > 1)
    found += [f"dropout {layer.dropout}"] * (layer.dropout > 0)
    return found + ["learned state"] * (layer.start is not None) + ["all states"] * layer.return_sequences


def _in_one_dtype(cell: Any, state: Any, x: Any) -> Any:
    """``state`` with its floats in the dtype that they and the input promote to: it is the same at each step.

    Integers may be tokens to a cell of a user's own; to those of this library they are features.
    """
    dtypes = [leaf.dtype for leaf in flatten(state)[0] if dtype_kind(leaf.dtype) == "f"]
    if dtype_kind(x.dtype) == "f" or isinstance(cell, Cell):
        dtypes.append(x.dtype)
    return map_tree(
        lambda leaf: astype(leaf, np.result_type(*dtypes)) if dtype_kind(leaf.dtype) == "f" else leaf, state
    )


def _advanced(cell: Any, x: Any, valid: Any, state: Any) -> tuple[Any, Any]:
    """The state after one step and what is put out: the old state and zeros where a sequence has ended."""
    new = cell.advance(x, state)
    if valid is None:
        return new, _output(new)
    leaves, structure = flatten(new)
    before, form = flatten(state)
    if structure != form or any(one.shape != other.shape for one, other in zip(leaves, before)):
        raise ShapeError(
            f"[{type(cell).__name__}] advance made a state of {_shapes(new)} of one of {_shapes(state)}. "
            "Return a state of the shapes that initial gives."
        )
    valid = valid[..., None]
    kept = [where(valid, one, other) for one, other in zip(leaves, before)]
    return structure.unflatten(kept), where(valid, _output(new), 0)


def _shapes(state: Any) -> str:
    """``(4, 2)`` for an array, ``((4, 2), (4, 1))`` for a pair of them."""
    parts = [str(tuple(leaf.shape)) for leaf in flatten(state)[0]]
    return f"({', '.join(parts)})" if isinstance(state, tuple) else ", ".join(parts)


def _output(state: Any) -> Any:
    return state[0] if isinstance(state, tuple) and state else state


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else concatenate(parts, axis=-1)
