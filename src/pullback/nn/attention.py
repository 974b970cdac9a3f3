"""Attention."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Node, float_limits
from pullback.nn.dropout import Dropout
from pullback.nn.initialisers import Initialiser, glorot_uniform
from pullback.nn.layers import Dense, Seed, check_features, sizes
from pullback.nn.module import Module
from pullback.numpy import any as any_
from pullback.numpy import astype, exp, isfinite, logical_and, softmax, stop_gradient, swapaxes, where
from pullback.numpy import max as max_
from pullback.numpy import sum as sum_
from pullback.tracing import static

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    r"""Multi-head attention: each query takes a weighted mean of the values, weighted by how its key fits.

    .. math:: y = \text{concat}_j(A_j V_j)\, W_O + b_O, \quad
        A_j = \text{softmax}(Q_j K_j^\top / \sqrt{d} + M)

    with :math:`Q = q W_Q + b_Q`, :math:`K = k W_K + b_K` and :math:`V = v W_V + b_V`, each cut into ``heads`` parts
    of :math:`d` = features / heads columns. ``query`` (…, queries, features) → (…, queries, features); ``key`` and
    ``value`` have shape (…, keys, key_features) and (…, keys, value_features), of the query's size by default.
    Without a key the layer attends to the query itself, and the value is by default the key.

    Which keys a query sees: ``key_mask`` (…, keys) is true where a key is one, false for padding, which is not
    looked at; with ``causal`` a query sees keys up to its own place; ``mask`` is of the shape (…, heads, queries,
    keys) or broadcasts to it, and is true where the query may see the key, or a float that is added as :math:`M`,
    minus infinity where it may not. A query that sees no key has the weights 0, not NaN, and so has their
    derivative. NaN and infinity reach no result and no gradient from keys that the masks hide from all queries, and
    neither from the queries there, where the layer attends to the query itself and has a ``key_mask``: they count as
    zeros. What some queries see must be finite for all.

    In training ``dropout`` is applied to the weights :math:`A`. The four matrices begin uniform in
    :math:`\pm\sqrt{6 / (\text{inputs} + \text{outputs})}`, or by ``initialiser``, and biases at zero.

    Raises ``ShapeError`` for inputs of another size, heads that do not divide ``features`` and masks that do not
    fit, ``DTypeError`` for masks of integers.

    Source: Vaswani et al., *Attention is all you need*, 2017.

    >>> layer = MultiHeadAttention(8, heads=2, seed=0)
    >>> layer.describe()
    'MultiHeadAttention(8, 2 heads)'
    >>> x = np.random.default_rng(0).standard_normal((4, 5, 8)).astype(np.float32)
    >>> layer(x, causal=True).shape
    (4, 5, 8)
    >>> bool(np.allclose(layer(x, causal=True)[:, :2], layer(x[:, :2], causal=True), atol=1e-6))
    True
    """

    query: Dense
    key: Dense
    value: Dense
    output: Dense
    heads: int
    dropout: float = static()

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        key_features: int | None = None,
        value_features: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        initialiser: Initialiser = glorot_uniform,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        features, heads = sizes("MultiHeadAttention", features=features, heads=heads)
        if features % heads:
            raise ShapeError(
                f"[MultiHeadAttention] {features} features do not fall into {heads} heads. "
                "Choose a divisor of them."
            )
        random = np.random.default_rng(seed)
        of_key = features if key_features is None else key_features
        of_value = of_key if value_features is None else value_features
        self.query, self.key, self.value, self.output = (
            Dense(inputs, features, bias=bias, initialiser=initialiser, seed=random, dtype=dtype)
            for inputs in (features, of_key, of_value, features)
        )
        self.heads = heads
        self.dropout = Dropout(dropout).rate

    def __call__(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        *,
        mask: Any = None,
        key_mask: Any = None,
        causal: bool = False,
    ) -> Any:
        key = query if key is None else key
        value = key if value is None else value
        of_itself = key is query
        self._check(query, key, value)
        batch, queries, keys = tuple(query.shape[:-2]), query.shape[-2], key.shape[-2]
        if mask is not None:
            mask = self._mask("mask", mask, "bf", (*batch, self.heads, queries, keys))
        seen = []
        if key_mask is not None:
            key_mask = self._mask("key_mask", key_mask, "b", (*batch, keys))
            seen.append(key_mask[..., None, None, :])
            if of_itself:
                query = where(key_mask[..., None] | isfinite(query), query, 0)
            key, value = (where(key_mask[..., None], part, 0) for part in (key, value))
        if mask is not None:
            seen.append(mask if mask.dtype.kind == "b" else mask != -np.inf)
            by_any = _by_any_query(seen[-1])[..., None]
            key, value = (where(by_any, part, 0) for part in (key, value))
        q, k, v = (self._heads(part) for part in (self.query(query), self.key(key), self.value(value)))
        scores = q @ swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]))
        if causal:
            seen.append(np.tri(queries, keys, dtype=bool))
        if mask is not None and mask.dtype.kind == "f":
            scores = scores + astype(where(mask == -np.inf, 0, mask), scores.dtype)
        weights = _masked_softmax(scores, reduce(logical_and, seen)) if seen else softmax(scores)
        mixed = swapaxes(Dropout(self.dropout)(weights) @ v, -2, -3)
        return self.output(mixed.reshape(*query.shape))

    def _heads(self, x: Any) -> Any:
        """(…, places, features) → (…, heads, places, features / heads)."""
        return swapaxes(x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads), -2, -3)

    def _mask(self, name: str, mask: Any, kinds: str, wanted: tuple[int, ...]) -> Any:
        """``mask`` as an array, which is of one of these kinds of dtype and broadcasts to ``wanted``."""
        mask = mask if isinstance(mask, Node) else np.asarray(mask)
        if mask.dtype.kind not in kinds:
            raise DTypeError(
                f"[{self.describe()}] {name} of dtype {mask.dtype}. Give booleans, true for what is seen"
                f"{', or floats to add' if 'f' in kinds else ''}."
            )
        shape = tuple(mask.shape)
        fits = len(shape) <= len(wanted) and all(
            extent in (1, other) for extent, other in zip(shape[::-1], wanted[::-1])
        )
        if not fits:
            raise ShapeError(
                f"[{self.describe()}] {name} has shape {shape}, which does not broadcast to {wanted}, the "
                f"{'batch, heads, queries' if name == 'mask' else 'batch'} and keys. Give it axes of one element "
                "where it is the same for all."
            )
        return mask

    def _check(self, query: Any, key: Any, value: Any) -> None:
        for layer, part in ((self.query, query), (self.key, key), (self.value, value)):
            if part.ndim < 2:
                raise ShapeError(
                    f"[{self.describe()}] an input has shape {tuple(part.shape)}. Give it the axes "
                    "(…, places, features)."
                )
            check_features(self, part, layer.weight.shape[0])
        if key.shape[:-1] != value.shape[:-1] or key.shape[:-2] != query.shape[:-2]:
            raise ShapeError(
                f"[{self.describe()}] query, key and value have shapes {tuple(query.shape)}, "
                f"{tuple(key.shape)} and {tuple(value.shape)}. Give all the same batch, and each key a value."
            )

    def describe(self) -> str:
        features, of_key, of_value = (layer.weight.shape[0] for layer in (self.query, self.key, self.value))
        options = [f"keys of {of_key}"] * (of_key != features)
        options += [f"values of {of_value}"] * (of_value != of_key) + ["no bias"] * (self.query.bias is None)
        options += [f"dropout {self.dropout}"] * (self.dropout > 0)
        return f"MultiHeadAttention({', '.join([f'{features}', f'{self.heads} heads', *options])})"

    def parts(self) -> dict[str, Any]:
        return {}


def _by_any_query(mask: Any) -> Any:
    """Whether a key is seen at all, (…, keys), by a mask (…, heads, queries, keys) that may lack leading axes."""
    return any_(mask, axis=tuple(range(max(-3, -mask.ndim), -1)))


def _masked_softmax(scores: Any, seen: Any) -> Any:
    """The softmax over the last axis of what is ``seen``; zeros where nothing is."""
    lowest = float_limits(scores.dtype).min
    top = stop_gradient(max_(where(seen, scores, lowest), axis=-1, keepdims=True))
    powers = where(seen, exp(where(seen, scores - top, 0)), 0)
    total = sum_(powers, axis=-1, keepdims=True)
    return powers / where(total == 0, 1, total)
