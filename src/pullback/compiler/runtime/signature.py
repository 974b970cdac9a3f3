"""What a program is called with and what it returns, as the records that compiled code goes by.

A program may have several: its arguments one by one, trees of them, the arguments of a run of many steps. All lead to
the same context, which one call at a time may use; the records that a call writes are its own as long as it has it.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.compiler.llvm.language import Record
from pullback.compiler.runtime.memory import MappedMemory
from pullback.compiler.runtime.nodes import Node, write_node
from pullback.compiler.runtime.reading import (
    ALIGNED,
    C_CONTIGUOUS,
    PYTHON_NUMBERS,
    SPEC,
    WRITEABLE,
    numpy_scalar,
)
from pullback.graph import Type

__all__ = ["DESCRIPTOR", "Signature", "Trees", "flat", "numpy_function"]

DESCRIPTOR = Record(
    CONTEXT="Context",
    ARGUMENTS="i64",  # how many
    RESULTS="i64",
    IS_RUN="i64",  # 1 if a run of steps is called for: the number of steps done is returned as well
    ARRAY_TYPE="ptr",  # numpy.ndarray
    NEW_ARRAY="ptr",  # PyArray_NewFromDescr
    NEW_SCALAR="ptr",  # PyArray_Scalar
    NEW_OBJECT="ptr",  # object.__new__
    NO_ARGUMENTS="ptr",  # an empty tuple
    FAILED="ptr",  # a callable that raises what the failure record says
    SHOWN="ptr",  # a callable of an exception, which raises it as the caller is to see it, or null
    FLOAT_TYPE="ptr",
    DONATED="i64",  # how many arguments are donated
    SPECS="Spec",  # the records of arguments, and behind them those of results
    TAKEN="Node",  # of the tuple of positional arguments
    KEYWORDS="Node",  # of the dict of keywords
    MADE="Node",  # of the results
    FIRST="Spec",  # the record of the first positional argument if that is no tree, else null
    KEPT="Kept",  # memory for results, see ``recycling.py``
)

_STORAGE_BYTES = 32

_NEW_SCALAR, _NEW_FROM_DESCR = (
    60,
    94,
)  # places in NumPy's table of functions, fixed for all versions 1.x and 2.x
# The numbers of a type's functions for memory of new instances, and for new instances, in Python's stable interface.
_TP_ALLOC, _TP_NEW = 47, 65


@dataclass(frozen=True)
class Trees:
    """What is compared with the positional arguments and with the dict of keywords, and what is built of results."""

    taken: Node
    keywords: Node
    made: Node


def flat(arguments: int, results: int) -> Trees:
    """Arguments one by one, and a tuple of results."""
    taken, made = (
        Node("TUPLE", tuple, tuple(Node("LEAF", value=number) for number in range(count)))
        for count in (arguments, results)
    )
    return Trees(taken, Node("DICT", dict), made)


@dataclass(eq=False)
class Signature:
    """The records of one way to call a program; ``address`` is that of its descriptor."""

    owner: Any
    """What holds the context and the program, and all that a call needs."""
    trees: Trees
    shown: Callable[[BaseException], None] | None = None
    weak: Sequence[bool] | None = None
    """Of each argument whether it is a Python number, or none; either is taken where this is not said."""
    scalars: Collection[int] = ()
    """Results that are NumPy's scalars rather than arrays."""
    sliced: Collection[int] | None = None
    """In a run of steps the arguments that have a first axis of steps; all results have one that are not carried."""
    address: int = field(init=False)

    def __post_init__(self) -> None:
        self._memory = memory = MappedMemory(mmap.PAGESIZE)
        program = self.owner.program
        arguments, results = program.arguments, program.results  # the records have addresses of their dtypes
        records = [self._argument(k, spec) for k, spec in enumerate(arguments)]
        records += [self._result(k, spec) for k, spec in enumerate(results)]
        places = memory.records(SPEC, records)
        given, made = places[: len(arguments)], places[len(arguments) :]
        trees = self.trees
        first = trees.taken.parts[0] if trees.taken.parts else None
        self.address = memory.reserve(DESCRIPTOR.size)
        values = {
            "CONTEXT": self.owner.context,
            "KEPT": self.owner.kept,
            "ARGUMENTS": len(arguments),
            "RESULTS": len(results),
            "IS_RUN": int(self.sliced is not None),
            "ARRAY_TYPE": id(np.ndarray),
            "NEW_ARRAY": numpy_function(_NEW_FROM_DESCR),
            "NEW_SCALAR": numpy_function(_NEW_SCALAR),
            "NEW_OBJECT": _type_slot(object, _TP_NEW),
            "NO_ARGUMENTS": id(()),
            "FAILED": id(self.owner.failed),
            "SHOWN": 0 if self.shown is None else id(self.shown),
            "FLOAT_TYPE": id(float),
            "DONATED": len(program.donated),
            "SPECS": given.start,
            "TAKEN": write_node(memory, trees.taken, given),
            "KEYWORDS": write_node(memory, trees.keywords, given),
            "MADE": write_node(memory, trees.made, made),
            "FIRST": given[first.value] if first is not None and first.kind == "LEAF" else 0,
        }
        memory.write(self.address, DESCRIPTOR, values)

    def _argument(self, number: int, spec: Type) -> dict[str, int]:
        donated = number in self.owner.program.overwritten
        weak = None if self.weak is None else self.weak[number]
        sliced = self.sliced is not None and number in self.sliced
        single = not donated and not spec.shape and not sliced
        number_class = PYTHON_NUMBERS.get(spec.dtype.name) if single and weak is not False else None
        return {
            **self._array(spec, sliced, numpy_scalar(spec.dtype) if single and not weak else None),
            **({"RANK": -1} if weak else {}),
            "FLAGS": C_CONTIGUOUS | ALIGNED | (WRITEABLE if donated else 0),
            "PYTHON": 0 if number_class is None else id(number_class),
            "STORAGE": self._memory.put((0,)),
            "DONATED": int(donated),
        }

    def _result(self, number: int, spec: Type) -> dict[str, int]:
        alias = self.owner.program.donated.get(number, -1)
        storage, scalar = 0, None
        if number in self.scalars:
            storage = self._memory.reserve(_STORAGE_BYTES, _STORAGE_BYTES)
            scalar = None if spec.dtype.kind == "b" else numpy_scalar(spec.dtype)  # there are two bools only
        return {
            **self._array(spec, self.sliced is not None and alias < 0, scalar),
            "ALIAS": alias,
            "STORAGE": storage,
            "ALLOCATE": 0 if scalar is None else _type_slot(scalar, _TP_ALLOC),
        }

    def _array(self, spec: Type, sliced: bool, scalar: type | None) -> dict[str, int]:
        """What the records of arguments and of results say of the array, or of the NumPy scalar in its place."""
        shape = (0, *spec.shape) if sliced else spec.shape
        return {
            "DTYPE": id(spec.dtype),
            "RANK": len(shape),
            "SHAPE": self._memory.put(shape),
            "SLICED": int(sliced),
            "STRIDE": spec.nbytes if sliced else 0,
            "BYTES": spec.nbytes,
            "SCALAR": 0 if scalar is None else id(scalar),
        }


def numpy_function(place: int) -> int:
    """The address of a function in NumPy's table of them."""
    capsule = np._core.multiarray._ARRAY_API  # type: ignore[attr-defined]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get(capsule, None)
    return int(ctypes.c_int64.from_address(table + 8 * place).value)


def _type_slot(cls: type, slot: int) -> int:
    """The address of the function that a class has for something."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(
        ("PyType_GetSlot", ctypes.pythonapi)
    )
    return int(get(cls, slot))
