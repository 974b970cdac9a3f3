"""Trees of arguments and results as compiled code walks them: what is compared, and what is built.

A tree is described by nodes, plain records in memory. ``match`` goes through the arguments along the nodes: each
container must be of the very class, with the very keys or names in the very order, each value that is static the very
same object or an equal string or number, and each leaf what its argument's record says. So a tree matches only if
Python would find the same structure in it; of one that does not, Python is asked. ``build`` makes the tree of results.

No code of the user's runs in between but what the garbage collector calls, and whatever that does to the containers,
objects that are looked at are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.compiler.runtime.memory import Memory

__all__ = [
    "NODE_FUNCTIONS", "WALKING", "Called", "Fields", "Items", "Leaf", "Node", "Pairs", "Same", "node_bytes",
    "node_names", "write_node",
]  # fmt: skip

NODE = {
    "KIND": 0,
    "TYPE": 8,  # the class that an object must have, or that is made
    "COUNT": 16,  # i64: parts
    "PARTS": 24,  # ptr to their nodes, side by side; of a dict that is matched, of each key and each value
    "NAMES": 32,  # ptr to names of fields, or to the keys of a dict that is made
    "VALUE": 40,  # the record of a leaf, the object that is static, the function that is called
}
NODE_BYTES = 48
KINDS = ("LEAF", "SAME", "EQUAL", "TUPLE", "LIST", "DICT", "FIELDS", "SLOTS", "CALLED")


@dataclass(frozen=True)
class Leaf:
    """An argument or a result, by its number."""

    number: int


@dataclass(frozen=True)
class Same:
    """A static value: the very same object, or a string or number of the same class that is equal."""

    value: Any

    @property
    def kind(self) -> str:
        """An equal float is another one if it is zero, whose sign counts, and NaN is equal to none."""
        plain = type(self.value) in (str, bytes, int) or (type(self.value) is float and self.value != 0)
        return "EQUAL" if plain else "SAME"


@dataclass(frozen=True)
class Items:
    """A tuple, a list, or an instance of a class of tuples (to be matched only)."""

    cls: type
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Pairs:
    """A dict; its keys are what can be static."""

    keys: tuple[Any, ...]
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Fields:
    """An object with these attributes and no other; they stand in its dict, or elsewhere, as in slots."""

    cls: type
    names: tuple[str, ...]
    parts: tuple[Node, ...]
    slots: bool = False


@dataclass(frozen=True)
class Called:
    """What a Python function makes of the tuple of the parts; nothing that can be matched."""

    function: Callable[[tuple[Any, ...]], Any]
    parts: tuple[Node, ...]


Node = Leaf | Same | Items | Pairs | Fields | Called


def static_node(value: Any) -> Node:
    """What matches a static value; tuples are compared element by element."""
    return Items(tuple, tuple(map(static_node, value))) if type(value) is tuple else Same(value)


def node_bytes(node: Node, match: bool) -> int:
    """How many bytes the records of a tree take."""
    total, stack = 0, [node]
    while stack:
        part = stack.pop()
        names = getattr(part, "names", getattr(part, "keys", ()))
        total += NODE_BYTES + 8 * len(names) + 16
        stack += _parts(part, match)
    return total


def write_node(memory: Memory, node: Node, leaves: Sequence[int], match: bool, at: int | None = None) -> int:
    """Write a tree to be matched, or to be built; the address of its root.

    ``leaves`` are the addresses of the records of arguments, or results. Whoever has the memory must keep the node,
    too: it holds the objects whose addresses are written.
    """
    at = memory.reserve(NODE_BYTES, 8) if at is None else at
    parts = _parts(node, match)
    places = memory.reserve(NODE_BYTES * len(parts), 8)
    for k, part in enumerate(parts):
        write_node(memory, part, leaves, match, places + NODE_BYTES * k)
    values = {"COUNT": len(parts), "PARTS": places}
    match node:
        case Leaf(number):
            values |= {"KIND": KINDS.index("LEAF"), "VALUE": leaves[number]}
        case Same(value):
            values |= {"KIND": KINDS.index(node.kind), "VALUE": id(value), "TYPE": id(type(value))}
        case Items(cls):
            kind = "LIST" if issubclass(cls, list) else "TUPLE"
            values |= {"KIND": KINDS.index(kind), "TYPE": id(cls)}
        case Pairs(keys):
            names = 0 if match else memory.put([id(key) for key in keys])
            values |= {"KIND": KINDS.index("DICT"), "TYPE": id(dict), "COUNT": len(keys), "NAMES": names}
        case Fields(cls, names):
            kind = "SLOTS" if node.slots else "FIELDS"
            values |= {
                "KIND": KINDS.index(kind),
                "TYPE": id(cls),
                "NAMES": memory.put([id(name) for name in names]),
            }
        case Called(function):
            values |= {"KIND": KINDS.index("CALLED"), "VALUE": id(function)}
    memory.write(at, NODE, values)
    return at


def _parts(node: Node, match: bool) -> tuple[Node, ...]:
    if isinstance(node, (Leaf, Same)):
        return ()
    if isinstance(node, Pairs) and match:
        return tuple(part for key, value in zip(node.keys, node.parts) for part in (static_node(key), value))
    return node.parts


def node_names() -> dict[str, str]:
    """What the text calls offsets and kinds."""
    names = {f"NODE_{name}": str(offset) for name, offset in NODE.items()}
    names |= {f"KIND_{kind}": str(number) for number, kind in enumerate(KINDS)}
    return names | {"NODE_BYTES_EACH": str(NODE_BYTES), "NODE_BYTES_TWO": str(2 * NODE_BYTES)}


NODE_FUNCTIONS = (
    "PyDict_GetItemWithError", "PyDict_New", "PyDict_Next", "PyDict_SetItem", "PyDict_Size", "PyErr_Clear",
    "PyList_GetItem", "PyList_New", "PyList_SetItem", "PyList_Size", "PyObject_CallFunctionObjArgs",
    "PyObject_GenericGetDict", "PyObject_GenericSetAttr", "PyObject_GetAttr", "PyObject_RichCompareBool",
    "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size", "Py_DecRef", "Py_IncRef",
)  # fmt: skip
"""The functions of Python's interface that walking needs, in its versions from 3.10 to 3.14."""

