"""How layers with windows describe themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["by", "window_options"]


def by(sizes: Sequence[int]) -> str:
    """Sizes in one text.

    >>> by((3, 5)), by((3,))
    ('3 × 5', '3')
    """
    return " × ".join(map(str, sizes))


def window_options(
    *, stride: Sequence[int], padding: Any, dilation: Sequence[int], channels: str
) -> Iterator[str]:
    """What a layer's description says of its windows beyond their size.

    >>> list(window_options(stride=(2, 2), padding="same", dilation=(1, 1), channels="last"))
    ['stride 2', 'padding same', 'channels last']
    """
    for name, values in (("stride", stride), ("dilation", dilation)):
        if set(values) != {1}:
            yield f"{name} {by(values[:1] if len(set(values)) == 1 else values)}"
        if name == "stride" and padding not in (0, "valid"):
            yield f"padding {padding}"
    if channels == "last":
        yield "channels last"
