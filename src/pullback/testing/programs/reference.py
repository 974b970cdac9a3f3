"""In plain NumPy what the library adds to NumPy's vocabulary: the answers that random programs are compared with.

Each is written as its definition reads, independently of the library's own formulas. Programs find them under the
names that the library has: ``pb.softmax``, ``pb.numpy.at``, ``pb.nn.conv``, and ``np`` is NumPy without what it does
otherwise than it says.
"""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["At", "nn", "np_as_it_says", "numpy", "scipy"]

Array = Any
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _float(x: Array) -> Array:
    x = np.asarray(x)
    if x.dtype.kind == "f":
        return x
    return x.astype(np.float32 if x.dtype.itemsize < 4 else np.float64)


def erf(x: Array) -> Array:
    x = _float(x)
    return _erf(x).astype(x.dtype)


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python's numbers, of arrays; where that one overflows it is infinite."""

    def guarded(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return lambda x: np.vectorize(guarded, otypes=[np.float64])(_float(x)).astype(_float(x).dtype)


def _xlogy(x: Array, y: Array) -> Array:
    return np.where((x == 0) & ~np.isnan(y), np.zeros_like(x), x * np.log(y))


def _entropy(x: Array) -> Array:
    x = _float(x)
    return np.where(x > 0, -_xlogy(x, x), np.where(x < 0, -np.inf, x * 0)).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    x = _float(x)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def softplus(x: Array) -> Array:
    return np.logaddexp(_float(x), np.zeros((), _float(x).dtype))


def log_sigmoid(x: Array) -> Array:
    return -softplus(-_float(x))


def relu(x: Array) -> Array:
    return np.maximum(_float(x), 0)


def relu6(x: Array) -> Array:
    return np.clip(_float(x), 0, 6)


def leaky_relu(x: Array, slope: float = 0.01) -> Array:
    x = _float(x)
    return np.where(x > 0, x, slope * x)


def elu(x: Array, alpha: float = 1.0) -> Array:
    x = _float(x)
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x)))


def celu(x: Array, alpha: float = 1.0) -> Array:
    x = _float(x)
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x) / alpha))


def selu(x: Array) -> Array:
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def gelu(x: Array, approximate: bool = False) -> Array:
    x = _float(x)
    if approximate:
        return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return np.where(x == -np.inf, -0.0, x * _shares(x)).astype(x.dtype)


def silu(x: Array) -> Array:
    return _float(x) * sigmoid(x)


def mish(x: Array) -> Array:
    return _float(x) * np.tanh(softplus(x))


def softsign(x: Array) -> Array:
    x = _float(x)
    return np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x)))


def hard_tanh(x: Array) -> Array:
    return np.clip(_float(x), -1, 1)


def hard_sigmoid(x: Array) -> Array:
    return relu6(_float(x) + 3) / 6


def hard_swish(x: Array) -> Array:
    return _float(x) * hard_sigmoid(x)


def glu(x: Array, axis: int = -1) -> Array:
    value, gate = np.split(_float(x), 2, axis)
    return value * sigmoid(gate)


def _most(x: Array, axis: Any) -> Array:
    """The maximum that exponents are shifted by; an infinite one shifts nothing."""
    most = x.max(axis=axis, keepdims=True)
    return np.where(np.isfinite(most), most, np.zeros((), x.dtype))


def logsumexp(x: Array, axis: Any = None, *, keepdims: bool = False) -> Array:
    x = _float(x)
    most = _most(x, axis)
    total = np.log(np.sum(np.exp(x - most), axis=axis, keepdims=True)) + most
    return total if keepdims else np.squeeze(total, axis if axis is not None else tuple(range(x.ndim)))


def softmax(x: Array, axis: Any = -1) -> Array:
    x = _float(x)
    powers = np.exp(x - _most(x, axis))
    return powers / powers.sum(axis=axis, keepdims=True)


def log_softmax(x: Array, axis: Any = -1) -> Array:
    x = _float(x)
    shifted = x - _most(x, axis)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def standardise(x: Array, axis: Any = -1, *, epsilon: float = 1e-5) -> Array:
    x = _float(x)
    centred = x - x.mean(axis=axis, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=axis, keepdims=True) + epsilon)


def top_k(x: Array, k: int, axis: int = -1) -> tuple[Array, Array]:
    def order(row: Array) -> Array:
        return np.array(
            sorted(range(len(row)), key=lambda i: (np.isnan(row[i]), row[i]), reverse=True), np.int64
        )

    all_places = np.apply_along_axis(order, axis, x) if np.size(x) else np.zeros(np.shape(x), np.int64)
    places = np.take(all_places, np.arange(k), axis)
    return np.take_along_axis(x, places, axis), places


