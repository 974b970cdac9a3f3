"""Python's operators on detached values: what derivative rules write as ``g * (1 - y * y)`` is computed at once.

Only what needs neither promotion nor broadcasting is done here, in the way that the operators' references do it; all
else goes the way of other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.graph import Detached, Node, Operation, force
from pullback.graph.protocol import ArrayProtocol

__all__: list[str] = []


def _binary(name: str, ufunc: np.ufunc) -> Callable[[Detached, Any], Node]:
    general = getattr(ArrayProtocol, name)
    swapped, product = name.startswith("__r"), ufunc is np.multiply

    def called(self: Detached, other: Any) -> Node:
        type_, kind = self.type, type(other)
        if kind is Detached or kind is Operation:
            met = other.type
            if met is not type_ and (met.dtype is not type_.dtype or met.shape != type_.shape):
                return general(self, other)  # type: ignore[no-any-return]
            if (
                product and kind is Operation and other.operator.name == "broadcast"
            ):  # a factor that rules look for
                return general(self, other)  # type: ignore[no-any-return]
            if type_.weak:
                type_ = met
            other = force(other)
        elif (kind is not float and kind is not int) or (product and type_.shape):
            return general(self, other)  # type: ignore[no-any-return]
        if type_.dtype.kind != "f":
            return general(self, other)  # type: ignore[no-any-return]
        value = ufunc(other, self.value) if swapped else ufunc(self.value, other)
        return Detached(type_, value if type_.shape else np.asarray(value))

    return called


def _negative(self: Detached) -> Node:
    type_ = self.type
    if type_.dtype.kind != "f":
        return ArrayProtocol.__neg__(self)
    value = np.negative(self.value)
    return Detached(type_, value if type_.shape else np.asarray(value))


for _name, _ufunc in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide}.items():
    for _method in (f"__{_name}__", f"__r{_name}__"):
        setattr(Detached, _method, _binary(_method, _ufunc))
setattr(Detached, "__neg__", _negative)  # noqa: B010  (mypy knows no methods that are set)
