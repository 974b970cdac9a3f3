"""Models in files: the arrays of any tree, named by their paths, in the safetensors format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pullback.errors import TreeError
from pullback.io.tensors import load_tensors, save_tensors
from pullback.tracing import flatten

__all__ = ["load", "save"]

_ROOT = "value"  # the name of a tree that is one array


def save(tree: Any, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write the arrays of ``tree``, such as a model, to the safetensors file ``path``, whole or not at all.

    An array's name is its path: ``layers.1.weight``. Only arrays are stored; sizes, functions and whatever
    else is structure come from the program that loads them.

    Raises ``TreeError`` for a tree without arrays or with two paths of one spelling, ``OutputError`` when the
    file cannot be written.

    >>> import tempfile
    >>> from pullback import nn
    >>> model = nn.Chain(nn.Dense(2, 3, seed=0), nn.relu)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.safetensors")
    ...     print(sorted(load(f"{folder}/model.safetensors")))
    ...     again = load(f"{folder}/model.safetensors", like=nn.Chain(nn.Dense(2, 3), nn.relu))
    ['layers.0.bias', 'layers.0.weight']
    >>> (again[0].weight == model[0].weight).all()
    np.True_
    """
    if isinstance(tree, (str, os.PathLike)):
        raise TreeError(
            f"[save] the tree is {tree!r}. The file's name comes second: save(model, {os.fspath(tree)!r})."
        )
    save_tensors(path, _named(tree), metadata)


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Read what ``save`` wrote: a tree of the structure of ``like``, or without it a dict of arrays by name.

    ``like`` is a tree with the same names, shapes and dtypes, such as a model made anew; it is left as it is.

    Raises ``DataError`` when the file is missing, truncated or damaged, and when it does not fit ``like``,
    naming every array that is missing, unexpected or of another shape or dtype.
    """
    if like is None:
        return load_tensors(path)
    wanted = _named(like)
    tensors = load_tensors(path, wanted)
    return flatten(like)[1].unflatten([tensors[name] for name in wanted])


def _named(tree: Any) -> dict[str, Any]:
    """The leaves of ``tree`` by their paths, in the order of its structure."""
    leaves, structure = flatten(tree)
    names = [name or _ROOT for name in structure.paths]
    if not names:
        raise TreeError("[save] the tree has no arrays. Give a model, or any nesting of arrays.")
    for name in names:
        if names.count(name) > 1:
            raise TreeError(f"[save] two arrays are named {name!r}. Rename a key of a dict on their way.")
    return dict(zip(names, leaves))