WALKING = """
; Whether an object is what a node says. Arguments that were met are held, whatever the answer.
define internal i1 @match(ptr %descriptor, ptr %node, ptr %object) nounwind {
entry:
  %position = alloca i64, align 8
  %key_at = alloca ptr, align 8
  %value_at = alloca ptr, align 8
  $LOAD(kind, i64, %node, $NODE_KIND)
  $LOAD(value, ptr, %node, $NODE_VALUE)
  switch i64 %kind, label %container
      [i64 $KIND_LEAF, label %leaf i64 $KIND_SAME, label %same i64 $KIND_EQUAL, label %equal]
leaf:
  %fits = call i1 @read_argument(ptr %descriptor, ptr %value, ptr %object)
  br i1 %fits, label %hold, label %differs
hold:
  call void @Py_IncRef(ptr %object)
  %held_at = getelementptr i8, ptr %value, i64 $ARGUMENT_OBJECT
  store ptr %object, ptr %held_at, align 8
  ret i1 true
same:
  %identical = icmp eq ptr %object, %value
  ret i1 %identical
equal:
  %identical_one = icmp eq ptr %object, %value
  br i1 %identical_one, label %matches, label %compare_types
compare_types:
  $LOAD(value_type, ptr, %node, $NODE_TYPE)
  $LOAD(object_type, ptr, %object, $FIELD_TYPE)
  %same_type = icmp eq ptr %value_type, %object_type
  br i1 %same_type, label %compare_values, label %differs
compare_values:
  %outcome = call i32 @PyObject_RichCompareBool(ptr %object, ptr %value, i32 2)
  %is_equal = icmp eq i32 %outcome, 1
  br i1 %is_equal, label %matches, label %clear
clear:
  call void @PyErr_Clear()
  br label %differs
matches:
  ret i1 true
differs:
  ret i1 false
container:
  $LOAD(type_wanted, ptr, %node, $NODE_TYPE)
  $LOAD(type, ptr, %object, $FIELD_TYPE)
  $LOAD(count, i64, %node, $NODE_COUNT)
  $LOAD(parts, ptr, %node, $NODE_PARTS)
  $LOAD(names, ptr, %node, $NODE_NAMES)
  %of_class = icmp eq ptr %type, %type_wanted
  br i1 %of_class, label %open, label %differs
open:
  call void @Py_IncRef(ptr %object)
  switch i64 %kind, label %shut
      [i64 $KIND_TUPLE, label %tuple i64 $KIND_LIST, label %list i64 $KIND_DICT, label %dict
       i64 $KIND_FIELDS, label %fields i64 $KIND_SLOTS, label %slots]
tuple:
  %tuple_size = call i64 @PyTuple_Size(ptr %object)
  br label %sized
list:
  %list_size = call i64 @PyList_Size(ptr %object)
  br label %sized
dict:
  store i64 0, ptr %position, align 8
  %dict_size = call i64 @PyDict_Size(ptr %object)
  br label %sized
fields:
  %own = call ptr @PyObject_GenericGetDict(ptr %object, ptr null)
  %no_dict = icmp eq ptr %own, null
  br i1 %no_dict, label %absent, label %count_fields
count_fields:
  %fields_size = call i64 @PyDict_Size(ptr %own)
  br label %sized
slots:
  br label %sized
sized:
  %held = phi ptr [null, %tuple], [null, %list], [null, %dict], [%own, %count_fields], [null, %slots]
  %size = phi i64 [%tuple_size, %tuple], [%list_size, %list], [%dict_size, %dict],
                  [%fields_size, %count_fields], [%count, %slots]
  %same_size = icmp eq i64 %size, %count
  br i1 %same_size, label %next, label %close
next:
  %index = phi i64 [0, %sized], [%index_1, %inside]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %count
  br i1 %more, label %pick, label %close
pick:
  %part_offset = mul i64 %index, $NODE_BYTES_EACH
  %part = getelementptr i8, ptr %parts, i64 %part_offset
  %name_at = getelementptr ptr, ptr %names, i64 %index
  switch i64 %kind, label %pick_tuple
      [i64 $KIND_LIST, label %pick_list i64 $KIND_DICT, label %pick_pair
       i64 $KIND_FIELDS, label %pick_field i64 $KIND_SLOTS, label %pick_slot]
pick_tuple:
  %tuple_item = call ptr @PyTuple_GetItem(ptr %object, i64 %index)
  br label %picked
pick_list:
  %list_item = call ptr @PyList_GetItem(ptr %object, i64 %index)
  br label %picked
pick_pair:
  %another = call i32 @PyDict_Next(ptr %object, ptr %position, ptr %key_at, ptr %value_at)
  %is_pair = icmp ne i32 %another, 0
  br i1 %is_pair, label %compare_key, label %close
compare_key:
  %pair_offset = mul i64 %index, $NODE_BYTES_TWO
  %key_part = getelementptr i8, ptr %parts, i64 %pair_offset
  %key = load ptr, ptr %key_at, align 8
  %key_fits = call i1 @match(ptr %descriptor, ptr %key_part, ptr %key)
  br i1 %key_fits, label %of_key, label %close
of_key:
  %value_part = getelementptr i8, ptr %key_part, i64 $NODE_BYTES_EACH
  %dict_item = load ptr, ptr %value_at, align 8
  br label %picked
pick_field:
  %field_name = load ptr, ptr %name_at, align 8
  %field_item = call ptr @PyDict_GetItemWithError(ptr %held, ptr %field_name)
  br label %picked
pick_slot:
  %slot_name = load ptr, ptr %name_at, align 8
  %slot_item = call ptr @PyObject_GetAttr(ptr %object, ptr %slot_name)
  %no_slot = icmp eq ptr %slot_item, null
  br i1 %no_slot, label %picked, label %lend
lend:
  call void @Py_DecRef(ptr %slot_item)  ; the slot has it
  br label %picked
picked:
  %item = phi ptr [%tuple_item, %pick_tuple], [%list_item, %pick_list], [%dict_item, %of_key],
                  [%field_item, %pick_field], [null, %pick_slot], [%slot_item, %lend]
  %item_part = phi ptr [%part, %pick_tuple], [%part, %pick_list], [%value_part, %of_key],
                       [%part, %pick_field], [%part, %pick_slot], [%part, %lend]
  %no_item = icmp eq ptr %item, null
  br i1 %no_item, label %absent, label %inside
inside:
  %item_fits = call i1 @match(ptr %descriptor, ptr %item_part, ptr %item)
  br i1 %item_fits, label %next, label %close
absent:
  %held_absent = phi ptr [null, %fields], [%held, %picked]
  call void @PyErr_Clear()
  br label %close
close:
  %held_close = phi ptr [%held, %sized], [%held, %next], [%held, %pick_pair], [%held, %compare_key], [%held, %inside],
                        [%held_absent, %absent]
  %all = phi i1 [false, %sized], [true, %next], [false, %pick_pair], [false, %compare_key], [false, %inside],
                [false, %absent]
  %holding = icmp ne ptr %held_close, null
  br i1 %holding, label %let_go, label %shut
let_go:
  call void @Py_DecRef(ptr %held_close)
  br label %shut
shut:
  %answer = phi i1 [%all, %close], [%all, %let_go], [false, %open]
  call void @Py_DecRef(ptr %object)
  ret i1 %answer
}

; The tree of results that a node says, or null with Python's error set.
define internal ptr @build(ptr %descriptor, ptr %node) nounwind {
entry:
  $LOAD(kind, i64, %node, $NODE_KIND)
  $LOAD(value, ptr, %node, $NODE_VALUE)
  $LOAD(type, ptr, %node, $NODE_TYPE)
  $LOAD(count, i64, %node, $NODE_COUNT)
  $LOAD(parts, ptr, %node, $NODE_PARTS)
  $LOAD(names, ptr, %node, $NODE_NAMES)
  switch i64 %kind, label %same
      [i64 $KIND_LEAF, label %leaf i64 $KIND_TUPLE, label %tuple i64 $KIND_CALLED, label %tuple
       i64 $KIND_LIST, label %list i64 $KIND_DICT, label %dict i64 $KIND_FIELDS, label %object_with_dict
       i64 $KIND_SLOTS, label %object_with_slots]
leaf:
  %object_at = getelementptr i8, ptr %value, i64 $RESULT_OBJECT
  %object = load ptr, ptr %object_at, align 8
  store ptr null, ptr %object_at, align 8
  ret ptr %object
same:
  call void @Py_IncRef(ptr %value)
  ret ptr %value
tuple:
  %new_tuple = call ptr @PyTuple_New(i64 %count)
  br label %begin
list:
  %new_list = call ptr @PyList_New(i64 %count)
  br label %begin
dict:
  %new_dict = call ptr @PyDict_New()
  br label %begin
object_with_dict:
  ; object.__new__, not the constructor: a tree is rebuilt as it was
  $LOAD(new, ptr, %descriptor, $DESCRIPTOR_NEW_OBJECT)
  $LOAD(no_arguments, ptr, %descriptor, $DESCRIPTOR_NO_ARGUMENTS)
  %new_object = call ptr %new(ptr %type, ptr %no_arguments, ptr null)
  %no_object = icmp eq ptr %new_object, null
  br i1 %no_object, label %nothing, label %its_dict
its_dict:
  %own = call ptr @PyObject_GenericGetDict(ptr %new_object, ptr null)
  %no_own = icmp eq ptr %own, null
  br i1 %no_own, label %drop, label %begin
drop:
  call void @Py_DecRef(ptr %new_object)
  br label %nothing
object_with_slots:
  $LOAD(new_slotted, ptr, %descriptor, $DESCRIPTOR_NEW_OBJECT)
  $LOAD(none_given, ptr, %descriptor, $DESCRIPTOR_NO_ARGUMENTS)
  %new_with_slots = call ptr %new_slotted(ptr %type, ptr %none_given, ptr null)
  br label %begin
begin:
  %made = phi ptr [%new_tuple, %tuple], [%new_list, %list], [%new_dict, %dict], [%new_object, %its_dict],
                  [%new_with_slots, %object_with_slots]
  %named = phi ptr [null, %tuple], [null, %list], [%new_dict, %dict], [%own, %its_dict], [null, %object_with_slots]
  %none = icmp eq ptr %made, null
  br i1 %none, label %nothing, label %next
next:
  %index = phi i64 [0, %begin], [%index_1, %well]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %count
  br i1 %more, label %part, label %end
part:
  %part_offset = mul i64 %index, $NODE_BYTES_EACH
  %part_node = getelementptr i8, ptr %parts, i64 %part_offset
  %item = call ptr @build(ptr %descriptor, ptr %part_node)
  %no_item = icmp eq ptr %item, null
  br i1 %no_item, label %fail, label %put
put:
  %name_at = getelementptr ptr, ptr %names, i64 %index
  switch i64 %kind, label %put_tuple
      [i64 $KIND_LIST, label %put_list i64 $KIND_DICT, label %put_pair i64 $KIND_FIELDS, label %put_pair
       i64 $KIND_SLOTS, label %put_field]
put_tuple:
  %in_tuple = call i32 @PyTuple_SetItem(ptr %made, i64 %index, ptr %item)
  br label %stands
put_list:
  %in_list = call i32 @PyList_SetItem(ptr %made, i64 %index, ptr %item)
  br label %stands
put_pair:
  %key = load ptr, ptr %name_at, align 8
  %in_dict = call i32 @PyDict_SetItem(ptr %named, ptr %key, ptr %item)
  call void @Py_DecRef(ptr %item)
  br label %stands
put_field:
  %name = load ptr, ptr %name_at, align 8
  %in_field = call i32 @PyObject_GenericSetAttr(ptr %made, ptr %name, ptr %item)
  call void @Py_DecRef(ptr %item)
  br label %stands
stands:
  %outcome = phi i32 [%in_tuple, %put_tuple], [%in_list, %put_list], [%in_dict, %put_pair], [%in_field, %put_field]
  %failed = icmp slt i32 %outcome, 0
  br i1 %failed, label %fail, label %well
well:
  br label %next
end:
  switch i64 %kind, label %out [i64 $KIND_CALLED, label %ask i64 $KIND_FIELDS, label %close]
close:
  call void @Py_DecRef(ptr %named)
  br label %out
ask:
  %answer = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %value, ptr %made, ptr null)
  call void @Py_DecRef(ptr %made)
  ret ptr %answer
out:
  ret ptr %made
fail:
  call void @Py_DecRef(ptr %made)
  %with_dict = icmp eq i64 %kind, $KIND_FIELDS
  br i1 %with_dict, label %close_failed, label %nothing
close_failed:
  call void @Py_DecRef(ptr %named)
  br label %nothing
nothing:
  ret ptr null
}
"""
