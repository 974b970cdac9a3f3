"""Trees of arguments and results as compiled code walks them: what is compared, and what is built.

A tree is described by nodes, plain records in memory. ``match`` goes through the arguments along the nodes: each
container must be of the very class, with the very keys or names in the very order, each value that is static the very
same object or an equal string or number, and each leaf what its argument's record says. So a tree matches only if
Python would find the same structure in it; of one that does not, Python is asked. ``build`` makes the tree of results.

No code of the user's runs in between but what the garbage collector calls, and whatever that does to the containers,
objects that are looked at are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.compiler.llvm.language import Record
from pullback.compiler.runtime.memory import MappedMemory

__all__ = ["KINDS", "NODE", "WALKING", "Node", "static_node", "write_node"]

NODE = Record(
    KIND="i64",
    TYPE="ptr",  # the class that an object must have, or that is made
    COUNT="i64",  # parts
    PARTS="Node",  # their nodes, side by side; of a dict that is matched, of each key and each value
    NAMES="Pointers",  # names of fields, or the keys of a dict
    VALUE="ptr",  # the record of a leaf, the object that is static, the function that is called
)
KINDS = ("LEAF", "SAME", "EQUAL", "TUPLE", "LIST", "DICT", "FIELDS", "SLOTS", "CALLED")


@dataclass(frozen=True)
class Node:
    """What an object is compared with, or what is made, by its ``kind``.

    - ``LEAF``: an argument or a result, whose number is the ``value``,
    - ``SAME``: the ``value`` itself, ``EQUAL``: one of the same class that is equal,
    - ``TUPLE``, ``LIST``: of the ``parts``; a class of tuples can be matched only,
    - ``DICT``: with the keys ``names``; to be matched its parts are each key and each value, to be made the values,
    - ``FIELDS``, ``SLOTS``: an object with attributes of these ``names``, and no other, in its dict or elsewhere,
    - ``CALLED``: what the ``value``, a Python function, makes of the tuple of the parts; nothing that can be matched.
    """

    kind: str
    cls: type | None = None
    parts: tuple[Node, ...] = ()
    names: tuple[Any, ...] = ()
    value: Any = None


def static_node(value: Any) -> Node:
    """What matches a static value; tuples are compared element by element.

    An equal float is another one if it is zero, whose sign counts, and NaN is equal to none.
    """
    cls = type(value)
    if cls is tuple:
        return Node("TUPLE", tuple, tuple(map(static_node, value)))
    plain = cls in (str, bytes, int) or (cls is float and value != 0)
    return Node("EQUAL" if plain else "SAME", cls, value=value)


def write_node(memory: MappedMemory, node: Node, leaves: Sequence[int], at: int | None = None) -> int:
    """Write a tree to be matched, or to be built; the address of its root.

    ``leaves`` are the addresses of the records of arguments, or results. Whoever has the memory must keep the node,
    too: it holds the objects whose addresses are written.
    """
    at = memory.reserve(NODE.size, 8) if at is None else at
    places = memory.reserve(NODE.size * len(node.parts), 8)
    for k, part in enumerate(node.parts):
        write_node(memory, part, leaves, places + NODE.size * k)
    values = {
        "KIND": KINDS.index(node.kind),
        "TYPE": id(node.cls),
        "COUNT": len(node.names) or len(node.parts),
        "PARTS": places,
        "NAMES": memory.put([id(name) for name in node.names]),
        "VALUE": leaves[node.value] if node.kind == "LEAF" else id(node.value),
    }
    memory.write(at, NODE, values)
    return at


WALKING = """
# Whether an object is there, and what a node says. Arguments that were met are held, whatever the answer.
def match(descriptor: Descriptor, node: Node, object: Object) -> i1:
    if object is None:
        PyErr_Clear()
        return False
    kind = node.KIND
    if kind == KIND_LEAF:
        spec: Spec = node.VALUE
        if not read_argument(descriptor, spec, object):
            return False
        Py_IncRef(object)
        spec.OBJECT = object
        return True
    if kind == KIND_SAME:
        return object == node.VALUE
    if kind == KIND_EQUAL:
        return object == node.VALUE or (object.TYPE == node.TYPE and equals(object, node.VALUE))
    if object.TYPE != node.TYPE:
        return False
    Py_IncRef(object)
    if kind == KIND_DICT:
        fits = match_pairs(descriptor, node, object)
    elif kind == KIND_FIELDS:
        fits = match_fields(descriptor, node, object)
    elif kind == KIND_SLOTS:
        fits = match_slots(descriptor, node, object)
    else:
        fits = match_items(descriptor, node, object)
    Py_DecRef(object)
    return fits

