r"""Recurrent cells: one step of a recurrence, as a plain formula.

A cell is a module with two methods: ``initial(batch)``, the state that a sequence begins with, and
``advance(x, state)``, the state after one more input. A state is an array (\*batch, units) or a tuple of such arrays;
the array, or the first one of the tuple, is what the cell puts out. A cell of your own is no longer than that, and
runs in every layer that those of this file run in:

>>> import numpy as np
>>> from pullback import nn
>>> class Leaky(nn.Module):
...     weight: np.ndarray
...     def initial(self, batch):
...         return np.zeros((*batch, self.weight.shape[1]), np.float32)
...     def advance(self, x, state):
...         return 0.9 * state + np.tanh(x @ self.weight)
>>> nn.Recurrent(Leaky(np.ones((3, 4), np.float32)))(np.zeros((2, 5, 3), np.float32)).shape
(2, 4)

Weights of gates are joined: one matrix from the input to all gates and one from the state, whose products are split.
The input's product stands by itself in each formula, so that the compiler may compute it for all steps at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

import numpy as np
from numpy.typing import DTypeLike

from pullback.nn.initialisers import Initialiser, ones, uniform, zeros
from pullback.nn.layers import Seed, drawn, sizes
from pullback.nn.module import Module
from pullback.numpy import relu, sigmoid, split, standardise, tanh
from pullback.numpy import zeros as zeros_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Cell", "CellOptions", "GRUCell", "LSTMCell", "MGUCell", "RNNCell"]

_ACTIVATIONS = {"tanh": tanh, "relu": relu}


class CellOptions(TypedDict, total=False):
    """What every cell, and every layer of them, may be given beside its sizes; ``nn.recurrent.Cell`` explains."""

    bias: bool
    recurrent_bias: bool
    layer_norm: bool
    initialiser: Initialiser | None
    recurrent_initialiser: Initialiser | None
    seed: Seed
    dtype: DTypeLike


class Cell(Module):
    r"""What the cells of this library share: joined weights, biases, and layer normalisation.

    With :math:`G` gates of ``hidden`` units ``input_weight`` has shape (inputs, G · hidden), ``recurrent_weight``
    (hidden, G · hidden), ``bias`` (G · hidden,) or is None with ``bias=False``. ``recurrent_bias``, of the same
    shape, is a bias of the state's product; where a formula adds both products it is one more bias, there for those
    who want PyTorch's parameters. By default all begin uniform in :math:`\pm 1 / \sqrt{\text{hidden}}`, as
    PyTorch's do; with ``initialiser`` or ``recurrent_initialiser``, which draw the joined matrices, biases begin at
    zero.

    With ``layer_norm`` each product :math:`a`, over all of its gates, is brought to mean 0 and variance 1 and
    scaled, before its bias is added: :math:`s\,(a - \mu) / \sqrt{\sigma^2 + 10^{-5}}`. The scales begin at one:
    ``input_scale`` and ``recurrent_scale`` of shape (G · hidden,). What a formula multiplies by itself, such as the
    reset state, is a product of its own.

    Source of the normalised forms: Ba, Kiros & Hinton, *Layer normalization*, 2016.
    """

    input_weight: Any
    recurrent_weight: Any
    bias: Any
    recurrent_bias: Any
    input_scale: Any
    recurrent_scale: Any

    gates: ClassVar[int] = 1

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        bias: bool = True,
        recurrent_bias: bool = False,
        layer_norm: bool = False,
        initialiser: Initialiser | None = None,
        recurrent_initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        name = type(self).__name__
        inputs, hidden = sizes(name, inputs=inputs, hidden=hidden)
        random, width = np.random.default_rng(seed), self.gates * hidden
        usual = uniform(1 / math.sqrt(hidden))
        begin = usual if initialiser is None and recurrent_initialiser is None else zeros
        self.input_weight = drawn(name, initialiser or usual, (inputs, width), random, dtype)
        self.recurrent_weight = drawn(name, recurrent_initialiser or usual, (hidden, width), random, dtype)
        self.bias = drawn(name, begin, (width,), random, dtype) if bias else None
        self.recurrent_bias = drawn(name, begin, (width,), random, dtype) if recurrent_bias else None
        self.input_scale = drawn(name, ones, (width,), random, dtype) if layer_norm else None
        self.recurrent_scale = drawn(name, ones, (width,), random, dtype) if layer_norm else None

    @property
    def inputs(self) -> int:
        """How many features an input has."""
        return int(self.input_weight.shape[0])

    @property
    def hidden(self) -> int:
        """How many units the state has."""
        return int(self.recurrent_weight.shape[0])

    def initial(self, batch: tuple[int, ...] = ()) -> Any:
        """The state that a sequence begins with: zeros."""
        return zeros_of((*batch, self.hidden), self.recurrent_weight.dtype)

    def input_product(self, x: Any) -> Any:
        """The input's share in all gates, which does not depend on the state, without the bias."""
        product = x @ self.input_weight
        return product if self.input_scale is None else standardise(product) * self.input_scale

    def from_input(self, x: Any) -> Any:
        """The input's share in all gates, with the bias."""
        product = self.input_product(x)
        return product if self.bias is None else product + self.bias

    def from_state(self, state: Any, first: int = 0, last: int | None = None) -> Any:
        """The share of ``state`` in the gates from ``first`` up to ``last``."""
        part = slice(first * self.hidden, (self.gates if last is None else last) * self.hidden)
        product = state @ self.recurrent_weight[:, part]
        if self.recurrent_scale is not None:
            product = standardise(product) * self.recurrent_scale[part]
        return product if self.recurrent_bias is None else product + self.recurrent_bias[part]

    def options(self) -> list[str]:
        """What differs from the usual form, for the description."""
        found = ["no bias"] * (self.bias is None)
        return found + ["normalised"] * (self.input_scale is not None)

    def describe(self) -> str:
        sizes = f"{self.inputs} → {self.hidden}"
        return f"{type(self).__name__}({', '.join([sizes, *self.options()])})"


