"""Weights of recurrent layers from and for PyTorch and Keras: plain dicts and lists of NumPy arrays.

With a library's matrices written as this one's, (from, to), the formulas of all three are those of ``nn.RNNCell``,
``nn.GRUCell`` and ``nn.LSTMCell``; they differ in layout and in the order of gates:

========  =================================  ==================  ==============================================
library   matrices                           gates               biases
========  =================================  ==================  ==============================================
this one  (inputs, gates · hidden)           r z n and i f g o   ``bias`` and, where there are two,
                                                                 ``recurrent_bias``, each (gates · hidden,)
PyTorch   (gates · hidden, inputs)           r z n and i f g o   ``bias_ih`` and ``bias_hh``, always both
Keras     (inputs, gates · hidden)           z r h and i f c o   one, (gates · hidden,); of a GRU with the reset
                                                                 gate after the product two, (2, 3 · hidden)
========  =================================  ==================  ==============================================

So import and export only move numbers. Where a layer has two biases that are merely added, and the other library one,
their sum is written; where it has one and the other library two, the second is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pullback.errors import DTypeError, ShapeError, TreeError
from pullback.nn.initialisers import zeros
from pullback.nn.recurrent.cells import Cell, GRUCell, LSTMCell
from pullback.nn.recurrent.layers import GRU, LSTM, RNN

__all__ = ["from_keras", "from_torch", "to_keras", "to_torch"]

Array = NDArray[Any]
Layer = RNN | GRU | LSTM
Kind = TypeVar("Kind", RNN, GRU, LSTM)

_GATES = {RNN: 1, GRU: 3, LSTM: 4}


def from_torch(kind: type[Kind], state: Mapping[str, ArrayLike], prefix: str = "", **options: Any) -> Kind:
    r"""The layer with the weights of PyTorch's ``nn.RNN``, ``nn.GRU`` or ``nn.LSTM``.

    ``kind`` is ``nn.RNN``, ``nn.GRU`` or ``nn.LSTM``, ``state`` a state dict with the names ``weight_ih_l0``,
    ``weight_hh_l0``, ``bias_ih_l0``, ``bias_hh_l0`` and so on, for each layer and, with ``_reverse``, each
    direction; of a larger model's only names that begin with ``prefix`` are read. Sizes, the number of layers and
    directions, and the dtype follow from it. ``options`` are the layer's others, such as ``return_sequences=True``;
    an ``nn.RNN`` with ``nonlinearity="relu"`` needs ``activation="relu"``. PyTorch's layers with
    ``batch_first=True`` read what these read, (batch, time, inputs).

    .. math:: W = W_{ih}^\top, \quad U = W_{hh}^\top, \quad b = b_{ih}, \quad c = b_{hh}

    Raises ``TreeError`` for missing and unexpected names, such as those of projections, ``ShapeError`` and
    ``DTypeError`` for arrays that do not fit, ``ValueError`` for options of a formula that PyTorch does not have.

    >>> from pullback import nn
    >>> theirs = nn.to_torch(nn.LSTM(3, 4, recurrent_bias=True, seed=0))
    >>> {name: array.shape for name, array in theirs.items()}
    {'weight_ih_l0': (16, 3), 'weight_hh_l0': (16, 4), 'bias_ih_l0': (16,), 'bias_hh_l0': (16,)}
    >>> nn.from_torch(nn.LSTM, theirs)
    LSTM(3 → 4)  # 144 parameters, 576 bytes
    """
    gates = _gates("from_torch", kind)
    given = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
    layers = 0
    while f"weight_ih_l{layers}" in given:
        layers += 1
    both = "weight_ih_l0_reverse" in given
    bias: bool = "bias_ih_l0" in given
    roles = ["weight_ih", "weight_hh", *["bias_ih", "bias_hh"] * bias]
    wanted = [f"{role}_l{at}" for at in _suffixes(max(layers, 1), both) for role in roles]
    _check_names(kind, prefix, wanted, given)
    arrays = _arrays("from_torch", {f"{prefix}{name}": given[name] for name in wanted})
    hidden = _extent(arrays[f"{prefix}weight_hh_l0"])
    inputs = _extent(arrays[f"{prefix}weight_ih_l0"])
    for depth, at in _depths(layers, both):
        features = inputs if depth == 0 else (1 + both) * hidden
        shapes = [(gates * hidden, features), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
        for role, shape in zip(roles, shapes):
            name = f"{prefix}{role}_l{at}"
            _check_shape("from_torch", kind, repr(name), arrays[name], shape)
    own = {"layers": layers, "bidirectional": both, "bias": bias, "recurrent_bias": bias}
    layer = _made(kind, inputs, hidden, arrays, own, options)
    _check_formula("from_torch", "PyTorch", layer)
    for cell, (_, at) in zip(_all_cells(layer), _depths(layers, both)):
        found = [arrays[f"{prefix}{role}_l{at}"] for role in roles]
        cell.input_weight, cell.recurrent_weight = _copy(found[0].T), _copy(found[1].T)
        if bias:
            cell.bias, cell.recurrent_bias = _copy(found[2]), _copy(found[3])
    return layer


def to_torch(layer: Layer, prefix: str = "") -> dict[str, Array]:
    """The state dict that PyTorch's ``nn.RNN``, ``nn.GRU`` or ``nn.LSTM`` of the same sizes loads; see ``from_torch``.

    Make tensors of it for ``load_state_dict``: ``{name: torch.from_numpy(array) for name, array in …}``. A layer
    without biases is one of ``bias=False``.

    Raises ``ValueError`` for a layer whose formula PyTorch does not have: with the reset gate before the product,
    peepholes, layer normalisation, or a learned initial state.
    """
    _gates("to_torch", type(layer))
    _check_formula("to_torch", "PyTorch", layer)
    _check_start("to_torch", layer)
    bias, state = _has_bias(layer), {}
    for cell, at in zip(_all_cells(layer), _suffixes(*_extents(layer))):
        state[f"{prefix}weight_ih_l{at}"] = _copy(cell.input_weight.T)
        state[f"{prefix}weight_hh_l{at}"] = _copy(cell.recurrent_weight.T)
        if bias:
            state[f"{prefix}bias_ih_l{at}"] = _copy(_or_zeros(cell, cell.bias))
            state[f"{prefix}bias_hh_l{at}"] = _copy(_or_zeros(cell, cell.recurrent_bias))
    return state


def from_keras(
    kind: type[Kind],
    weights: Sequence[ArrayLike],
    *,
    bidirectional: bool = False,
    bias: bool = True,
    **options: Any,
) -> Kind:
    r"""The layer with the weights of Keras's ``SimpleRNN``, ``GRU`` or ``LSTM``, as ``get_weights()`` gives them.

    ``weights`` is the list of ``kernel``, ``recurrent_kernel`` and, with ``bias``, the bias; with
    ``bidirectional`` those of a ``Bidirectional`` layer, forward and then backward. Several layers in one list, one
    after the other, are stacked. ``options`` are the layer's others: a GRU of ``reset_after=False`` needs it here
    too, and what is no ``tanh`` is no ``tanh`` here: ``activation="relu"`` for a ``SimpleRNN``.

    .. math:: (W_r\ W_z\ W_n) = (K_r\ K_z\ K_h) \quad\text{of the kernel}\quad (K_z\ K_r\ K_h)

    for a GRU, likewise :math:`U` of the recurrent kernel and :math:`b` and :math:`c` of the rows of the bias; for the
    others the arrays are the same.

    Raises ``TreeError`` for a number of arrays that makes no layers, ``ShapeError`` and ``DTypeError`` for arrays
    that do not fit, ``ValueError`` for options of a formula that Keras does not have.

    >>> from pullback import nn
    >>> theirs = nn.to_keras(nn.GRU(3, 4, seed=0))
    >>> [array.shape for array in theirs]
    [(3, 12), (4, 12), (2, 12)]
    >>> nn.from_keras(nn.GRU, theirs)
    GRU(3 → 4)  # 108 parameters, 432 bytes
    """
    gates = _gates("from_keras", kind)
    roles = ["kernel", "recurrent_kernel", *["bias"] * bias]
    directions = 2 if bidirectional else 1
    if not weights or len(weights) % (len(roles) * directions):
        raise TreeError(
            f"[from_keras] {len(weights)} arrays; each layer has {len(roles) * directions} of them: "
            f"{', '.join(roles)}{', for each direction' if bidirectional else ''}. Say bidirectional=True or "
            "bias=False if the layers are that."
        )
    layers = len(weights) // (len(roles) * directions)
    names = [f"{role} of layer {at}" for at in _suffixes(layers, bidirectional) for role in roles]
    arrays = _arrays("from_keras", dict(zip(names, weights)))
    hidden = _extent(arrays["recurrent_kernel of layer 0"], 0)
    inputs = _extent(arrays["kernel of layer 0"], 0)
    two = kind is GRU and options.get("reset_after", True)
    width = gates * hidden
    for depth, at in _depths(layers, bidirectional):
        features = inputs if depth == 0 else directions * hidden
        for role, shape in zip(roles, [(features, width), (hidden, width), (2, width) if two else (width,)]):
            name = f"{role} of layer {at}"
            _check_shape("from_keras", kind, f"the {name}", arrays[name], shape)
    own = {"layers": layers, "bidirectional": bidirectional, "bias": bias, "recurrent_bias": bias and two}
    layer = _made(kind, inputs, hidden, arrays, own, options)
    _check_formula("from_keras", "Keras", layer)
    for cell, at in zip(_all_cells(layer), _suffixes(layers, bidirectional)):
        found = [_reordered(layer, arrays[f"{role} of layer {at}"]) for role in roles]
        cell.input_weight, cell.recurrent_weight = _copy(found[0]), _copy(found[1])
        if bias:
            cell.bias = _copy(found[2][0] if two else found[2])
            cell.recurrent_bias = _copy(found[2][1]) if two else None
    return layer


def to_keras(layer: Layer) -> list[Array]:
    """The list that ``set_weights`` of Keras's layers of the same sizes takes; see ``from_keras``.

    Those of several layers follow each other, as do the two directions of each. A layer without biases is one of
    ``use_bias=False``.

    Raises ``ValueError`` for a layer whose formula Keras does not have: with peepholes, layer normalisation or a
    learned initial state.
    """
    _gates("to_keras", type(layer))
    _check_formula("to_keras", "Keras", layer)
    _check_start("to_keras", layer)
    weights, biased = [], _has_bias(layer)
    for cell in _all_cells(layer):
        arrays = [cell.input_weight, cell.recurrent_weight]
        if biased:
            biases = [_or_zeros(cell, bias) for bias in (cell.bias, cell.recurrent_bias)]
            after = isinstance(cell, GRUCell) and cell.reset_after
            arrays.append(np.stack(biases) if after else biases[0] + biases[1])
        weights += [_copy(_reordered(layer, array)) for array in arrays]
    return weights


def _gates(function: str, kind: Any) -> int:
    if kind not in _GATES:
        raise TypeError(
            f"[{function}] {getattr(kind, '__name__', kind)} has no counterpart. Use nn.RNN, nn.GRU or nn.LSTM."
        )
    return _GATES[kind]


def _made(
    kind: type[Kind], inputs: int, hidden: int, arrays: Mapping[str, Array], own: Any, options: Any
) -> Kind:
    """The layer of these sizes, in the dtype of the arrays, whose parameters are still to be filled in."""
    dtype = next(iter(arrays.values())).dtype
    return kind(inputs, hidden, initialiser=zeros, recurrent_initialiser=zeros, dtype=dtype, **own, **options)


def _extents(layer: Layer) -> tuple[int, bool]:
    cells = layer.layers()
    return len(cells), len(cells[0]) == 2


def _depths(layers: int, both: bool) -> Iterator[tuple[int, str]]:
    """The number of the layer of each cell, and what its names end with in PyTorch."""
    for depth in range(layers):
        for ending in ("", "_reverse")[: 1 + both]:
            yield depth, f"{depth}{ending}"


def _suffixes(layers: int, both: bool) -> list[str]:
    return [at for _, at in _depths(layers, both)]


def _all_cells(layer: Layer) -> list[Cell]:
    return [cell for cells in layer.layers() for cell in cells]


def _arrays(function: str, given: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """``given`` as NumPy arrays of one float dtype."""
    arrays = {name: np.asarray(value) for name, value in given.items()}
    first = next(iter(arrays.values())).dtype
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.float64) or array.dtype != first:
            raise DTypeError(
                f"[{function}] {name!r} is {array.dtype}{list(array.shape)}, the first array {first}. Give all in "
                "float32, or all in float64."
            )
    return arrays


def _extent(array: Array, axis: int = 1) -> int:
    """How many elements ``axis`` of a matrix has; what is no matrix is refused where shapes are compared."""
    return array.shape[axis] if array.ndim == 2 else 1


def _check_names(kind: type[Layer], prefix: str, wanted: Sequence[str], given: Mapping[str, Any]) -> None:
    missing = [f"{prefix}{name}" for name in wanted if name not in given]
    unexpected = [f"{prefix}{name}" for name in given if name not in wanted]
    if missing or unexpected:
        raise TreeError(
            f"[from_torch] the state dict is not that of one {kind.__name__}: it lacks "
            f"{', '.join(map(repr, missing)) or 'nothing'} and has {', '.join(map(repr, unexpected)) or 'nothing'} "
            "beside. Give the state dict of the layer, or say with prefix what its names begin with."
        )


def _check_shape(function: str, kind: type[Layer], name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ShapeError(
            f"[{function}] {name} has shape {array.shape}; in this {kind.__name__} it must have {shape}. Give the "
            "arrays of one layer, of this kind and with these options."
        )


def _check_formula(function: str, library: str, layer: Layer) -> None:
    """Raise ``ValueError`` where ``layer`` computes what the other library does not."""
    for cell in _all_cells(layer):
        own = ["layer_norm"] * (cell.input_scale is not None)
        own += ["peepholes"] * (isinstance(cell, LSTMCell) and cell.peephole is not None)
        if library == "PyTorch":
            own += ["reset_after=False"] * (isinstance(cell, GRUCell) and not cell.reset_after)
        if own:
            raise ValueError(
                f"[{function}] {library}'s {type(layer).__name__} has no {own[0]}. Make the layer without it."
            )


def _check_start(function: str, layer: Layer) -> None:
    if layer.start is not None:
        raise ValueError(
            f"[{function}] the layer has a learned initial state, which is no weight elsewhere. Set layer.start to "
            "None, and give the state where the layer is called."
        )


def _has_bias(layer: Layer) -> bool:
    return any(bias is not None for cell in _all_cells(layer) for bias in (cell.bias, cell.recurrent_bias))


def _or_zeros(cell: Cell, bias: Any) -> Any:
    return np.zeros_like(cell.recurrent_weight[0]) if bias is None else bias


def _reordered(layer: Layer, array: Array) -> Array:
    """``array`` in the other library's order of gates, or from it: a GRU's first two are exchanged."""
    if not isinstance(layer, GRU):
        return array
    first, second, third = np.split(array, 3, axis=-1)
    return np.concatenate([second, first, third], axis=-1)


def _copy(array: Any) -> Array:
    return np.array(array, order="C")