def one_hot(labels: Array, classes: int, dtype: Any = np.float32) -> Array:
    return (np.asarray(labels)[..., None] == np.arange(classes)).astype(dtype)


def stop_gradient(x: Array) -> Array:
    return x


def where(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x, y)


def conv(
    x: Array,
    weight: Array,
    stride: int = 1,
    padding: int = 0,
    *,
    dilation: int = 1,
    groups: int = 1,
    channels: str = "first",
) -> Array:
    """Windows of ``(batch, channels, …)``, or ``(batch, …, channels)``, times ``(outputs, channels / groups, …)``."""
    if channels == "last":
        first = conv(np.moveaxis(x, -1, 1), weight, stride, padding, dilation=dilation, groups=groups)
        return np.moveaxis(first, 1, -1)
    rank = weight.ndim - 2
    windows = _windows(
        np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * rank), weight.shape[2:], stride, dilation
    )
    parts = zip(np.split(windows, groups, 1), np.split(weight, groups, 0))
    axes = [1, *range(windows.ndim - rank, windows.ndim)]
    each = [np.tensordot(part, own, (axes, [1, *range(2, 2 + rank)])) for part, own in parts]
    return np.moveaxis(np.concatenate(each, -1), -1, 1)


def conv_transpose(x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
    """The convolution of the image with zeros between its elements; windows are as long along all axes."""
    rank, size = weight.ndim - 2, weight.shape[-1]
    wide = np.zeros((*x.shape[:2], *((extent - 1) * stride + 1 for extent in x.shape[2:])), x.dtype)
    inside: tuple[Any, ...] = (..., *(slice(None, None, stride),) * rank)
    wide[inside] = x
    flipped = np.flip(weight.swapaxes(0, 1), tuple(range(2, 2 + rank)))
    whole = conv(wide, flipped, padding=size - 1)
    kept: tuple[Any, ...] = (..., *(slice(padding, extent - padding) for extent in whole.shape[2:]))
    return whole[kept]


def max_pool(
    x: Array, size: int, stride: int | None = None, padding: int = 0, *, channels: str = "first"
) -> Array:
    if channels == "last":
        return np.moveaxis(max_pool(np.moveaxis(x, -1, 1), size, stride, padding), 1, -1)
    rank = x.ndim - 2
    least = -np.inf if np.issubdtype(x.dtype, np.floating) else 0
    wide = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * rank, constant_values=least) if padding else x
    return _windows(wide, (size,) * rank, stride or size, 1).max(axis=tuple(range(-rank, 0)))


def avg_pool(x: Array, size: int, stride: int | None = None, padding: int = 0) -> Array:
    rank = x.ndim - 2
    wide = np.pad(_float(x), [(0, 0)] * 2 + [(padding, padding)] * rank)
    return _windows(wide, (size,) * rank, stride or size, 1).mean(axis=tuple(range(-rank, 0)))


def _windows(x: Array, sizes: tuple[int, ...], stride: int, dilation: int) -> Array:
    """The windows' elements as last axes."""
    rank = len(sizes)
    spans = tuple((size - 1) * dilation + 1 for size in sizes)
    view = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, 2 + rank)))
    every = [slice(None)] * 2 + [slice(None, None, stride)] * rank + [slice(None, None, dilation)] * rank
    return view[tuple(every)]


def scan(function: Any, init: Any, xs: Any, *, reverse: bool = False, checkpoint: Any = None) -> Any:
    """A loop in Python; states are arrays or pairs of them."""
    state, kept = init, []
    for x in xs[::-1] if reverse else xs:
        state, y = function(state, x)
        kept.append(y)
    return state, np.stack(kept[::-1] if reverse else kept)


def cond(pred: Any, true_function: Any, false_function: Any, *operands: Any) -> Any:
    return switch(not pred, (true_function, false_function), *operands)


def switch(index: Any, branches: Any, *operands: Any) -> Any:
    found = [branch(*operands) for branch in branches]  # all are traced: what one cannot do no program can
    return found[min(max(int(index), 0), len(branches) - 1)]


def pure_callback(function: Any, like: Any, *arguments: Any, vmap_method: str) -> Any:
    return function(*arguments)


def checkpoint(function: Any) -> Any:
    return function


def while_loop(
    condition: Any, body: Any, init: Any, max_steps: int | None = None, checkpoint: Any = None
) -> Any:
    value = init
    body(value)  # it is traced in any case: what it cannot do no program can
    for _ in itertools.count() if max_steps is None else range(max_steps):
        if not condition(value):
            break
        value = body(value)
    return value


def fori_loop(lower: int, upper: int, body: Any, init: Any) -> Any:
    value = init
    body(lower, value)
    for i in range(lower, upper):
        value = body(i, value)
    return value


