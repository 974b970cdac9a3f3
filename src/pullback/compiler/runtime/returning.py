"""How compiled code fills the slots of a context and makes the objects of results: what goes through the records.

Arrays are made before the program runs, which writes into them; NumPy's scalars after it, from what it wrote. Until
they stand in the tree of results their records hold them, as those of arguments hold what was given.
"""

from __future__ import annotations

__all__ = ["RETURNING"]

RETURNING = """
# Make the objects of the results of so many steps and put all addresses into the slots; false with Python's error set
# if memory is short.
def make_results(descriptor: Descriptor, slots: Slot, steps: i64) -> i1:
    for index in range(descriptor.RESULTS):
        spec = descriptor.SPECS[descriptor.ARGUMENTS + index]
        bytes = bytes_of(spec, steps)
        object: Object = None
        data = spec.STORAGE
        if spec.ALIAS != NO_ALIAS:
            argument = descriptor.SPECS[spec.ALIAS]
            object = argument.OBJECT
            data = argument.CURRENT
            Py_IncRef(object)
        elif data is None:
            if bytes >= LEAST_KEPT:
                object = recycled_array(descriptor, spec, bytes)
            else:
                object = new_array(descriptor, spec.DTYPE, spec.RANK, spec.SHAPE, None)
            if object is None:
                return False
            data = object.DATA
        spec.OBJECT = object
        slots[index].BASE = data
        slots[index].STRIDE = spec.STRIDE
    return True

# After the run, the scalars among the results; false with Python's error set if memory is short.
def make_scalars(descriptor: Descriptor) -> i1:
    for index in range(descriptor.RESULTS):
        spec = descriptor.SPECS[descriptor.ARGUMENTS + index]
        storage: Words = spec.STORAGE
        if storage is None:
            continue
        if spec.SCALAR is None:
            scalar = call(ptr, descriptor.NEW_SCALAR, storage, spec.DTYPE, None)
        else:
            # what PyArray_Scalar does, for what lies as it is known to lie
            scalar = call(ptr, spec.ALLOCATE, spec.SCALAR, 0)
            if scalar is not None:
                value = Words(scalar + HEAD)
                value[0] = storage[0]
                if spec.BYTES > 8:
                    value[1] = storage[1]
        if scalar is None:
            return False
        spec.OBJECT = scalar
    return True

# In the records of arguments or results, let go of the objects that are held.
def release_objects(specs: Spec, count: i64):
    for index in range(count):
        spec = specs[index]
        object = spec.OBJECT
        if object is not None:
            spec.OBJECT = None
            Py_DecRef(object)

# In the records of arguments or results of a run, write the number of its steps into the shapes.
def set_steps(specs: Spec, count: i64, steps: i64):
    for index in range(count):
        spec = specs[index]
        if spec.SLICED != 0:
            spec.SHAPE[0] = steps

# Write the addresses of arguments into the slots.
def point(specs: Spec, count: i64, slots: Slot):
    for index in range(count):
        slots[index].BASE = specs[index].CURRENT
        slots[index].STRIDE = specs[index].STRIDE
"""