def equals(object: ptr, value: ptr) -> i1:
    outcome = PyObject_RichCompareBool(object, value, 2)
    PyErr_Clear()
    return outcome == 1

def match_items(descriptor: Descriptor, node: Node, object: Object) -> i1:
    is_list = node.KIND == KIND_LIST
    if is_list:
        size = PyList_Size(object)
    else:
        size = PyTuple_Size(object)
    if size != node.COUNT:
        return False
    for index in range(size):
        if is_list:
            item = PyList_GetItem(object, index)
        else:
            item = PyTuple_GetItem(object, index)
        if not match(descriptor, node.PARTS[index], item):
            return False
    return True

def match_pairs(descriptor: Descriptor, node: Node, object: Object) -> i1:
    position: Words = reserve(8)
    key: Pointers = reserve(8)
    value: Pointers = reserve(8)
    position[0] = 0
    if PyDict_Size(object) != node.COUNT:
        return False
    for index in range(node.COUNT):
        if PyDict_Next(object, position, key, value) == 0:
            return False
        if not match(descriptor, node.PARTS[2 * index], key[0]):
            return False
        if not match(descriptor, node.PARTS[2 * index + 1], value[0]):
            return False
    return True

def match_fields(descriptor: Descriptor, node: Node, object: Object) -> i1:
    own = PyObject_GenericGetDict(object, None)
    if own is None:
        PyErr_Clear()
        return False
    fits = PyDict_Size(own) == node.COUNT
    index = 0
    while fits and index < node.COUNT:
        fits = match(descriptor, node.PARTS[index], PyDict_GetItemWithError(own, node.NAMES[index]))
        index += 1
    Py_DecRef(own)
    return fits

def match_slots(descriptor: Descriptor, node: Node, object: Object) -> i1:
    for index in range(node.COUNT):
        item = PyObject_GetAttr(object, node.NAMES[index])
        if item is not None:
            Py_DecRef(item)  # the slot has it
        if not match(descriptor, node.PARTS[index], item):
            return False
    return True

# The tree of results that a node says, or null with Python's error set.
def build(descriptor: Descriptor, node: Node) -> Object:
    kind = node.KIND
    if kind == KIND_LEAF:
        spec: Spec = node.VALUE
        object = spec.OBJECT
        spec.OBJECT = None
        return object
    if kind == KIND_SAME or kind == KIND_EQUAL:
        Py_IncRef(node.VALUE)
        return node.VALUE
    if kind == KIND_LIST:
        made = PyList_New(node.COUNT)
    elif kind == KIND_DICT:
        made = PyDict_New()
    elif kind == KIND_FIELDS or kind == KIND_SLOTS:
        # by object.__new__, not by the constructor: a tree is rebuilt as it was
        made = call(Object, descriptor.NEW_OBJECT, node.TYPE, descriptor.NO_ARGUMENTS, None)
    else:
        made = PyTuple_New(node.COUNT)
    if made is None:
        return None
    for index in range(node.COUNT):
        item = build(descriptor, node.PARTS[index])
        if item is None or put(node, made, index, item) < 0:
            Py_DecRef(made)
            return None
    if kind != KIND_CALLED:
        return made
    answer = PyObject_CallFunctionObjArgs(node.VALUE, made, None)
    Py_DecRef(made)
    return answer

# Put a part, whose reference is taken, into what is made; negative with Python's error set.
def put(node: Node, made: Object, index: i64, item: Object) -> i32:
    if node.KIND == KIND_LIST:
        return PyList_SetItem(made, index, item)
    if node.KIND == KIND_TUPLE or node.KIND == KIND_CALLED:
        return PyTuple_SetItem(made, index, item)
    if node.KIND == KIND_DICT:
        outcome = PyDict_SetItem(made, node.NAMES[index], item)
    else:
        outcome = PyObject_GenericSetAttr(made, node.NAMES[index], item)
    Py_DecRef(item)
    return outcome
"""
