"""NumPy's functions and methods that write into a traced array: the new values, which its name then stands for.

>>> import numpy as np, pullback as pb
>>> def f(x):
...     y = np.zeros_like(x, shape=(2, 2))
...     np.put(y, [0, 3], x)
...     np.putmask(y, y > 2, y * 10)
...     y.flat[1] = x[0]
...     return y
>>> print(pb.jit(f)(np.array([1.0, 3.0])))
[[ 1.  1.]
 [ 0. 30.]]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError, TracingError
from pullback.graph import Node
from pullback.graph.protocol import vocabulary
from pullback.numpy.arrays import TracedArray, plain, plain_all
from pullback.numpy.promotion import any_traced, as_array_node, as_node, cast, settled, type_of, where_written

__all__ = ["IN_PLACE", "WITH_OUT", "WRITES", "masked", "names_each_once"]

WITH_OUT = frozenset(
    (
        *("all", "any", "argmax", "argmin", "choose", "clip", "compress", "cumprod", "cumsum", "dot", "max"),
        *("mean", "min", "prod", "round", "std", "sum", "take", "trace", "var"),
    )
)
"""The methods of NumPy's arrays that take ``out=``."""


def masked(made: Any, where: Any, out: Any, what: str) -> Any:
    """The results of a ufunc where ``where`` is true, elsewhere what ``out`` holds already."""
    if where is True:
        return made
    kept = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if type(kept) is not TracedArray or isinstance(made, tuple):
        raise TracingError(
            f"{what} with where= of a traced value leaves elements as out= has them, which has to be one traced array: "
            f"out=np.zeros_like(x), or write np.where(mask, {what}(...), other){where_written()}"
        )
    return vocabulary["where"](where, made, kept.node)


def names_each_once(x: TracedArray, index: Any) -> bool:
    """Whether an index is known, and names no element of ``x`` twice."""
    index = settled(plain_all(index))
    if any_traced(index):
        return False
    numbers = np.arange(x.node.size).reshape(x.node.shape)[index]
    return np.unique(numbers).size == np.size(numbers)


def _fill(x: TracedArray, value: Any) -> None:
    x[...] = value


