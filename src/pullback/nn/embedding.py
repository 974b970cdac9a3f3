"""Embeddings: a vector for each token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pullback.counts import count
from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node
from pullback.nn.initialisers import Initialiser, normal
from pullback.nn.layers import Seed, drawn, sizes
from pullback.nn.module import Module
from pullback.numpy import where
from pullback.numpy.promotion import any_traced, as_array_node
from pullback.tracing import buffer

__all__ = ["Embedding"]


class Embedding(Module):
    r"""A vector for each token, :math:`y_p = W_{t_p}`: integers (…) → (…, columns).

    ``weight`` has shape (rows, columns) and begins normal with deviation 1, or by ``initialiser``. With
    ``trainable=False`` the table is a buffer: no gradient reaches it and no optimiser changes it.

    With ``padding_idx`` that token means nothing: its vector is zero, and so is the gradient of its row, which begins
    at zero and stays there.

    Raises ``ShapeError`` for sizes below 1, ``ValueError`` for a ``padding_idx`` that is no row, ``IndexRangeError``
    for a token outside 0 to ``rows - 1``, naming the token and its place (in a compiled function: when it runs),
    ``DTypeError`` for tokens that are no integers.

    >>> layer = Embedding(1000, 50, seed=0)
    >>> layer
    Embedding(1000 × 50)  # 50,000 parameters, 200.0 kB
    >>> layer(np.array([[1, 2, 3], [4, 5, 6]])).shape
    (2, 3, 50)
    >>> Embedding(1000, 2, padding_idx=0, seed=0)(np.array([0, 0]))
    array([[0., 0.],
           [0., 0.]], dtype=float32)
    """

    weight: Any = buffer(unless="trainable")
    trainable: bool
    padding_idx: int | None

    def __init__(
        self,
        rows: int,
        columns: int,
        trainable: bool = True,
        *,
        padding_idx: int | None = None,
        initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        rows, columns = sizes("Embedding", rows=rows, columns=columns)
        random = np.random.default_rng(seed)
        self.weight = drawn("Embedding", initialiser or normal(1.0), (rows, columns), random, dtype)
        self.trainable, self.padding_idx = trainable, None
        if padding_idx is not None:
            self.padding_idx = count("Embedding", "padding_idx", padding_idx, 0)
            if self.padding_idx >= rows:
                raise ValueError(
                    f"[Embedding] padding_idx is {padding_idx} of {rows} rows. Give one from 0 to {rows - 1}."
                )
            self.weight[self.padding_idx] = 0

    @classmethod
    def from_vectors(
        cls,
        vectors: ArrayLike,
        trainable: bool = False,
        dtype: DTypeLike = np.float32,
        *,
        padding_idx: int | None = None,
    ) -> Embedding:
        """The layer whose table is a copy of ``vectors`` (rows, columns), such as GloVe's, but for a row of padding.

        >>> Embedding.from_vectors(np.eye(3))
        Embedding(3 × 3, fixed)  # 0 parameters, 36 bytes with what is fixed
        """
        table = np.array(vectors, dtype)  # float32 vectors too: the layer is trained in place
        if table.ndim != 2:
            raise ShapeError(f"[Embedding] vectors of shape {table.shape}. Give one row for each token.")
        rows, columns = table.shape
        return cls(
            rows,
            columns,
            trainable,
            padding_idx=padding_idx,
            initialiser=lambda shape, random: table,
            dtype=dtype,
        )

    def __call__(self, tokens: Any) -> Any:
        check_index, gather = OPERATORS["check_index"], OPERATORS["gather"]
        tokens = tokens if isinstance(tokens, Node) else np.asarray(tokens)
        if tokens.dtype.kind not in "iu":
            raise DTypeError(f"[{self.describe()}] tokens of dtype {tokens.dtype}. Give integers.")
        rows = self.weight.shape[0]
        if any_traced(tokens, self.weight):
            positions = check_index(as_array_node(tokens), extent=rows, what="token", wrap=False)
            vectors = gather(as_array_node(self.weight), positions, axes=(0,))
        else:
            vectors = self.weight[check_index.reference(tokens, extent=rows, what="token", wrap=False)]
        if self.padding_idx is None:
            return vectors
        return where((tokens == self.padding_idx)[..., None], 0, vectors)

    def describe(self) -> str:
        rows, columns = self.weight.shape
        options = [f"padding {self.padding_idx}"] * (self.padding_idx is not None)
        options += ["fixed"] * (not self.trainable)
        return f"Embedding({', '.join([f'{rows} × {columns}', *options])})"