def map(function: Any, xs: Array) -> Array:
    return np.stack([function(x) for x in xs])


class At:
    """``At(x)[index].add(value)`` is ``np.add.at(x, index, value)`` on a copy."""

    def __init__(self, array: Array, index: Any = ...) -> None:
        self.array = array
        self.index = index

    def __getitem__(self, index: Any) -> At:
        """Places are gone through row by row; NumPy does as they lie in memory, which tells whose update is last."""
        each = index if isinstance(index, tuple) else (index,)
        return At(
            self.array, tuple(np.asarray(x, order="C") if isinstance(x, np.ndarray) else x for x in each)
        )

    def get(self) -> Array:
        return self.array[self.index]

    def set(self, value: Array) -> Array:
        changed = np.array(self.array)
        changed[self.index] = value
        return changed

    def add(self, value: Array) -> Array:
        return self._at(np.add, value)

    def multiply(self, value: Array) -> Array:
        return self._at(np.multiply, value)

    def max(self, value: Array) -> Array:
        return self._at(np.maximum, value)

    def min(self, value: Array) -> Array:
        return self._at(np.minimum, value)

    def _at(self, ufunc: np.ufunc, value: Array) -> Array:
        changed = np.array(self.array)
        if type(value) is int and changed.dtype.kind == "u":
            # NumPy takes it for an int64, and adds unsigned numbers of 64 bits to it in float64.
            value = np.asarray(value, changed.dtype)
        # NumPy 2.4 reads beyond a row of values that is to be repeated for several axes of places.
        ufunc.at(changed, self.index, np.broadcast_to(value, changed[self.index].shape))
        return changed


def _of_all_elements(product: Any) -> Any:
    """``product`` where an operand has a single element: NumPy scales by it, and takes 0 times infinity for 0 then.

    Its ``matmul`` does not.
    """

    def multiplied(a: Array, b: Array) -> Array:
        value = product(a, b)
        a, b = np.asarray(a), np.asarray(b)
        if a.ndim and b.ndim and 1 in (a.size, b.size):
            return np.multiply(a.reshape(-1), b.reshape(-1)).reshape(np.shape(value))[()]
        return value

    return multiplied


def _det(x: Array) -> Array:
    """Determinants by Leibniz' formula: NumPy's elimination divides, so that of integers may be no integer."""
    if np.shape(x)[-1] != np.shape(x)[-2] or not 1 <= np.shape(x)[-1] <= 3:
        return np.linalg.det(x)
    x = x if np.iscomplexobj(x) else _float(x)
    total = np.zeros(x.shape[:-2], x.dtype)
    for order in itertools.permutations(range(x.shape[-1])):
        swaps = sum(a > b for a, b in itertools.combinations(order, 2))
        terms = [x[..., row, column] for row, column in enumerate(order)]
        total = total + (-1) ** swaps * math.prod(terms[1:], start=terms[0])
    return total[()]


def _sinc(x: Array) -> Array:
    """``sin(pi x) / (pi x)``, zero where it is: NumPy takes the sine of ``pi x`` as it is rounded."""
    if np.iscomplexobj(x):
        return np.sinc(x)
    x = _float(x)
    wide = x.astype(np.longdouble)
    whole = np.rint(wide)
    sine = np.sin((wide - whole) * np.pi)
    sine = np.where(whole % 2 == 0, sine, -sine) / np.where(x == 0, 1, np.pi * wide)
    return np.where(x == 0, 1, sine).astype(x.dtype)[()]


def _times(factor: float) -> Callable[[Array], Array]:
    """``factor * x``: of ``float32`` NumPy's own factors between degrees and radians are one unit off."""
    return lambda x: (np.asarray(_float(x), np.longdouble) * factor).astype(_float(x).dtype)[()]


np_as_it_says = SimpleNamespace(
    **{
        **vars(np),
        "deg2rad": _times(math.pi / 180),
        "rad2deg": _times(180 / math.pi),
        "dot": _of_all_elements(np.dot),
        "inner": _of_all_elements(np.inner),
        "linalg": SimpleNamespace(**{**vars(np.linalg), "det": _det}),
        "sinc": _sinc,
    }
)
numpy = SimpleNamespace(at=At, logsumexp=logsumexp, standardise=standardise)
nn = SimpleNamespace(conv=conv, conv_transpose=conv_transpose, max_pool=max_pool, avg_pool=avg_pool)


