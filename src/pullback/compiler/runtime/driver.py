"""The driver that runs a program's schedule on one thread or on several, as LLVM IR text.

All threads walk the same schedule; how they share the chunks of a region stands in ``claiming.py``.

Visits are numbered ``epoch * trips + iteration``; an epoch is a step that was ever run side by
side. A run on the caller alone uses none of this.

``pullback_run`` is the caller's side. Between steps it looks at the watched result, and every 50 ms
it takes the interpreter lock and lets Python handle its signals, so that Ctrl-C stops a long run
between two steps; a single step stops between two chunks, for as long as it has written nothing in place: what the
other threads still claim of the region they leave out. A chunk that may take any time asks by itself.
"""

from __future__ import annotations

import sys
from string import Template

from pullback.compiler.codegen.subnormals import mode_functions
from pullback.compiler.runtime import layout, waiting
from pullback.compiler.runtime.claiming import BEFORE_SHARED, RANGE, REGION_SHARED

__all__ = ["driver_text"]

_WALK = """
define internal i1 @$NAME(ptr %context, i64 %epoch, i64 %step, i64 %thread, i64 %threads) nounwind {
entry:
  %table_at = getelementptr i8, ptr %context, i64 $CONTEXT_TABLE
  %table = load ptr, ptr %table_at, align 8
  %entries_at = getelementptr i8, ptr %context, i64 $CONTEXT_ENTRIES
  %entries = load i64, ptr %entries_at, align 8
  %scratch_at = getelementptr i8, ptr %context, i64 $CONTEXT_SCRATCH
  %scratch_base = load ptr, ptr %scratch_at, align 8
  %scratch_stride_at = getelementptr i8, ptr %context, i64 $CONTEXT_SCRATCH_STRIDE
  %scratch_stride = load i64, ptr %scratch_stride_at, align 8
  %scratch_offset = mul i64 %scratch_stride, %thread
  %scratch = getelementptr i8, ptr %scratch_base, i64 %scratch_offset
  %code_at = getelementptr i8, ptr %context, i64 $CONTEXT_FAILURE_CODE
  %caller_at = getelementptr i8, ptr %context, i64 $CONTEXT_CALLER
  %caller_there = load ptr, ptr %caller_at, align 8
  %is_worker = icmp ne i64 %thread, 0
  %caller_here = select i1 %is_worker, ptr null, ptr %caller_there
  %nowhere = alloca i64, align 8
  %nobody_here = icmp eq ptr %caller_here, null
  %open_here = getelementptr i8, ptr %caller_here, i64 $CALLER_OPEN
  %open_place = select i1 %nobody_here, ptr %nowhere, ptr %open_here
  %flushes_at = getelementptr i8, ptr %context, i64 $CONTEXT_FLUSHES
  %flushes_word = load i64, ptr %flushes_at, align 8
  %flushes = icmp ne i64 %flushes_word, 0
  %mode = call i64 @flushed(i1 %flushes)
$BEFORE
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %check], [%index_1, %begin], [%index_end, %end]
  %visit = phi i64 [%epoch, %entry], [%visit, %check], [%visit_begin, %begin], [%visit_end, %end]
  %base = phi i64 [%epoch, %entry], [%base, %check], [%base_begin, %begin], [%base_end, %end]
  %more = icmp ult i64 %index, %entries
  br i1 %more, label %look, label %finished
look:
  %offset = mul i64 %index, $ENTRY_BYTES
  %at = getelementptr i8, ptr %table, i64 %offset
  %index_1 = add i64 %index, 1
  %kind = load i64, ptr %at, align 8
  %count_at = getelementptr i8, ptr %at, i64 $ENTRY_COUNT
  %count = load i64, ptr %count_at, align 8
  switch i64 %kind, label %region [i64 $REPEAT_BEGIN, label %begin i64 $REPEAT_END, label %end]
begin:
  %visit_begin = mul i64 %visit, %count
  %base_begin = mul i64 %base, %count
  br label %next
end:
  %target_at = getelementptr i8, ptr %at, i64 $ENTRY_TARGET
  %target = load i64, ptr %target_at, align 8
  %turn = add i64 %visit, 1
  %rest = urem i64 %turn, %count
  %over = icmp eq i64 %rest, 0
  %visit_outer = udiv i64 %visit, %count
  %base_outer = udiv i64 %base, %count
  %visit_end = select i1 %over, i64 %visit_outer, i64 %turn
  %base_end = select i1 %over, i64 %base_outer, i64 %base
  %index_end = select i1 %over, i64 %index_1, i64 %target
  br label %next
region:
  %function_at = getelementptr i8, ptr %at, i64 $ENTRY_FUNCTION
  %function = load ptr, ptr %function_at, align 8
  %iteration = sub i64 %visit, %base
  %enters_at = getelementptr i8, ptr %at, i64 $ENTRY_ENTERS
  %enters_word = load i64, ptr %enters_at, align 8
  %enters = icmp ne i64 %enters_word, 0
  %open_at = getelementptr i8, ptr %at, i64 $ENTRY_OPEN
  %open_word = load i64, ptr %open_at, align 8
  %open = icmp ne i64 %open_word, 0
  %caller = select i1 %open, ptr %caller_here, ptr null
  %callers_at = getelementptr i8, ptr %at, i64 $ENTRY_CALLERS
  %callers_word = load i64, ptr %callers_at, align 8
  %callers = icmp ne i64 %callers_word, 0
  store i64 %open_word, ptr %open_place, align 8
$REGION
region_over:
  %stopped_here = call i1 @stopped(ptr %caller, ptr %code_at)
  br label %check
check:
  %code = load atomic i64, ptr %code_at acquire, align 8
  %failed = icmp ne i64 %code, 0
  br i1 %failed, label %stop, label %next
finished:
  call void @unflushed(i1 %flushes, i64 %mode)
  ret i1 false
stop:
  call void @unflushed(i1 %flushes, i64 %mode)
  ret i1 true
}
"""

