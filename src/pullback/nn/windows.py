"""How layers with windows keep and describe their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["by", "plain", "window_options"]


def by(sizes: Sequence[int]) -> str:
    """Sizes in one text.

    >>> by((3, 5)), by((3,))
    ('3 × 5', '3')
    """
    return " × ".join(map(str, sizes))


def plain(value: Any) -> Any:
    """NumPy's numbers among sizes as Python's: a layer's tree would have them as leaves.

    >>> plain(((np.int64(1), 2), [np.int64(3)])), plain("same")
    (((1, 2), [3]), 'same')
    """
    if isinstance(value, np.generic):
        return value.item()
    return type(value)(map(plain, value)) if isinstance(value, (tuple, list)) else value


def window_options(
    *,
    stride: Sequence[int],
    usual_stride: Sequence[int],
    padding: Any,
    dilation: Sequence[int],
    channels: str,
) -> list[str]:
    """What a layer's description says of its windows beyond their size: all that is not as usual.

    >>> window_options(
    ...     stride=(2, 2), usual_stride=(1, 1), padding="same", dilation=(1, 1), channels="last"
    ... )
    ['stride 2', 'padding same', 'channels last']
    """
    options = []
    if stride != usual_stride:
        options.append(f"stride {_shortly(stride)}")
    if padding not in (0, "valid"):
        options.append(f"padding {padding}")
    if set(dilation) != {1}:
        options.append(f"dilation {_shortly(dilation)}")
    return [*options, "channels last"] if channels == "last" else options


def _shortly(values: Sequence[int]) -> str:
    return by(values if len(set(values)) > 1 else values[:1])
