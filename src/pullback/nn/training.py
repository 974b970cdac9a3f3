"""Training mode: what dropout and batch normalisation do while a model learns, and not when it is used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pullback.errors import TracingError, TreeError
from pullback.numpy.arrays import plain
from pullback.random import fold_in
from pullback.tracing import flatten, map_tree
from pullback.tracing.trace import apart, runs_under_way, traces_outside_kept, traces_under_way

__all__ = ["Training", "current_training", "training"]


class Training:
    """One training pass of a model: a source of keys, and the buffers that layers have set.

    Layers find it by ``nn.current_training()``; the code around the pass calls ``updated(model)`` after it.
    """

    def __init__(self, key: Any) -> None:
        self._key = key
        self._keys_given = 0
        self._updates: dict[int, tuple[Any, Any, int]] = {}
        """By the identity of a buffer: the buffer, kept so that no other takes that identity, its value, and how many
        traces were under way.
        """
        self._depth = traces_under_way()

    def next_key(self) -> Any:
        """A key that nothing else in this pass is given; they come in the order in which layers ask.

        In a loop within the pass (``scan``, ``fori_loop``, ``while_loop``, ``map``) it is another one in each step, and
        in a ``vmap`` for each example.
        """
        self._keys_given += 1
        key = fold_in(self._key, self._keys_given - 1)
        for number in runs_under_way(self._depth):
            key = fold_in(key, number)
        return key

    def value(self, buffer: Any) -> Any:
        """What ``buffer``, an array in a field of ``pb.buffer()``, has become in this pass so far."""
        _, value, depth = self._updates.get(id(plain(buffer)), (buffer, buffer, 0))
        if depth > traces_under_way():
            raise TracingError(
                f"[training] a buffer of shape {tuple(buffer.shape)} was set inside a function of scan, cond, "
                "checkpoint or another transformation, and what was computed there is known there alone. Open "
                "nn.training inside that function, and let it return updated(model) beside its result."
            )
        return value

    def set(self, buffer: Any, value: Any) -> None:
        """Give ``buffer`` a new value, of the same shape and dtype."""
        self._updates[id(plain(buffer))] = (plain(buffer), value, traces_under_way())

    def updated(self, model: Any) -> Any:
        """``model`` with the buffers that its layers have set; everything else is as it was.

        Raises ``TreeError`` when buffers were set that are not the model's.
        """
        known = {id(leaf) for leaf in flatten(model)[0]}
        foreign = sum(buffer not in known for buffer in self._updates)
        if foreign:
            raise TreeError(
                f"[training] {foreign} of the arrays that layers have set are not in this model. Give the "
                "model that was called, inside the function that is traced: updated(model) in the loss "
                "function, returned beside the loss with has_aux=True."
            )
        return map_tree(self.value, model)


class _Active(threading.local):
    """The passes under way in this thread, the innermost last."""

    def __init__(self) -> None:
        self.passes: list[Training] = []


_active = _Active()


@contextmanager
def training(key: Any) -> Iterator[Training]:
    """Inside the block, models behave as in training: dropout drops, batch normalisation learns.

    ``key`` (``pb.random.key(seed)``, with the step folded in) decides what is dropped. Open the block in the
    function that is traced, where the key is one of its arguments. Blocks may be nested, and belong to their
    thread.

    >>> import numpy as np
    >>> from pullback import nn, optim, random, value_and_grad
    >>> model = nn.Chain(nn.Dense(3, 8, seed=0), nn.BatchNorm(8), nn.relu, nn.Dropout(0.5), nn.Dense(8, 1))
    >>> def objective(model, x, key):
    ...     with nn.training(key) as mode:
    ...         loss = (model(x) ** 2).mean()
    ...     return loss, mode.updated(model)
    >>> x = np.random.default_rng(0).normal(2.0, 1.0, (16, 3)).astype(np.float32)
    >>> step = value_and_grad(objective, has_aux=True)
    >>> (loss, changed), gradient = step(model, x, random.key(0))
    >>> bool((model[1].running_mean == 0).all()), bool((changed[1].running_mean == 0).any())
    (True, False)
    """
    mode = Training(key)
    _active.passes.append(mode)
    try:
        with apart():
            yield mode
    finally:
        _active.passes.pop()


def current_training() -> Training | None:
    """The innermost pass under way in this thread, or None: then a layer behaves as in evaluation.

    Raises ``TracingError`` in a traced function when the block was opened outside of every trace, and in a compiled
    one when it was opened outside of that: the key and what layers set would belong to one call of the function, its
    compiled program to all.
    """
    if not _active.passes:
        return None
    mode = _active.passes[-1]
    if mode._depth <= traces_outside_kept() or (mode._depth == 0 and traces_under_way() > 0):
        raise TracingError(
            "nn.training(key) was opened outside of the function that is traced. Open it inside the function "
            "given to jit or grad, and make the key an argument of it."
        )
    return mode
