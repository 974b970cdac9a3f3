"""Embeddings: a vector for each token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node
from pullback.nn.initialisers import Initialiser, normal
from pullback.nn.layers import Seed, drawn, sizes
from pullback.nn.module import Module
from pullback.numpy.promotion import any_traced, as_array_node
from pullback.tracing import buffer

__all__ = ["Embedding"]


class Embedding(Module):
    r"""A vector for each token, :math:`y_p = W_{t_p}`: integers (…) → (…, columns).

    ``weight`` has shape (rows, columns) and begins normal with deviation 1, or by ``initialiser``. With
    ``trainable=False`` the table is a buffer: no gradient reaches it and no optimiser changes it.

    Raises ``IndexRangeError`` for a token outside 0 to ``rows - 1``, naming the token and its place (in a
    compiled function: when it runs), ``DTypeError`` for tokens that are no integers.

    >>> layer = Embedding(1000, 50, seed=0)
    >>> layer
    Embedding(1000 × 50)  # 50,000 parameters, 200.0 kB
    >>> layer(np.array([[1, 2, 3], [4, 5, 6]])).shape
    (2, 3, 50)
    """

    weight: Any = buffer(unless="trainable")
    trainable: bool

    def __init__(
        self,
        rows: int,
        columns: int,
        trainable: bool = True,
        *,
        initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        rows, columns = sizes("Embedding", rows=rows, columns=columns)
        random = np.random.default_rng(seed)
        self.weight = drawn("Embedding", initialiser or normal(1.0), (rows, columns), random, dtype)
        self.trainable = trainable

    @classmethod
    def from_vectors(
        cls, vectors: ArrayLike, trainable: bool = False, dtype: DTypeLike = np.float32
    ) -> Embedding:
        """The layer whose table is a copy of ``vectors`` (rows, columns), such as GloVe's.

        >>> Embedding.from_vectors(np.eye(3))
        Embedding(3 × 3, fixed)  # 0 parameters, 36 bytes with what is fixed
        """
        table = np.asarray(vectors)
        if table.ndim != 2:
            raise ShapeError(f"[Embedding] vectors of shape {table.shape}. Give one row for each token.")
        rows, columns = table.shape
        return cls(rows, columns, trainable, initialiser=lambda shape, random: table, dtype=dtype)

    def __call__(self, tokens: Any) -> Any:
        check_index, gather = OPERATORS["check_index"], OPERATORS["gather"]
        tokens = tokens if isinstance(tokens, Node) else np.asarray(tokens)
        if tokens.dtype.kind not in "iu":
            raise DTypeError(f"[{self.describe()}] tokens of dtype {tokens.dtype}. Give integers.")
        rows = self.weight.shape[0]
        if any_traced(tokens, self.weight):
            positions = check_index(as_array_node(tokens), extent=rows, what="token", wrap=False)
            return gather(as_array_node(self.weight), positions, axes=(0,))
        return self.weight[check_index.reference(tokens, extent=rows, what="token", wrap=False)]

    def describe(self) -> str:
        rows, columns = self.weight.shape
        return f"Embedding({rows} × {columns}{'' if self.trainable else ', fixed'})"
