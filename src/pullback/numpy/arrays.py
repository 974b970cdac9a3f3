"""Traced arrays: what a traced function holds, and may write into.

A node never changes, and equal nodes are one. What a function is given, and what NumPy's functions give it, is a
``TracedArray``: a name for a node. Writing into it (``x[i] = v``, ``x += y``, ``np.add(a, b, out=x)``) makes a node of
the new values and lets the name stand for that, so what was computed before stays as it was. A view, as NumPy's
functions give it, keeps where it comes from: it is read anew after the array has been written into, and what is written
into the view is written into the array.

>>> import numpy as np, pullback as pb
>>> def squares(x):
...     out = np.zeros_like(x)
...     for k in range(len(x)):
...         out[k] = x[k] ** 2
...     out[1:] += out[:-1]
...     return out.sum()
>>> print(pb.grad(squares)(np.array([1.0, 2.0, 3.0])))
[4. 8. 6.]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any

import numpy as np

from pullback.errors import DTypeError, NamedAxisError, ShapeError, TracingError
from pullback.graph import OPERATORS, Detached, Node, is_complex
from pullback.graph.named import LEAST_STAND_IN, sizes_under_way, with_names
from pullback.graph.protocol import vocabulary
from pullback.graph.source import is_users, user_stores
from pullback.graph.values import mode
from pullback.numpy.promotion import (
    as_node,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    settled,
    where_written,
)
from pullback.numpy.sizes import counted

__all__ = ["TracedArray", "any_arrays", "boxed", "laid_like", "named_like", "plain", "plain_all", "to_users"]

View = Callable[[Any], Any]

_stamps = count(1)


class TracedArray(Node):
    """A name for a node, which may come to stand for another; ``node`` is the one it stands for."""

    __slots__ = (
        "_argument",
        "_index",
        "_like",
        "_named",
        "_parent",
        "_place",
        "_seen",
        "_tape",
        "_trace",
        "_type",
        "_version",
        "_view",
    )
    _view: View
    _index: Any
    _seen: int

    def __init__(
        self, node: Node | None, argument: bool = False, tape: Any = None, place: int = -1, type: Any = None
    ) -> None:
        self._named = node
        self._tape = tape
        """Where the value stands that the array is a name for; ``None`` where it is a node that is on no tape."""
        self._place = place
        self._type = type
        self._argument = argument
        self._trace = mode.trace
        self._parent: TracedArray | None = None
        self._like: Sequence[TracedArray] = ()  # what NumPy may lay the array out like
        self._version = 0

    def derived(self, node: Node, view: View, index: Any = None) -> TracedArray:
        """``node``, which is ``view`` of this array where NumPy's function would give a view and not a copy."""
        made = node if type(node) is TracedArray and node._tape is not None else TracedArray(plain(node))
        made._parent, made._view, made._index = self, view, index
        made._seen = self._newest()
        return made

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that the array stands for now."""
        if self._parent is not None and self._parent._newest() != self._seen:
            if self._is_view():
                self._named, self._tape = plain(self._view(self._parent.node)), None
                self._seen = self._parent._newest()
            else:
                self._parent = None
        return self._node

    @property
    def _node(self) -> Node:
        """The node that it has stood for since it was last asked."""
        node = self._named
        if node is None:
            node = self._named = self._tape.node(self._place)
        return node

    def put_on(self, tape: Any, place: int) -> None:
        """Note where the value stands on a tape."""
        self._tape, self._place, self._type = tape, place, self._node.type

    def place_on(self, tape: Any) -> int:
        """The place of the value on this tape; below zero where it is not there."""
        if self._tape is not tape:
            return -1
        if self._parent is not None and self._parent._newest() != self._seen:
            return -1
        return self._place

    def as_read(self) -> Node:
        """A node to read type and value of: of what is on a tape not that of a graph."""
        if self._tape is None or self.place_on(self._tape) < 0:
            return self.node
        return Detached(self._type, np.asarray(self._tape.values[self._place]))

    def as_now(self) -> Node:
        """What it has now, whatever will be written into it: its node, or where there is a tape another name."""
        if self._tape is None or self.place_on(self._tape) < 0:
            return self.node
        return TracedArray(self._named, False, self._tape, self._place, self._type)

    def _newest(self) -> int:
        """When the memory that the array lies in was last written into."""
        return self._version if self._parent is None else self._parent._newest()

    def _places(self) -> np.ndarray:
        """The numbers of the elements in the parent's memory, as NumPy's own function picks them."""
        assert self._parent is not None
        numbers = np.arange(self._parent.size).reshape(self._parent.shape)
        return np.asarray(self._view(numbers))

    def _is_view(self) -> bool:
        """Whether NumPy would give a view; ``TracingError`` where that depends on a layout that is not known."""
        assert self._parent is not None
        answers = set()
        for memory in self._parent._layouts():
            answers.add(bool(np.shares_memory(self._of_memory(memory), memory)) or self._node.size == 0)
        if len(answers) > 1:
            raise TracingError(
                f"this writes into a traced value {self._parent._node.type} of which a reshaped one {self._node.type} "
                "is used: whether NumPy would give a view or a copy depends on how the operands of the first lie in "
                f"memory; say .copy() of one of them{where_written()}"
            )
        return answers.pop()

    def _layouts(self) -> list[np.ndarray]:
        """Arrays that lie in memory as this one may: row by row, or otherwise where it is computed from such arrays."""
        if self._parent is not None and self._is_view():
            return [self._of_memory(memory) for memory in self._parent._layouts()]
        shape = self._node.shape
        rows = np.zeros(shape, np.int8)
        others = any(not _by_rows(memory) for each in self._like for memory in each._layouts())
        return [rows, np.zeros(shape, np.int8, order="F")] if others else [rows]

    def _of_memory(self, memory: np.ndarray) -> np.ndarray:
        """The view of an array that lies in memory as the parent does; where a traced index picks does not matter."""
        if self._index is None or isinstance(self._index, str):
            return np.asarray(self._view(memory))
        parts = [0 if isinstance(each, Node) else each for each in self._index]
        return memory[tuple(parts)]  # type: ignore[no-any-return]

    def assign(self, node: Node) -> None:
        """Let the array stand for ``node``, of its own type, for all its names and views."""
        root = self
        while root._parent is not None and root._is_view():
            root = root._parent
        if root._argument:
            raise TracingError(
                f"this writes into an argument of the traced function, a traced value {self._node.type}, and the "
                "caller's array would not change with it; take a copy first, x = x.copy(), and return what is new"
                f"{where_written()}"
            )
        if root._trace is not mode.trace:
            raise TracingError(
                f"this writes into a traced value {self._node.type} that was made outside the function that is traced "
                "now, which may run many times or not at all; return what is new, and write it outside"
                f"{where_written()}"
            )
        if self is not root:
            assert self._parent is not None
            if not self._of_memory(self._parent._layouts()[0]).flags.writeable:
                raise ValueError(f"assignment destination is read-only, as NumPy's view is{where_written()}")
            self._parent.assign(self._put(self._parent.node, node))
            self._seen = self._parent._newest()
        else:
            self._parent = None
            self._version = next(_stamps)
        self._named, self._tape = node, None

    def _put(self, whole: Node, part: Node) -> Node:
        """The parent's values with those of this view in their places."""
        at = vocabulary["at"]
        if isinstance(self._index, str):
            other = vocabulary["imag" if self._index == "real" else "real"](whole)
            pair = (part, other) if self._index == "real" else (other, part)
            return OPERATORS["complex_of"](*pair)
        if self._index is not None:
            return at(whole)[self._index].set(part).node  # type: ignore[no-any-return]
        flat = plain(vocabulary["reshape"](whole, (whole.size,)))
        return vocabulary["reshape"](at(flat)[self._places()].set(part), whole.shape).node  # type: ignore[no-any-return]

    # -- What a node has

    @property
    def type(self) -> Any:  # type: ignore[override]
        return self.node.type if self._tape is None else self._type

    @property
    def value(self) -> Any:  # type: ignore[override]
        return self.node.value

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        shape: tuple[int, ...] = self.type.shape
        return tuple(map(_shown, shape)) if sizes_under_way() else shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self._refuse("shape")

    @property
    def size(self) -> int:  # type: ignore[override]
        return _shown(self.type.size)  # type: ignore[no-any-return]

    @property
    def inputs(self) -> tuple[Node, ...]:  # type: ignore[override]
        return self.node.inputs

    def __repr__(self) -> str:
        return repr(self.node)

    # -- What writes

    def __setitem__(self, index: Any, value: Any) -> None:  # type: ignore[override]
        if type(value) is TracedArray and value._parent is self and not user_stores():
            raise TracingError(
                f"what is called here moves parts of a traced value {self._node.type} one by one through views of it, "
                "as np.random.shuffle does of what is no array of NumPy's, and would lose some; take them in their new "
                f"order, x = x[rng.permutation(len(x))], or pullback.random.shuffle(key, x){where_written()}"
            )
        index, value, node = plain_all(index), plain_all(value), self.node
        mask = settled(index)
        if (
            isinstance(mask, Node)
            and mask.dtype.kind == "b"
            and mask.shape == node.shape
            and np.ndim(value) == 0
        ):
            made = plain(vocabulary["where"](mask, as_node(value, node.dtype), node))
        else:
            made = plain(vocabulary["at"](node)[index].set(value))
        self.assign(made)

    def write(self, made: Node, what: str) -> TracedArray:
        """Take on the values of ``made``, as ``np.add(a, b, out=x)`` does."""
        node = self.node
        if not np.can_cast(made.dtype, node.dtype, "same_kind"):
            raise DTypeError(f"{what}: values of {made.dtype} into an array of {node.dtype}{where_written()}")
        if broadcast_shapes(what, made.shape, node.shape) != node.shape:
            raise ShapeError(
                f"{what}: values of shape {made.shape} into an array of {node.shape}{where_written()}"
            )
        self.assign(broadcast_to_shape(cast(made, node.dtype), node.shape))
        return self

    @property
    def real(self) -> TracedArray:
        """The real part; of complex numbers a view."""
        return self._part("real")

    @real.setter
    def real(self, value: Any) -> None:
        self._part("real")[...] = value

    @property
    def imag(self) -> TracedArray:
        """The imaginary part; of complex numbers a view, of others zeros."""
        return self._part("imag")

    @imag.setter
    def imag(self, value: Any) -> None:
        if not is_complex(self.node.dtype):
            raise TypeError(f"{self.node.type} has no imaginary part to write into{where_written()}")
        self._part("imag")[...] = value

    def _part(self, name: str) -> TracedArray:
        found = vocabulary[name](self.node)
        if is_complex(self.node.dtype):
            return self.derived(found, lambda x: vocabulary[name](x) if isinstance(x, Node) else x, name)
        return self.derived(found, lambda x: x) if name == "real" else TracedArray(found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return vocabulary["attribute"](self.node, name)  # which tells what there is


def _by_rows(memory: np.ndarray) -> bool:
    """Whether what NumPy computes of an array lies row by row: its longer steps come first."""
    steps = [abs(step) for step, n in zip(memory.strides, memory.shape) if n > 1]
    return all(a > b for a, b in pairwise(steps)) and 0 not in steps


def plain(x: Any) -> Any:
    """The node that a traced array stands for; anything else as it is."""
    return x.node if type(x) is TracedArray else x


def any_arrays(values: Any) -> bool:
    """Whether a traced array is among ``values``, or in the lists and tuples among them."""
    return any(type(x) is TracedArray or (isinstance(x, (list, tuple)) and any_arrays(x)) for x in values)


def plain_all(x: Any) -> Any:
    """``plain`` of everything in lists, tuples, dicts and slices."""
    kind = type(x)
    if kind is TracedArray:
        return x.node
    if kind is tuple or kind is list:
        return kind([plain_all(each) for each in x])
    if kind is dict:
        return {key: plain_all(each) for key, each in x.items()}
    if kind is slice:
        return slice(plain_all(x.start), plain_all(x.stop), plain_all(x.step))
    return x


def _shown(extent: int) -> Any:
    """An extent; that of a named axis as the traced number that it is."""
    if extent < LEAST_STAND_IN:
        return extent
    found = counted(extent)
    if found is None:
        raise NamedAxisError(
            f"{with_names(extent)} depends on the size of a named axis in a way that no program can follow; give an "
            f"argument that counts it{where_written()}"
        )
    return TracedArray(found)


def to_users(extents: Any) -> Any:
    """What a node says of its extents: those of named axes are traced numbers to users, not to this library."""
    if not is_users(sys._getframe(2).f_code.co_filename):
        return extents
    return tuple(map(_shown, extents)) if isinstance(extents, tuple) else _shown(extents)


def boxed(x: Any, operands: Sequence[Any] = ()) -> Any:
    """Traced arrays for the nodes in a result, which NumPy may lay out like one of its ``operands``."""
    if type(x) is int:
        return _shown(x)
    if isinstance(x, Node):
        return x if type(x) is TracedArray else named_like(x, operands)
    if isinstance(x, (list, tuple)) and any(isinstance(each, (Node, list, tuple, int)) for each in x):
        parts = [boxed(each, operands) for each in x]
        return x._make(parts) if hasattr(x, "_make") else type(x)(parts)
    return x


def named_like(x: Node, operands: Sequence[Any]) -> TracedArray:
    """A traced array for a node, which NumPy may lay out like one of its ``operands``."""
    return laid_like(TracedArray(x), operands)


def laid_like(made: TracedArray, operands: Sequence[Any]) -> TracedArray:
    """``made``, of which is noted that NumPy may lay it out like one of its ``operands``."""
    for each in operands:
        if type(each) is TracedArray and (each._parent is not None or each._like):
            made._like = [*made._like, each]
    return made