class RNNCell(Cell):
    r"""The plain recurrence, :math:`h_t = f(x_t W_x + h_{t-1} W_h + b)`.

    ``f`` is ``"tanh"`` or ``"relu"``. A state is one array (…, hidden); ``None`` stands for zeros, which are known,
    so that there is no product with them. Parameters are those of ``nn.recurrent.Cell`` with one gate.

    Source: Elman, *Finding structure in time*, Cognitive Science 14, 1990.

    >>> cell = RNNCell(3, 4, seed=0)
    >>> cell
    RNNCell(3 → 4, tanh)  # 32 parameters, 128 bytes
    >>> cell.advance(np.zeros((2, 3), np.float32), cell.initial((2,))).shape
    (2, 4)
    """

    activation: str

    def __init__(
        self, inputs: int, hidden: int, activation: str = "tanh", **options: Unpack[CellOptions]
    ) -> None:
        if activation not in _ACTIVATIONS:
            raise ValueError(
                f"[{type(self).__name__}] activation {activation!r}. Use one of "
                f"{', '.join(map(repr, _ACTIVATIONS))}."
            )
        super().__init__(inputs, hidden, **options)
        self.activation = activation

    def advance(self, x: Any, state: Any = None) -> Any:
        """One step: the state after the input ``x`` (…, inputs), from ``state`` (…, hidden) or from zeros."""
        total = self.input_product(x)
        if state is not None:
            total = total + self.from_state(state)
        elif self.recurrent_bias is not None:
            total = total + self.recurrent_bias
        if self.bias is not None:
            total = total + self.bias
        return _ACTIVATIONS[self.activation](total)

    def options(self) -> list[str]:
        return [self.activation, *super().options()]


class GRUCell(Cell):
    r"""The gated recurrent unit, whose reset gate acts after the recurrent product or before it.

    .. math::
        r_t &= \sigma(x_t W_r + b_r + h_{t-1} U_r + c_r) \\
        z_t &= \sigma(x_t W_z + b_z + h_{t-1} U_z + c_z) \\
        n_t &= \tanh(x_t W_n + b_n + r_t \odot (h_{t-1} U_n + c_n)) \\
        h_t &= (1 - z_t) \odot n_t + z_t \odot h_{t-1}

    That is the form of PyTorch, cuDNN and Keras. With ``reset_after=False`` it is that of Cho et al., and of Keras
    with the same option, :math:`n_t = \tanh(x_t W_n + b_n + (r_t \odot h_{t-1}) U_n + c_n)`, which needs a second
    product after the first one.

    Parameters are those of ``nn.recurrent.Cell`` with three gates, r, z and n in turn; ``recurrent_bias`` is
    :math:`c`. It is there by default where it makes a difference, with the reset gate after the product.

    Source: Cho et al., *Learning phrase representations using RNN encoder–decoder*, 2014.

    >>> cell = GRUCell(3, 4, seed=0)
    >>> cell
    GRUCell(3 → 4)  # 108 parameters, 432 bytes
    >>> cell.advance(np.zeros((2, 3), np.float32), cell.initial((2,))).shape
    (2, 4)
    """

    reset_after: bool

    gates: ClassVar[int] = 3

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        reset_after: bool = True,
        **options: Unpack[CellOptions],
    ) -> None:
        options.setdefault("recurrent_bias", reset_after and options.get("bias", True))
        super().__init__(inputs, hidden, **options)
        self.reset_after = reset_after

    def advance(self, x: Any, state: Any) -> Any:
        """One step: the state after the input ``x`` (…, inputs), from ``state`` (…, hidden)."""
        reset_x, update_x, new_x = split(self.from_input(x), 3, axis=-1)
        if self.reset_after:
            reset_h, update_h, new_h = split(self.from_state(state), 3, axis=-1)
            new = tanh(new_x + sigmoid(reset_x + reset_h) * new_h)
        else:
            reset_h, update_h = split(self.from_state(state, 0, 2), 2, axis=-1)
            new = tanh(new_x + self.from_state(sigmoid(reset_x + reset_h) * state, 2))
        update = sigmoid(update_x + update_h)
        return (1 - update) * new + update * state

    def options(self) -> list[str]:
        return ["reset before the product"] * (not self.reset_after) + super().options()