_REGION_ALONE = """\
  br i1 %enters, label %enter, label %chunks
enter:
  call void %function(ptr %context, i64 %step, i64 %iteration, i64 %count, ptr %scratch)
  br label %chunks
chunks:
  %chunk = phi i64 [0, %region], [0, %enter], [%chunk_1, %go_on]
  call void %function(ptr %context, i64 %step, i64 %iteration, i64 %chunk, ptr %scratch)
  %chunk_1 = add i64 %chunk, 1
  %again = icmp ult i64 %chunk_1, %count
  br i1 %again, label %look_up, label %region_over
look_up:
  %stop_here = call i1 @stopped(ptr %caller, ptr %code_at)
  br i1 %stop_here, label %region_over, label %go_on
go_on:
  br label %chunks"""

_CALLER = """
define i32 @pullback_take(ptr %word) nounwind {
  %exchange = cmpxchg ptr %word, i32 0, i32 1 acq_rel monotonic, align 4
  %old = extractvalue {i32, i1} %exchange, 0
  ret i32 %old
}

define void @pullback_give(ptr %word) nounwind {
  store atomic i32 0, ptr %word release, align 4
  ret void
}

; Now and then let Python handle its signals; whether a handler raised.
define internal i1 @signal_raised(ptr %caller) nounwind {
entry:
  %now = call i64 @milliseconds()
  %then = load i64, ptr %caller, align 8
  %elapsed = sub i64 %now, %then
  %due = icmp sge i64 %elapsed, $SIGNAL_MILLISECONDS
  br i1 %due, label %ask, label %quiet
ask:
  %thread_state = getelementptr i8, ptr %caller, i64 $CALLER_THREAD_STATE
  store i64 %now, ptr %caller, align 8
  %state = load ptr, ptr %thread_state, align 8
  %mode_at = getelementptr i8, ptr %caller, i64 $CALLER_MODE
  %callers_mode = load i64, ptr %mode_at, align 8
  %mode = call i64 @flushed(i1 false)
  call void @unflushed(i1 true, i64 %callers_mode)
  call void @PyEval_RestoreThread(ptr %state)
  %outcome = call i32 @PyErr_CheckSignals()
  %state_now = call ptr @PyEval_SaveThread()
  call void @unflushed(i1 true, i64 %mode)
  store ptr %state_now, ptr %thread_state, align 8
  %raised = icmp ne i32 %outcome, 0
  %raised_word = zext i1 %raised to i64
  %raised_at = getelementptr i8, ptr %caller, i64 $CALLER_RAISED
  store i64 %raised_word, ptr %raised_at, align 8
  ret i1 %raised
quiet:
  ret i1 false
}

; After a chunk, or a region, of a step that may be left half done (there is a caller): whether to leave it.
define internal i1 @stopped(ptr %caller, ptr %code_at) nounwind {
entry:
  %uncalled = icmp eq ptr %caller, null
  br i1 %uncalled, label %no, label %look
look:
  %raised_at = getelementptr i8, ptr %caller, i64 $CALLER_RAISED
  %before = load i64, ptr %raised_at, align 8
  %already = icmp ne i64 %before, 0
  br i1 %already, label %yes, label %ask
ask:
  %raised = call i1 @signal_raised(ptr %caller)
  br i1 %raised, label %tell, label %no
tell:
  store atomic i64 $INTERRUPTED, ptr %code_at release, align 8
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; In the middle of a chunk, on whatever thread: only the caller's may ask Python.
define void @pullback_ask(ptr %context, ptr %scratch) nounwind {
entry:
  %caller_at = getelementptr i8, ptr %context, i64 $CONTEXT_CALLER
  %caller = load ptr, ptr %caller_at, align 8
  %uncalled = icmp eq ptr %caller, null
  br i1 %uncalled, label %out, label %whose
whose:
  %scratch_at = getelementptr i8, ptr %context, i64 $CONTEXT_SCRATCH
  %first = load ptr, ptr %scratch_at, align 8
  %is_caller = icmp eq ptr %scratch, %first
  br i1 %is_caller, label %may, label %out
may:
  %open_at = getelementptr i8, ptr %caller, i64 $CALLER_OPEN
  %open_word = load i64, ptr %open_at, align 8
  %open = icmp ne i64 %open_word, 0
  br i1 %open, label %ask, label %out
ask:
  %code_at = getelementptr i8, ptr %context, i64 $CONTEXT_FAILURE_CODE
  %stopped_now = call i1 @stopped(ptr %caller, ptr %code_at)
  br label %out
out:
  ret void
}

; After a step: count it, look at the watched result, and for signals if there are more steps to come.
define internal i64 @after_step(ptr %context, i64 %step, i64 %steps, i64 %flags, ptr %caller)
    nounwind {
entry:
  %step_1 = add i64 %step, 1
  %done_at = getelementptr i8, ptr %context, i64 $CONTEXT_STEPS_DONE
  store i64 %step_1, ptr %done_at, align 8
  %kind_at = getelementptr i8, ptr %context, i64 $CONTEXT_WATCH_KIND
  %kind = load i64, ptr %kind_at, align 8
  %watching = icmp ne i64 %kind, 0
  br i1 %watching, label %watch, label %signals
watch:
  %slot_at = getelementptr i8, ptr %context, i64 $CONTEXT_WATCH_SLOT
  %slot_offset = load i64, ptr %slot_at, align 8
  %slot = getelementptr i8, ptr %context, i64 %slot_offset
  %base = load ptr, ptr %slot, align 8
  %stride_at = getelementptr i8, ptr %slot, i64 8
  %stride = load i64, ptr %stride_at, align 8
  %offset = mul i64 %stride, %step
  %value_at = getelementptr i8, ptr %base, i64 %offset
  %single = icmp eq i64 %kind, 1
  br i1 %single, label %watch_float, label %watch_double
watch_float:
  %value_float = load float, ptr %value_at, align 4
  %zero_float = fsub float %value_float, %value_float
  %finite_float = fcmp oeq float %zero_float, 0.0
  br i1 %finite_float, label %signals, label %not_finite
watch_double:
  %value_double = load double, ptr %value_at, align 8
  %zero_double = fsub double %value_double, %value_double
  %finite_double = fcmp oeq double %zero_double, 0.0
  br i1 %finite_double, label %signals, label %not_finite
not_finite:
  ret i64 $STATUS_NOT_FINITE
signals:
  %released = and i64 %flags, $RELEASE_LOCK
  %is_released = icmp ne i64 %released, 0
  %more = icmp ult i64 %step_1, %steps
  %may = and i1 %is_released, %more
  br i1 %may, label %ask, label %go_on
ask:
  %raised = call i1 @signal_raised(ptr %caller)
  br i1 %raised, label %interrupt, label %go_on
interrupt:
  ret i64 $STATUS_INTERRUPTED
go_on:
  ret i64 $STATUS_DONE
}

define internal i64 @run_alone(ptr %context, i64 %steps, i64 %flags, ptr %caller) nounwind {
entry:
  br label %next
next:
  %step = phi i64 [0, %entry], [%step_1, %after]
  %more = icmp ult i64 %step, %steps
  br i1 %more, label %run, label %out
run:
  %failed = call i1 @step_alone(ptr %context, i64 0, i64 %step, i64 0, i64 1)
  br i1 %failed, label %failure, label %after
after:
  %step_1 = add i64 %step, 1
  %status = call i64 @after_step(ptr %context, i64 %step, i64 %steps, i64 %flags, ptr %caller)
  %fine = icmp eq i64 %status, $STATUS_DONE
  br i1 %fine, label %next, label %leave
leave:
  ret i64 %status
failure:
  ret i64 $STATUS_FAILED
out:
  ret i64 $STATUS_DONE
}

; Start the visits of a schedule again; the pool is ours and closed, so nobody enters while we clear.
define internal void @restart_epochs(ptr %pool, ptr %context) nounwind noinline cold {
entry:
  call void @pullback_quiesce(ptr %pool, ptr %context)
  %words_at = getelementptr i8, ptr %context, i64 $CONTEXT_WORDS
  %words = load ptr, ptr %words_at, align 8
  %entries_at = getelementptr i8, ptr %context, i64 $CONTEXT_ENTRIES
  %entries = load i64, ptr %entries_at, align 8
  %room_at = getelementptr i8, ptr %context, i64 $CONTEXT_RANGES
  %room = load i64, ptr %room_at, align 8
  %all = mul i64 %entries, %room
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %clear]
  %more = icmp ult i64 %index, %all
  br i1 %more, label %clear, label %out
clear:
  %offset = mul i64 %index, $WORD_BYTES
  %word_at = getelementptr i8, ptr %words, i64 %offset
  store atomic i64 0, ptr %word_at release, align 8
  %done_at = getelementptr i8, ptr %word_at, i64 $DONE_BYTES
  store atomic i64 0, ptr %done_at release, align 8
  %index_1 = add i64 %index, 1
  br label %next
out:
  %epoch_at = getelementptr i8, ptr %context, i64 $CONTEXT_EPOCH
  store atomic i64 1, ptr %epoch_at release, align 8
  ret void
}

define internal i64 @run_shared(ptr %pool, ptr %context, i64 %steps, i64 %limit, i64 %flags, ptr %caller)
    nounwind {
entry:
  %epoch_at = getelementptr i8, ptr %context, i64 $CONTEXT_EPOCH
  %first = load atomic i64, ptr %epoch_at acquire, align 8
  %last = add i64 %first, %steps
  %context_at = getelementptr i8, ptr %pool, i64 $POOL_CONTEXT
  %first_at = getelementptr i8, ptr %pool, i64 $POOL_FIRST
  %last_at = getelementptr i8, ptr %pool, i64 $POOL_LAST
  %limit_at = getelementptr i8, ptr %pool, i64 $POOL_LIMIT
  store atomic ptr %context, ptr %context_at release, align 8
  store atomic i64 %first, ptr %first_at release, align 8
  store atomic i64 %last, ptr %last_at release, align 8
  store atomic i64 %limit, ptr %limit_at release, align 8
  %generation = load atomic i64, ptr %pool monotonic, align 8
  %open = add i64 %generation, 1
  store atomic i64 %open, ptr %pool seq_cst, align 8
  call void @pullback_wake(ptr %pool)
  br label %next
next:
  %epoch = phi i64 [%first, %entry], [%epoch_1, %advance]
  %step = sub i64 %epoch, %first
  %failed = call i1 @step_shared(ptr %context, i64 %epoch, i64 %step, i64 0, i64 %limit)
  br i1 %failed, label %close, label %after
after:
  %status_step = call i64 @after_step(ptr %context, i64 %step, i64 %steps, i64 %flags, ptr %caller)
  %fine = icmp eq i64 %status_step, $STATUS_DONE
  br i1 %fine, label %advance, label %close
advance:
  %epoch_1 = add i64 %epoch, 1
  store atomic i64 %epoch_1, ptr %epoch_at release, align 8
  %more = icmp ult i64 %epoch_1, %last
  br i1 %more, label %next, label %close
close:
  %status = phi i64 [$STATUS_FAILED, %next], [%status_step, %after], [$STATUS_DONE, %advance]
  store atomic i64 %last, ptr %epoch_at release, align 8
  %closed = add i64 %generation, 2
  store atomic i64 %closed, ptr %pool seq_cst, align 8
  %quiet = icmp ne i64 %status, $STATUS_FAILED
  br i1 %quiet, label %out, label %empty
empty:
  ; regions after the failure were never claimed: nobody may walk towards them once the failure is cleared
  call void @pullback_quiesce(ptr %pool, ptr %context)
  br label %out
out:
  ret i64 %status
}

; Call a function out of the program, with the interpreter lock; an exception stays set, and ends the run.
define void @pullback_call(ptr %context, i64 %number, ptr %addresses) nounwind {
entry:
  %code_at = getelementptr i8, ptr %context, i64 $CONTEXT_FAILURE_CODE
  %code = load atomic i64, ptr %code_at acquire, align 8
  %well = icmp eq i64 %code, 0
  br i1 %well, label %enter, label %out
enter:
  %calls_at = getelementptr i8, ptr %context, i64 $CONTEXT_CALLS
  %calls = load ptr, ptr %calls_at, align 8
  %object_at = getelementptr ptr, ptr %calls, i64 %number
  %object = load ptr, ptr %object_at, align 8
  %lock = call i32 @PyGILState_Ensure()
  %where = call ptr @PyLong_FromVoidPtr(ptr %addresses)
  %short = icmp eq ptr %where, null
  br i1 %short, label %raised, label %ask
ask:
  %made = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %object, ptr %where, ptr null)
  call void @Py_DecRef(ptr %where)
  %none = icmp eq ptr %made, null
  br i1 %none, label %raised, label %returned
returned:
  call void @Py_DecRef(ptr %made)
  br label %leave
raised:
  %raised_at = getelementptr i8, ptr %context, i64 $CONTEXT_RAISED
  store i64 1, ptr %raised_at, align 8
  ; signals are not looked for any more: their handlers would run with the exception set
  %caller_at = getelementptr i8, ptr %context, i64 $CONTEXT_CALLER
  %caller = load ptr, ptr %caller_at, align 8
  %uncalled = icmp eq ptr %caller, null
  br i1 %uncalled, label %tell, label %note
note:
  %handled_at = getelementptr i8, ptr %caller, i64 16
  store i64 1, ptr %handled_at, align 8
  br label %tell
tell:
  store atomic i64 $INTERRUPTED, ptr %code_at release, align 8
  br label %leave
leave:
  call void @PyGILState_Release(i32 %lock)
  br label %out
out:
  ret void
}

define i64 @pullback_run(ptr %context, ptr %pool, i64 %steps, i64 %flags) nounwind {
entry:
  %caller = alloca [5 x i64], align 8
  %thread_state = getelementptr i8, ptr %caller, i64 $CALLER_THREAD_STATE
  %raised_at = getelementptr i8, ptr %caller, i64 $CALLER_RAISED
  store i64 0, ptr %raised_at, align 8
  %code_at = getelementptr i8, ptr %context, i64 $CONTEXT_FAILURE_CODE
  store atomic i64 0, ptr %code_at monotonic, align 8
  %failing_at = getelementptr i8, ptr %context, i64 $CONTEXT_RAISED
  store i64 0, ptr %failing_at, align 8
  %done_at = getelementptr i8, ptr %context, i64 $CONTEXT_STEPS_DONE
  store i64 0, ptr %done_at, align 8
  %none = icmp eq i64 %steps, 0
  br i1 %none, label %nothing, label %something
nothing:
  ret i64 $STATUS_DONE
something:
  %releasing = and i64 %flags, $RELEASE_LOCK
  %releases = icmp ne i64 %releasing, 0
  br i1 %releases, label %release, label %choose
release:
  %now = call i64 @milliseconds()
  store i64 %now, ptr %caller, align 8
  %mode_at = getelementptr i8, ptr %caller, i64 $CALLER_MODE
  %mode = call i64 @flushed(i1 false)
  store i64 %mode, ptr %mode_at, align 8
  %state = call ptr @PyEval_SaveThread()
  store ptr %state, ptr %thread_state, align 8
  %single = icmp eq i64 %steps, 1
  %caller_or_none = select i1 %single, ptr %caller, ptr null
  br label %choose
choose:
  %interruptible = phi ptr [null, %something], [%caller_or_none, %release]
  %caller_at = getelementptr i8, ptr %context, i64 $CONTEXT_CALLER
  store ptr %interruptible, ptr %caller_at, align 8
  %pooled = and i64 %flags, $USE_POOL
  %may_share = icmp ne i64 %pooled, 0
  br i1 %may_share, label %count, label %alone
count:
  %started_at = getelementptr i8, ptr %pool, i64 $POOL_STARTED
  %started = load atomic i64, ptr %started_at acquire, align 8
  %alive = add i64 %started, 1
  %wanted_at = getelementptr i8, ptr %pool, i64 $POOL_WANTED
  %wanted = load atomic i64, ptr %wanted_at acquire, align 8
  %width_at = getelementptr i8, ptr %context, i64 $CONTEXT_WIDTH
  %width = load i64, ptr %width_at, align 8
  %two = call i64 @llvm.umin.i64(i64 %alive, i64 %wanted)
  %limit = call i64 @llvm.umin.i64(i64 %two, i64 %width)
  %several = icmp ugt i64 %limit, 1
  br i1 %several, label %take, label %alone
take:
  %busy_at = getelementptr i8, ptr %pool, i64 $POOL_BUSY
  %busy = call i32 @pullback_take(ptr %busy_at)
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %fits, label %alone
fits:
  %epoch_at = getelementptr i8, ptr %context, i64 $CONTEXT_EPOCH
  %epoch = load atomic i64, ptr %epoch_at monotonic, align 8
  %end = add i64 %epoch, %steps
  %room_at = getelementptr i8, ptr %context, i64 $CONTEXT_EPOCH_LIMIT
  %room = load i64, ptr %room_at, align 8
  %crowded = icmp uge i64 %end, %room
  br i1 %crowded, label %restart, label %share
restart:
  call void @restart_epochs(ptr %pool, ptr %context)
  %end_again = add i64 %steps, 1
  %still_crowded = icmp uge i64 %end_again, %room
  br i1 %still_crowded, label %give_up, label %share
give_up:
  call void @pullback_give(ptr %busy_at)
  br label %alone
share:
  %status_shared = call i64 @run_shared(
      ptr %pool, ptr %context, i64 %steps, i64 %limit, i64 %flags, ptr %caller)
  call void @pullback_give(ptr %busy_at)
  br label %back
alone:
  %status_alone = call i64 @run_alone(ptr %context, i64 %steps, i64 %flags, ptr %caller)
  br label %back
back:
  %status_run = phi i64 [%status_shared, %share], [%status_alone, %alone]
  %raised = load i64, ptr %raised_at, align 8
  %failing = load i64, ptr %failing_at, align 8
  %either = or i64 %raised, %failing
  %ended = icmp ne i64 %either, 0
  %status = select i1 %ended, i64 $STATUS_INTERRUPTED, i64 %status_run
  br i1 %releases, label %acquire, label %out
acquire:
  %state_back = load ptr, ptr %thread_state, align 8
  call void @PyEval_RestoreThread(ptr %state_back)
  br label %out
out:
  ret i64 %status
}

declare i64 @llvm.umin.i64(i64, i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare void @Py_DecRef(ptr)
"""