def _sort(x: TracedArray, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    x.write(plain(vocabulary["sort"](x.node, axis, kind, order, stable=stable)), "sort")


def _partition(
    x: TracedArray, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None
) -> None:
    x.write(plain(vocabulary["partition"](x.node, plain_all(kth), axis, kind, order)), "partition")


def _resize(x: TracedArray, *shape: Any, refcheck: bool = True) -> None:
    raise TracingError(
        f"x.resize would change the memory of {x.node.type}, and traced values never change their shape; write "
        f"y = x.reshape(shape), or y = np.resize(x, shape), which repeats what there is{where_written()}"
    )


def _copyto(dst: TracedArray, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    node, source = dst.node, plain_all(src)
    if not isinstance(src, (bool, int, float, complex)):
        dtype = type_of(source).dtype
        if not np.can_cast(dtype, node.dtype, casting):
            raise DTypeError(
                f"np.copyto: values of {dtype} into an array of {node.dtype} by casting={casting!r}{where_written()}"
            )
    taken = source if where is True else vocabulary["where"](plain_all(where), source, node)
    dst.write(as_node(plain(taken), node.dtype), "np.copyto")


def _of_new(name: str) -> Callable[..., None]:
    def called(x: TracedArray, *arguments: Any, **keywords: Any) -> None:
        x.write(plain(vocabulary[name](x.node, *plain_all(arguments), **plain_all(keywords))), f"np.{name}")

    return called


# -- elements by their places in the flat array


def _flat(x: Any) -> Node:
    node = as_array_node(plain_all(x))
    return plain(vocabulary["reshape"](node, (node.size,)))  # type: ignore[no-any-return]


def _repeated(values: Node, places: Any) -> Any:
    """The values at ``places``, again from the first one where there are fewer."""
    if values.size == 1:
        return vocabulary["reshape"](values, ())
    return values[vocabulary["remainder"](places, values.size)]


def _write_flat(a: TracedArray, index: Any, values: Any) -> None:
    node = a.node
    made = vocabulary["at"](_flat(node))[index].set(values)
    a.assign(plain(vocabulary["reshape"](plain(made), node.shape)))


def _put(a: TracedArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """``a.flat[ind] = v``, the values again from the first one where there are fewer."""
    index, values, size = _flat(ind), _flat(v), a.node.size
    if index.size and index.dtype.kind not in "iu":
        raise DTypeError(
            f"np.put: an index of {index.dtype}; cast it with .astype(np.int64){where_written()}"
        )
    if mode not in ("raise", "wrap", "clip"):
        raise TracingError(f"np.put in mode {mode!r}; use 'raise', 'wrap' or 'clip'{where_written()}")
    if not index.size or not values.size:
        return
    count = index.size
    places: Any = plain_all(ind)
    places = index if isinstance(places, Node) else np.asarray(places).reshape(-1)
    if mode == "wrap":
        places = vocabulary["remainder"](places, size)
    elif mode == "clip":
        places = vocabulary["clip"](places, 0, size - 1)
    values = values[:count] if values.size > count else values
    chosen = values if values.size == count else _repeated(values, np.arange(count))
    _write_flat(a, plain(places), cast(plain(chosen), a.node.dtype))


def _same_size(name: str, a: TracedArray, mask: Any) -> Node:
    """A mask in the shape of the array, as NumPy reads it: element by element."""
    node = as_array_node(plain_all(mask))
    if node.size != a.node.size:
        raise ShapeError(
            f"np.{name}: a mask of shape {node.shape} for an array of shape {a.node.shape}; give it as many elements"
            f"{where_written()}"
        )
    return plain(vocabulary["not_equal"](vocabulary["reshape"](node, a.node.shape), 0))  # type: ignore[no-any-return]


def _choose(a: TracedArray, mask: Node, values: Any) -> None:
    node = a.node
    whole = cast(
        plain(vocabulary["reshape"](plain(values), node.shape)) if values.ndim else values, node.dtype
    )
    a.assign(plain(vocabulary["where"](mask, whole, node)))


def _place(arr: TracedArray, mask: Any, vals: Any) -> None:
    """The first value where the mask is true first, the second where it is next, and again from the first one."""
    chosen, values = _same_size("place", arr, mask), _flat(vals)
    if not values.size:
        raise ValueError(f"np.place: no values to insert; give one or more{where_written()}")
    rank = vocabulary["cumsum"](vocabulary["astype"](_flat(chosen), np.int64)) - 1
    _choose(arr, chosen, _repeated(values, vocabulary["maximum"](rank, 0)))


def _putmask(a: TracedArray, mask: Any, values: Any) -> None:
    """``a.flat[k] = values[k]`` where the mask is true, the values again from the first one where there are fewer."""
    chosen, given = _same_size("putmask", a, mask), _flat(values)
    if not given.size:
        return
    if not np.can_cast(given.dtype, a.node.dtype, "same_kind"):
        raise DTypeError(
            f"np.putmask: values of {given.dtype} into an array of {a.node.dtype}{where_written()}"
        )
    size = a.node.size
    whole = given[:size] if given.size >= size > 1 else _repeated(given, np.arange(size))
    _choose(a, chosen, whole)


class _Flat:
    """``x.flat``: the elements one after the other, to be read and written."""

    def __init__(self, array: TracedArray) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> TracedArray:
        return TracedArray(plain(_flat(self._array)[plain_all(index)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        index, values = plain_all(index), _flat(value)
        count = math.prod(_flat(self._array)[index].shape)
        if not count or not values.size:
            return
        shape = _flat(self._array)[index].shape
        values = values[:count] if values.size > count else values
        chosen = values if values.size == count else _repeated(values, np.arange(count))
        chosen = plain(chosen)
        chosen = plain(vocabulary["reshape"](chosen, shape)) if chosen.ndim else chosen
        _write_flat(self._array, index, cast(chosen, self._array.node.dtype))

    def __len__(self) -> int:
        return int(self._array.size)

    def __iter__(self) -> Iterator[TracedArray]:
        return iter([self[k] for k in range(len(self))])


def _get_flat(x: TracedArray) -> _Flat:
    return _Flat(x)


def _set_flat(x: TracedArray, value: Any) -> None:
    _Flat(x)[:] = value


TracedArray.flat = property(_get_flat, _set_flat)  # type: ignore[attr-defined]

IN_PLACE: dict[str, Callable[..., Any]] = {
    "fill": _fill,
    "partition": _partition,
    "put": _put,
    "resize": _resize,
    "sort": _sort,
}
"""Methods that write."""

WRITES: dict[str, Callable[..., Any]] = {
    "copyto": _copyto,
    "fill_diagonal": _of_new("fill_diagonal"),
    "place": _place,
    "put": _put,
    "put_along_axis": _of_new("put_along_axis"),
    "putmask": _putmask,
}
"""NumPy's functions that write into their first argument."""
