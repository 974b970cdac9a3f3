"""Losses of sequences: of logits for each step, and of labels that nobody has aligned with the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.control import scan
from pullback.errors import DTypeError, ShapeError
from pullback.nn.losses.common import (
    as_array,
    check_floats,
    counted,
    numbers_below,
    reduced,
    visible,
)
from pullback.numpy import (
    arange,
    astype,
    concatenate,
    expand_dims,
    full,
    logaddexp,
    logsumexp,
    moveaxis,
    take_along_axis,
    zeros,
)
from pullback.numpy import max as max_
from pullback.numpy import sum as sum_
from pullback.numpy import where as choose

__all__ = ["ctc"]


def ctc(
    logits: Any,
    labels: Any,
    *,
    logit_lengths: Any = None,
    label_lengths: Any = None,
    blank: int = 0,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""Connectionist temporal classification: the cross-entropy of a sequence of labels, however it is aligned.

    .. math:: -\log \sum_{\pi \to y} \prod_t \mathrm{softmax}(z_t)_{\pi_t}

    The sum is over all alignments: a class :math:`\pi_t` for each step such that :math:`y` is left when of equal
    classes in a row one is kept and then the ``blank`` is taken out. Two equal labels need a blank between them.

    ``logits`` are floats (…, steps, classes), ``labels`` integers (…, length), numbers of classes other than the blank;
    losses have shape (…), one for each sequence. ``logit_lengths`` (…) and ``label_lengths`` (…) are integers that
    say how many steps and labels a sequence has; what stands behind is not looked at. Without ``label_lengths`` labels
    end before the first blank, so they may be padded with it; without ``logit_lengths`` all steps count.

    A sequence with fewer steps than its labels need has no alignment: its loss is infinite and its slope 0, as if it
    were not there. The mean is over sequences, as optax's and Keras's are; PyTorch's ``"mean"`` first divides each loss
    by the number of its labels.

    Raises ``IndexRangeError`` for a label that is no class and for lengths below zero or beyond the arrays (in a
    compiled function: when it runs), ``ShapeError`` and ``DTypeError`` for arrays that do not fit, ``ValueError`` for
    a ``blank`` that is no class.

    Source: Graves et al., *Connectionist temporal classification*, 2006.

    >>> logits = np.log([[[0.5, 0.5], [0.25, 0.75]]])  # "1" by (blank, 1), (1, blank) or (1, 1)
    >>> print(ctc(logits, np.array([[1]]), reduction="none").round(4), -np.log(1 - 0.5 * 0.25).round(4))
    [0.1335] 0.1335
    >>> print(ctc(logits, np.array([[1, 1]]), reduction="none"))
    [inf]
    """
    name = "ctc"
    logits, labels = as_array(logits), as_array(labels)
    shape = _check(name, logits, labels, blank)
    (steps, classes), length = logits.shape[-2:], labels.shape[-1]
    mask = counted(name, where, shape)
    heard = None if mask is None else expand_dims(mask, -1)
    labels = visible(heard, astype(labels, np.int64), blank)
    if logit_lengths is not None:
        ends = _lengths(name, "logit_lengths", logit_lengths, shape, steps, mask)
        heard = arange(steps) < expand_dims(ends, -1)
    if label_lengths is None:
        ends = sum_(labels != blank, axis=-1)
    else:
        ends = _lengths(name, "label_lengths", label_lengths, shape, length, mask)
    ends = expand_dims(ends, -1)
    labels = numbers_below(classes, "label", choose(arange(length) < ends, labels, blank))
    # A step behind the end is blank for certain, which goes on with what there is.
    certain = choose(arange(classes) == blank, np.zeros((), logits.dtype), -np.inf)
    logits = visible(None if heard is None else expand_dims(heard, -1), logits, certain)
    normaliser = logsumexp(logits, axis=-1, keepdims=True)
    own = take_along_axis(logits, expand_dims(labels, -2), axis=-1) - normaliser
    silent = logits[..., blank : blank + 1] - normaliser

    # Log probabilities of all alignments so far that end with a blank, before or behind each label, and with a label.
    after_blank = choose(arange(length + 1) == 0, zeros((*shape, 1), logits.dtype), -np.inf)
    after_label = full((*shape, length), -np.inf, logits.dtype)
    repeated = labels[..., 1:] == labels[..., :-1]

    def step(carry: tuple[Any, Any], x: tuple[Any, Any]) -> tuple[tuple[Any, Any], None]:
        (after_blank, after_label), (silent, own) = carry, x
        first, later = after_blank[..., :1], after_blank[..., 1:]
        either = logaddexp(later, after_label)
        before = concatenate([first, choose(repeated, later[..., :-1], either[..., :-1])], axis=-1)[
            ..., :length
        ]
        return (concatenate([first, either], axis=-1) + silent, logaddexp(before, after_label) + own), None

    moved = moveaxis(silent, -2, 0), moveaxis(own, -2, 0)
    (after_blank, after_label), _ = scan(step, (after_blank, after_label), moved)
    last = arange(length + 1) == ends
    total = logaddexp(
        max_(choose(last, after_blank, -np.inf), axis=-1),
        max_(choose(last[..., 1:], after_label, -np.inf), axis=-1, initial=-np.inf),
    )
    return reduced(name, choose(total == -np.inf, np.inf, -total), reduction, mask)


def _check(name: str, logits: Any, labels: Any, blank: int) -> tuple[int, ...]:
    """Raise for logits, labels and a blank that do not belong together; the shape of the losses."""
    check_floats(name, logits)
    if logits.ndim < 2:
        raise ShapeError(f"[{name}] logits of shape {logits.shape}. Give (…, steps, classes).")
    shape, classes = tuple(logits.shape[:-2]), logits.shape[-1]
    if labels.dtype.kind not in "iu":
        raise DTypeError(
            f"[{name}] labels of dtype {labels.dtype}. Give numbers of classes as integers, labels.astype(np.int64)."
        )
    if labels.ndim == 0 or tuple(labels.shape[:-1]) != shape:
        raise ShapeError(
            f"[{name}] labels of shape {labels.shape} with logits of shape {logits.shape}. Give a row of labels for "
            f"each sequence: ({', '.join(map(str, (*shape, 'length')))})."
        )
    if not 0 <= blank < classes:
        raise ValueError(f"[{name}] blank is {blank}. Give the number of a class, 0 to {classes - 1}.")
    return shape


def _lengths(name: str, what: str, lengths: Any, shape: tuple[int, ...], limit: int, mask: Any) -> Any:
    """``lengths`` as integers, checked to be 0 to ``limit``; 0 where a sequence does not count."""
    lengths = as_array(lengths)
    if lengths.dtype.kind not in "iu":
        raise DTypeError(f"[{name}] {what} of dtype {lengths.dtype}. Give integers.")
    if lengths.shape != shape:
        raise ShapeError(
            f"[{name}] {what} of shape {lengths.shape} where {shape} is needed. Give one for each sequence."
        )
    return numbers_below(limit + 1, what, visible(mask, lengths))