def names() -> dict[str, str]:
    """What the texts call the layout's offsets and numbers."""
    values: dict[str, object] = {
        "ENTRY_BYTES": layout.ENTRY_BYTES,
        "WORD_BYTES": layout.WORD_BYTES,
        "IN_USE_BYTES": layout.IN_USE_BYTES,
        "COUNT_BITS": layout.COUNT_BITS,
        "COUNT_MASK": layout.MAX_CHUNKS,
        "ONE_BACK": 1 << layout.COUNT_BITS,
        "DONE_BYTES": layout.DONE_BYTES,
        "VISIT_SHIFT": layout.VISIT_SHIFT,
        "REPEAT_BEGIN": layout.REPEAT_BEGIN,
        "REPEAT_END": layout.REPEAT_END,
        "INTERRUPTED": layout.INTERRUPTED,
        "STATUS_DONE": layout.STATUS_DONE,
        "STATUS_FAILED": layout.STATUS_FAILED,
        "STATUS_NOT_FINITE": layout.STATUS_NOT_FINITE,
        "STATUS_INTERRUPTED": layout.STATUS_INTERRUPTED,
        "USE_POOL": layout.USE_POOL,
        "RELEASE_LOCK": layout.RELEASE_LOCK,
        "SIGNAL_MILLISECONDS": 50,
        "PATIENCE": 64,
        "ASK_MASK": 1023,
    }
    structures = {
        "CONTEXT": layout.CONTEXT,
        "CALLER": layout.CALLER,
        "ENTRY": layout.ENTRY,
        "POOL": layout.POOL,
    }
    for prefix, offsets in structures.items():
        values.update({f"{prefix}_{name}": offset for name, offset in offsets.items()})
    return {name: str(value) for name, value in values.items()}


def driver_text(architecture: str, system: str = sys.platform) -> str:
    """The driver for an architecture (``x86_64``, ``aarch64``, …) and a system (``sys.platform``)."""
    values = names()
    walks = [
        Template(_WALK).substitute(
            values,
            NAME=name,
            BEFORE=Template(before).substitute(values),
            REGION=Template(region).substitute(values),
        )
        for name, before, region in (
            ("step_alone", "", _REGION_ALONE),
            ("step_shared", BEFORE_SHARED, REGION_SHARED),
        )
    ]
    waits = waiting.waiting_text(architecture, system)
    others = (Template(text).substitute(values) for text in (waits, _CALLER))
    return "\n".join([RANGE, *walks, *others, mode_functions(architecture)])