def _gammaln(x: float) -> float:
    r"""The logarithm of the gamma function, near its zeros too, where ``math.lgamma`` is 1e-15 off.

    .. math:: \ln \Gamma(z) = (z - 1/2) \ln z - z + \ln(2 \pi) / 2 + \sum_k B_{2k} / (2k (2k - 1) z^{2k - 1}),
        \quad \ln \Gamma(x) = \ln \Gamma(x + 100) - \ln(x (x + 1) \cdots (x + 99))

    Source: Abramowitz and Stegun, *Handbook of Mathematical Functions*, 1964, 6.1.41.
    """
    if not 0.1 < x < 4 or x in (1, 2):
        return math.lgamma(x)
    with decimal.localcontext() as context:
        context.prec = 50
        exact = decimal.Decimal(float(x))
        z = exact + 100
        value = (z - decimal.Decimal("0.5")) * z.ln() - z + (2 * _PI).ln() / 2
        for k, (numerator, denominator) in enumerate(_BERNOULLI, 1):
            value += decimal.Decimal(numerator) / denominator / (2 * k * (2 * k - 1)) / z ** (2 * k - 1)
        return float(value - math.prod((exact + k for k in range(100)), start=decimal.Decimal(1)).ln())


def _ndtr(x: float) -> float:
    """``erfc(-x / sqrt(2)) / 2``, with what rounding takes from the quotient: far from 0 it weighs hundreds of times.

    >>> _ndtr(-22.5)
    2.0753107990663545e-112
    """
    z = -x / math.sqrt(2)
    value = math.erfc(z)
    if 1 < abs(z) < 40:
        lost = float(Fraction(x) ** 2 / 2 - Fraction(z) ** 2)
        value -= math.exp(-z * z) * lost / (math.sqrt(math.pi) * z)
    return value / 2


_shares = np.vectorize(_ndtr, otypes=[np.float64])

_PI = decimal.Decimal("3.14159265358979323846264338327950288419717")
_BERNOULLI = (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)

special = SimpleNamespace(
    erfc=_each(math.erfc),
    ndtr=_each(_ndtr),
    expit=sigmoid,
    log_expit=log_sigmoid,
    entr=_entropy,
    gammaln=_each(_gammaln),
    gamma=_each(math.gamma),
    rgamma=_each(lambda x: 0.0 if x > 170 else 1 / math.gamma(x)),
    xlogy=_xlogy,
)


def _waves(name: str, type: int, n: int, norm: str | None) -> Array:
    r"""The matrix of a transform of cosines or sines of type 2, 3 or 4.

    .. math:: C^{(2)}_{k j} = 2 \cos \frac{\pi k (2 j + 1)}{2 n},
        \quad S^{(2)}_{k j} = 2 \sin \frac{\pi (k + 1) (2 j + 1)}{2 n},
        \quad C^{(4)}_{k j} = 2 \cos \frac{\pi (2 k + 1) (2 j + 1)}{4 n}

    and :math:`S^{(4)}` with the sine. Of type 3 is the inverse of type 2, times :math:`2 n`.
    """
    if name.startswith("i"):
        scale = {None: 1 / (2 * n), "ortho": 1.0, "forward": 2.0 * n}[norm]
        return scale * _waves(name[1:], {2: 3, 3: 2, 4: 4}[type], n, norm)
    wave, shift = (np.cos, 0) if name == "dct" else (np.sin, 1)
    row, column = np.arange(n)[:, None], 2 * np.arange(n) + 1
    if type == 4:
        matrix = 2 * wave(np.pi * ((2 * row + 1) * column % (8 * n)) / (4 * n))
    else:
        matrix = 2 * wave(np.pi * ((row + shift) * column % (4 * n)) / (2 * n))
        matrix[-shift] *= 1 / math.sqrt(2) if norm == "ortho" else 1.0 if type == 2 else 0.5
        matrix = matrix if type == 2 else matrix.T
    return matrix * {None: 1.0, "ortho": 1 / math.sqrt(2 * n), "forward": 1 / (2 * n)}[norm]


def _transform(name: str) -> Callable[..., Array]:
    def transformed(x: Array, type: int, *, axis: int, norm: str | None = None) -> Array:
        matrix = _waves(name, type, np.shape(x)[axis], norm)
        return np.moveaxis(np.moveaxis(x, axis, -1) @ matrix.T, -1, axis).astype(_float(x).dtype)

    return transformed


def _expm(a: Array) -> Array:
    """Taylor's series of matrices that are halved eight times, then squared as often, which magnifies rounding."""
    term = total = np.eye(a.shape[-1]) + np.zeros(a.shape, np.longdouble)
    for k in range(1, 20):
        term = term @ (a.astype(np.longdouble) / 256) / k
        total = total + term
    for _ in range(8):
        total = total @ total
    return total.astype(a.dtype)


scipy = SimpleNamespace(
    special=special,
    linalg=SimpleNamespace(expm=_expm),
    fft=SimpleNamespace(**{name: _transform(name) for name in ("dct", "idct", "dst", "idst")}),
)
