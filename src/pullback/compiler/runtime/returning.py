"""How compiled code fills the slots of a context and makes the objects of results: what goes through the records.

Arrays are made before the program runs, which writes into them; NumPy's scalars after it, from what it wrote. Until
they stand in the tree of results their records hold them, as those of arguments hold what was given.
"""

from __future__ import annotations

__all__ = ["RETURNING"]

RETURNING = """
; Make the objects of results and put all addresses into the slots; false with Python's error set if memory is short.
define internal i1 @make_results(ptr %descriptor, ptr %slots) nounwind {
entry:
  $LOAD(count, i64, %descriptor, $DESCRIPTOR_RESULTS)
  $LOAD(specs, ptr, %descriptor, $DESCRIPTOR_RESULT_SPECS)
  $LOAD(argument_specs, ptr, %descriptor, $DESCRIPTOR_SPECS)
  $LOAD(array_type, ptr, %descriptor, $DESCRIPTOR_ARRAY_TYPE)
  $LOAD(new_array, ptr, %descriptor, $DESCRIPTOR_NEW_ARRAY)
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %put]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %make, label %out
make:
  %offset = mul i64 %index, $RESULT_BYTES
  %spec = getelementptr i8, ptr %specs, i64 %offset
  $LOAD(alias, i64, %spec, $RESULT_ALIAS)
  $LOAD(storage, ptr, %spec, $RESULT_STORAGE)
  %is_new = icmp slt i64 %alias, 0
  br i1 %is_new, label %unaliased, label %aliased
unaliased:
  %is_array = icmp eq ptr %storage, null
  br i1 %is_array, label %fresh, label %put
fresh:
  $LOAD(dtype, ptr, %spec, $RESULT_DTYPE)
  $LOAD(rank, i64, %spec, $RESULT_RANK)
  $LOAD(shape, ptr, %spec, $RESULT_SHAPE)
  %rank_int = trunc i64 %rank to i32
  call void @Py_IncRef(ptr %dtype)
  %array = call ptr %new_array(
      ptr %array_type, ptr %dtype, i32 %rank_int, ptr %shape, ptr null, ptr null, i32 0, ptr null)
  %none = icmp eq ptr %array, null
  br i1 %none, label %out_of_memory, label %fresh_address
fresh_address:
  $LOAD(fresh_data, ptr, %array, $FIELD_DATA)
  br label %put
aliased:
  %argument_offset = mul i64 %alias, $ARGUMENT_BYTES
  %argument_spec = getelementptr i8, ptr %argument_specs, i64 %argument_offset
  $LOAD(argument, ptr, %argument_spec, $ARGUMENT_OBJECT)
  $LOAD(aliased_data, ptr, %argument_spec, $ARGUMENT_CURRENT)
  call void @Py_IncRef(ptr %argument)
  br label %put
put:
  %object = phi ptr [null, %unaliased], [%array, %fresh_address], [%argument, %aliased]
  %data = phi ptr [%storage, %unaliased], [%fresh_data, %fresh_address], [%aliased_data, %aliased]
  %object_at = getelementptr i8, ptr %spec, i64 $RESULT_OBJECT
  store ptr %object, ptr %object_at, align 8
  $LOAD(stride, i64, %spec, $RESULT_STRIDE)
  %slot_offset = mul i64 %index, $SLOT_BYTES
  %slot = getelementptr i8, ptr %slots, i64 %slot_offset
  store ptr %data, ptr %slot, align 8
  %stride_at = getelementptr i8, ptr %slot, i64 8
  store i64 %stride, ptr %stride_at, align 8
  %index_1 = add i64 %index, 1
  br label %next
out_of_memory:
  ret i1 false
out:
  ret i1 true
}

; After the run, the scalars among the results; false with Python's error set if memory is short.
define internal i1 @make_scalars(ptr %descriptor) nounwind {
entry:
  $LOAD(count, i64, %descriptor, $DESCRIPTOR_RESULTS)
  $LOAD(specs, ptr, %descriptor, $DESCRIPTOR_RESULT_SPECS)
  $LOAD(new_scalar, ptr, %descriptor, $DESCRIPTOR_NEW_SCALAR)
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %one], [%index_1, %put]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %count
  br i1 %more, label %one, label %out
one:
  %offset = mul i64 %index, $RESULT_BYTES
  %spec = getelementptr i8, ptr %specs, i64 %offset
  $LOAD(storage, ptr, %spec, $RESULT_STORAGE)
  %is_array = icmp eq ptr %storage, null
  br i1 %is_array, label %next, label %make
make:
  $LOAD(type, ptr, %spec, $RESULT_SCALAR)
  %is_plain = icmp ne ptr %type, null
  br i1 %is_plain, label %allocate, label %ask
allocate:
  ; what PyArray_Scalar does, for what lies as it is known to lie
  $LOAD(new_instance, ptr, %spec, $RESULT_ALLOCATE)
  %instance = call ptr %new_instance(ptr %type, i64 0)
  %no_instance = icmp eq ptr %instance, null
  br i1 %no_instance, label %out_of_memory, label %fill
fill:
  %value = load i64, ptr %storage, align 8
  %value_at = getelementptr i8, ptr %instance, i64 $HEAD
  store i64 %value, ptr %value_at, align 8
  $LOAD(wide, i64, %spec, $RESULT_WIDE)
  %is_wide = icmp ne i64 %wide, 0
  br i1 %is_wide, label %fill_rest, label %put
fill_rest:
  %rest_from = getelementptr i8, ptr %storage, i64 8
  %rest = load i64, ptr %rest_from, align 8
  %rest_at = getelementptr i8, ptr %value_at, i64 8
  store i64 %rest, ptr %rest_at, align 8
  br label %put
ask:
  $LOAD(dtype, ptr, %spec, $RESULT_DTYPE)
  %asked = call ptr %new_scalar(ptr %storage, ptr %dtype, ptr null)
  %none = icmp eq ptr %asked, null
  br i1 %none, label %out_of_memory, label %put
put:
  %scalar = phi ptr [%instance, %fill], [%instance, %fill_rest], [%asked, %ask]
  %object_at = getelementptr i8, ptr %spec, i64 $RESULT_OBJECT
  store ptr %scalar, ptr %object_at, align 8
  br label %next
out_of_memory:
  ret i1 false
out:
  ret i1 true
}

; In the records of arguments or results, let go of the objects that are held.
define internal void @release(ptr %specs, i64 %count, i64 %size) nounwind {
entry:
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %one], [%index_1, %held]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %count
  br i1 %more, label %one, label %out
one:
  %offset = mul i64 %index, %size
  %spec = getelementptr i8, ptr %specs, i64 %offset
  %object_at = getelementptr i8, ptr %spec, i64 $ARGUMENT_OBJECT
  %object = load ptr, ptr %object_at, align 8
  %none = icmp eq ptr %object, null
  br i1 %none, label %next, label %held
held:
  store ptr null, ptr %object_at, align 8
  call void @Py_DecRef(ptr %object)
  br label %next
out:
  ret void
}

; In the records of arguments or results of a run, write the number of its steps into the shapes.
define internal void @set_steps(ptr %specs, i64 %count, i64 %size, i64 %steps) nounwind {
entry:
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %one], [%index_1, %write]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %count
  br i1 %more, label %one, label %out
one:
  %offset = mul i64 %index, %size
  %spec = getelementptr i8, ptr %specs, i64 %offset
  $LOAD(sliced, i64, %spec, $ARGUMENT_SLICED)
  %is_sliced = icmp ne i64 %sliced, 0
  br i1 %is_sliced, label %write, label %next
write:
  $LOAD(shape, ptr, %spec, $ARGUMENT_SHAPE)
  store i64 %steps, ptr %shape, align 8
  br label %next
out:
  ret void
}

; Write the addresses of arguments into the slots.
define internal void @point(ptr %specs, i64 %count, ptr %slots) nounwind {
entry:
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %one]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %count
  br i1 %more, label %one, label %out
one:
  %offset = mul i64 %index, $ARGUMENT_BYTES
  %spec = getelementptr i8, ptr %specs, i64 %offset
  $LOAD(current, ptr, %spec, $ARGUMENT_CURRENT)
  $LOAD(stride, i64, %spec, $ARGUMENT_STRIDE)
  %slot_offset = mul i64 %index, $SLOT_BYTES
  %slot = getelementptr i8, ptr %slots, i64 %slot_offset
  store ptr %current, ptr %slot, align 8
  %stride_at = getelementptr i8, ptr %slot, i64 8
  store i64 %stride, ptr %stride_at, align 8
  br label %next
out:
  ret void
}
"""
