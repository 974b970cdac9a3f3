"""Modules: plain data that can be called; a module's arrays are its parameters, and it is a tree."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from pullback.keywords import tells_keywords
from pullback.tracing import buffer, flatten, static

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # it only tells type checkers what __init_subclass__ does

    def dataclass_transform(**_):
        return lambda cls: cls


__all__ = ["Module", "describe_parameters", "parameter_bytes", "parameter_count"]


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field, static, buffer))
class Module:
    """The base of layers and models: a subclass becomes a dataclass whose array fields are its parameters.

    Give it fields and ``__call__``. Arrays and floats in the fields, also inside lists, dicts and other
    modules, are parameters; integers, strings and functions belong to its structure, as does a float made by
    ``pb.static()``. The arrays of a field made by ``pb.buffer()`` are data without being parameters. A
    gradient with respect to a module is a module of the same kind. Called on NumPy arrays a module computes
    at once; inside ``pb.jit`` and ``pb.grad`` it is traced.

    >>> import numpy as np
    >>> from pullback import grad, nn
    >>> class Residual(nn.Module):
    ...     inner: nn.Dense
    ...     def __call__(self, x):
    ...         return x + self.inner(x)
    >>> model = Residual(nn.Dense(3, 3, initialiser=nn.initialisers.zeros))
    >>> model
    Residual(
      inner: Dense(3 → 3),  # 12 parameters, 48 bytes
    )  # 12 parameters, 48 bytes
    >>> grad(lambda model: model(np.ones(3, np.float32)).sum())(model).inner.bias
    array([1., 1., 1.], dtype=float32)
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        written = "__init__" in cls.__dict__
        inherited = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        # Compared by identity: equality of arrays has no single truth value.
        dataclasses.dataclass(eq=False, repr=False)(cls)
        if not written and dataclasses.fields(cls) == inherited:  # type: ignore[arg-type]
            del cls.__init__  # without fields of its own a class is made as its base is
        else:
            cls.__init__ = tells_keywords(cls.__init__)  # type: ignore[method-assign]

    def describe(self) -> str:
        """The module in one line, without its parameters; layers say their sizes here."""
        return type(self).__name__

    def parts(self) -> dict[str, Any]:
        """What the printer lists under the module: by default its fields, and what else it has been given, when one
        of them is a module.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        fields |= {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return fields if any(_holds_module(value) for value in fields.values()) else {}

    def __repr__(self) -> str:
        return "\n".join(_lines(self))


def parameter_count(tree: Any) -> int:
    """How many numbers the parameters in ``tree`` are; the arrays of a ``pb.buffer()`` are none.

    >>> from pullback import nn
    >>> parameter_count(nn.Dense(196, 64))
    12608
    """
    leaves, structure = flatten(tree)
    return sum(_size(leaf) for leaf, trained in zip(leaves, structure.trained) if trained)


def parameter_bytes(tree: Any) -> int:
    """How many bytes the arrays of ``tree`` take, parameters and buffers.

    >>> from pullback import nn
    >>> parameter_bytes(nn.Dense(196, 64))
    50432
    """
    return sum(
        _size(leaf) * (leaf.dtype.itemsize if hasattr(leaf, "dtype") else 8) for leaf in flatten(tree)[0]
    )


def describe_parameters(tree: Any) -> str:
    """``17,354 parameters, 69.4 kB``; with buffers, ``6 parameters, 48 bytes with what is fixed``.

    >>> from pullback import nn
    >>> describe_parameters(nn.Dense(196, 64))
    '12,608 parameters, 50.4 kB'
    """
    count, size = parameter_count(tree), float(parameter_bytes(tree))
    unit = "bytes"
    for larger in ("kB", "MB", "GB"):
        if size >= 1000:
            size, unit = size / 1000, larger
    fixed = "" if all(flatten(tree)[1].trained) else " with what is fixed"
    return f"{count:,} parameters, {f'{size:.0f}' if unit == 'bytes' else f'{size:.1f}'} {unit}{fixed}"


def _size(leaf: Any) -> int:
    return math.prod(getattr(leaf, "shape", ()))


def _holds_module(value: Any) -> bool:
    parts = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else ()
    return isinstance(value, Module) or any(_holds_module(part) for part in parts)


def _lines(module: Module) -> list[str]:
    """A module as lines, each with what it holds at its end."""
    parts = module.parts()
    note = f"  # {describe_parameters(module)}" if parameter_bytes(module) else ""
    if not parts:
        head = _head(module)
        return [f"{head if head.endswith(')') else f'{head}()'}{note}"]
    lines = [f"{_head(module)}("]
    for name, part in parts.items():
        label = "" if name.isdigit() else f"{name}: "
        shown = _lines(part) if isinstance(part, Module) else [_brief(part)]
        code, hash_sign, comment = shown[-1].partition("  # ")
        shown[-1] = f"{code},{hash_sign}{comment}"
        shown[0] = label + shown[0]
        lines += [f"  {line}" for line in shown]
    return [*lines, f"){note}"]


def _head(module: Module) -> str:
    """What the module says of itself; its class where it holds something else than arrays of a layer's shapes, as in an
    optimiser's state.
    """
    try:
        return module.describe()
    except (AttributeError, IndexError, TypeError, ValueError):
        return type(module).__name__


def _brief(value: Any) -> str:
    """A field that is no module: an array by its type, a function by its name."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if callable(value):
        return str(getattr(value, "__name__", value))
    return repr(value)