class LSTMCell(Cell):
    r"""Long short-term memory, with a forget gate, and with peepholes if wanted.

    .. math::
        i_t &= \sigma(x_t W_i + h_{t-1} U_i + b_i + p_i \odot c_{t-1}) \\
        f_t &= \sigma(x_t W_f + h_{t-1} U_f + b_f + p_f \odot c_{t-1}) \\
        g_t &= \tanh(x_t W_g + h_{t-1} U_g + b_g) \\
        c_t &= f_t \odot c_{t-1} + i_t \odot g_t \\
        o_t &= \sigma(x_t W_o + h_{t-1} U_o + b_o + p_o \odot c_t) \\
        h_t &= o_t \odot \tanh(c_t)

    A state is the pair :math:`(h_t, c_t)`, each (…, hidden). Parameters are those of ``nn.recurrent.Cell`` with
    four gates, i, f, g and o in turn. ``peephole``, of shape (3, hidden), has :math:`p_i`, :math:`p_f` and
    :math:`p_o`; without ``peepholes=True`` it is None, and zero in the formula. With ``layer_norm`` the cell state
    is normalised too where it is put out, :math:`h_t = o_t \odot \tanh(s_c \frac{c_t - \mu}{\sqrt{\sigma^2 +
    10^{-5}}} + d_c)`, with ``cell_scale`` and ``cell_shift``.

    Source: Hochreiter & Schmidhuber, *Long short-term memory*, 1997; forget gates: Gers, Schmidhuber & Cummins,
    *Learning to forget*, 2000; peepholes: Gers & Schmidhuber, *Recurrent nets that time and count*, 2000.

    >>> cell = LSTMCell(3, 4, seed=0)
    >>> cell
    LSTMCell(3 → 4)  # 128 parameters, 512 bytes
    >>> output, memory = cell.advance(np.zeros((2, 3), np.float32), cell.initial((2,)))
    >>> output.shape, memory.shape
    ((2, 4), (2, 4))
    """

    peephole: Any
    cell_scale: Any
    cell_shift: Any

    gates: ClassVar[int] = 4

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        peepholes: bool = False,
        **options: Unpack[CellOptions],
    ) -> None:
        random = options["seed"] = np.random.default_rng(options.get("seed"))
        dtype, layer_norm = options.get("dtype", np.float32), options.get("layer_norm", False)
        super().__init__(inputs, hidden, **options)
        usual = uniform(1 / math.sqrt(hidden))
        self.peephole = drawn("LSTMCell", usual, (3, hidden), random, dtype) if peepholes else None
        self.cell_scale = np.ones(hidden, dtype) if layer_norm else None
        self.cell_shift = np.zeros(hidden, dtype) if layer_norm else None

    def initial(self, batch: tuple[int, ...] = ()) -> Any:
        return super().initial(batch), super().initial(batch)

    def advance(self, x: Any, state: Any) -> Any:
        """One step: the pair after the input ``x`` (…, inputs), from the pair ``state``."""
        output, memory = state
        enter, keep, new, give = split(self.from_input(x) + self.from_state(output), 4, axis=-1)
        if self.peephole is not None:
            enter, keep = enter + self.peephole[0] * memory, keep + self.peephole[1] * memory
        memory = sigmoid(keep) * memory + sigmoid(enter) * tanh(new)
        if self.peephole is not None:
            give = give + self.peephole[2] * memory
        shown = memory
        if self.cell_scale is not None:
            shown = standardise(memory) * self.cell_scale + self.cell_shift
        return sigmoid(give) * tanh(shown), memory

    def options(self) -> list[str]:
        return ["peepholes"] * (self.peephole is not None) + super().options()


class MGUCell(Cell):
    r"""The minimal gated unit: a GRU whose one gate both resets and updates.

    .. math::
        f_t &= \sigma(x_t W_f + h_{t-1} U_f + b_f) \\
        n_t &= \tanh(x_t W_n + (f_t \odot h_{t-1}) U_n + b_n) \\
        h_t &= (1 - f_t) \odot h_{t-1} + f_t \odot n_t

    Parameters are those of ``nn.recurrent.Cell`` with two gates, f and n in turn.

    Source: Zhou, Wu, Zhang & Zhou, *Minimal gated unit for recurrent neural networks*, 2016.

    >>> cell = MGUCell(3, 4, seed=0)
    >>> cell
    MGUCell(3 → 4)  # 64 parameters, 256 bytes
    >>> cell.advance(np.zeros((2, 3), np.float32), cell.initial((2,))).shape
    (2, 4)
    """

    gates: ClassVar[int] = 2

    def __init__(self, inputs: int, hidden: int, **options: Unpack[CellOptions]) -> None:
        super().__init__(inputs, hidden, **options)

    def advance(self, x: Any, state: Any) -> Any:
        """One step: the state after the input ``x`` (…, inputs), from ``state`` (…, hidden)."""
        forget_x, new_x = split(self.from_input(x), 2, axis=-1)
        forget = sigmoid(forget_x + self.from_state(state, 0, 1))
        new = tanh(new_x + self.from_state(forget * state, 1))
        return (1 - forget) * state + forget * new
