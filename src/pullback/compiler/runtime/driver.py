"""The driver that runs a program's schedule on one thread or on several.

All threads walk the same schedule; how they share the chunks of a region stands in ``claiming.py``.

Visits are numbered ``epoch * trips + iteration``; an epoch is a step that was ever run side by
side. A run on the caller alone uses none of this.

``pullback_run`` is the caller's side. Between steps it looks at the watched result, and every 50 ms
it takes the interpreter lock and lets Python handle its signals, so that Ctrl-C stops a long run
between two steps; a single step stops between two chunks, for as long as it has written nothing in place: what the
other threads still claim of the region they leave out. A chunk that may take any time asks by itself.
"""

from __future__ import annotations

__all__ = ["DRIVER"]

DRIVER = """
# Every region of one step, in order; whether one failed.
def walk(context: Context, epoch: i64, step: i64, thread: i64, threads: i64) -> i1:
    table = context.TABLE
    entries = context.ENTRIES
    scratch = context.SCRATCH + context.SCRATCH_STRIDE * thread
    caller = context.CALLER if thread == 0 else None
    flushes = context.FLUSHES != 0
    mode = flushed(flushes)
    index = 0
    visit = epoch
    base = epoch
    while index < entries:
        entry = table[index]
        count = entry.COUNT
        if entry.KIND == REPEAT_BEGIN:
            visit = visit * count
            base = base * count
            index += 1
            continue
        if entry.KIND == REPEAT_END:
            if (visit + 1) % count == 0:
                visit = visit // count
                base = base // count
                index += 1
            else:
                visit += 1
                index = entry.TARGET
            continue
        may_leave = caller if entry.OPEN != 0 else None
        if caller is not None:
            caller.OPEN = entry.OPEN
        if threads == 1:
            chunk = 0
            while chunk < count:
                call(void, entry.FUNCTION, context, step, visit - base, chunk, scratch)
                chunk += 1
                if may_leave is not None and stopped(may_leave, context):
                    break
        else:
            row = context.WORDS[index * context.RANGES]
            share_region(context, entry, row, visit, step, visit - base, thread, threads, scratch, may_leave)
        index += 1
        if load(context.FAILURE_CODE, acquire) != 0:
            unflushed(flushes, mode)
            return True
    unflushed(flushes, mode)
    return False

def pullback_take(word: Ints) -> i32:
    seen, taken = exchange(word[0], 0, 1, monotonic)
    return seen

def pullback_give(word: Ints):
    store(word[0], 0, release)

# Now and then let Python handle its signals; whether a handler raised.
def signal_raised(caller: Caller) -> i1:
    now = milliseconds()
    if now - caller.MILLISECONDS < SIGNAL_MILLISECONDS:
        return False
    caller.MILLISECONDS = now
    mode = flushed(False)
    unflushed(True, caller.MODE)
    PyEval_RestoreThread(caller.THREAD_STATE)
    raised = PyErr_CheckSignals() != 0
    caller.THREAD_STATE = PyEval_SaveThread()
    unflushed(True, mode)
    caller.RAISED = i64(raised)
    return raised

# After a chunk, or a region, of a step that may be left half done (there is a caller): whether to leave it.
def stopped(caller: Caller, context: Context) -> i1:
    if caller is None:
        return False
    if caller.RAISED != 0:
        return True
    if not signal_raised(caller):
        return False
    store(context.FAILURE_CODE, INTERRUPTED, release)
    return True

# In the middle of a chunk, on whatever thread: only the caller's may ask Python.
def pullback_ask(context: Context, scratch: ptr):
    caller = context.CALLER
    if caller is not None and scratch == context.SCRATCH and caller.OPEN != 0:
        stopped(caller, context)

# Record that something is wrong with the values; of several failures that at the lowest position is kept.
def pullback_failure(context: Context, code: i64, position: i64, value: i64):
    while pullback_take(address(context.FAILURE_LOCK)) != 0:
        relax(0)
    known = context.FAILURE_CODE
    before = context.FAILURE_POSITION
    if known == 0 or position < before or (position == before and code < known):
        context.FAILURE_POSITION = position
        context.FAILURE_VALUE = value
        store(context.FAILURE_CODE, code, release)
    pullback_give(address(context.FAILURE_LOCK))

def watched_is_finite(context: Context, step: i64) -> i1:
    slot = Slot(context + context.WATCH_SLOT)
    at = slot.BASE + slot.STRIDE * step
    if context.WATCH_KIND == 1:
        single = Floats(at)[0]
        return single - single == 0
    double = Doubles(at)[0]
    return double - double == 0

# After a step: count it, look at the watched result, and for signals if there are more steps to come.
def after_step(context: Context, step: i64, steps: i64, caller: Caller) -> i64:
    context.STEPS_DONE = step + 1
    if context.WATCH_KIND != 0 and not watched_is_finite(context, step):
        return STATUS_NOT_FINITE
    if caller.THREAD_STATE is not None and step + 1 < steps and signal_raised(caller):
        return STATUS_INTERRUPTED
    return STATUS_DONE

# Steps from a first to a last one, of a run of so many.
def run_alone(context: Context, first: i64, last: i64, steps: i64, caller: Caller) -> i64:
    for step in range(first, last):
        if walk(context, 0, step, 0, 1):
            return STATUS_FAILED
        status = after_step(context, step, steps, caller)
        if status != STATUS_DONE:
            return status
    return STATUS_DONE

# Start the visits of a schedule again; the pool is ours and closed, so nobody enters while we clear.
def restart_epochs(context: Context):
    pullback_quiesce(context)
    for index in range(context.ENTRIES * context.RANGES):
        word = context.WORDS[index]
        store(word.CLAIMS, 0, release)
        store(word.DONE, 0, release)
    store(context.EPOCH, 1, release)

# Whether the visits of so many steps can still be counted.
def counts(context: Context, steps: i64) -> i1:
    if load(context.EPOCH, monotonic) + steps < context.EPOCH_LIMIT:
        return True
    restart_epochs(context)
    return steps + 1 < context.EPOCH_LIMIT

def run_shared(context: Context, start: i64, end: i64, steps: i64, limit: i64, caller: Caller) -> i64:
    pool = context.POOL
    first = load(context.EPOCH, acquire)
    last = first + end - start
    store(pool.CONTEXT, context, release)
    store(pool.START, start, release)
    store(pool.FIRST, first, release)
    store(pool.LAST, last, release)
    store(pool.LIMIT, limit, release)
    generation = load(pool.GENERATION, monotonic)
    store(pool.GENERATION, generation + 1, seq_cst)
    pullback_wake(pool, limit)
    status = STATUS_DONE
    epoch = first
    while epoch < last and status == STATUS_DONE:
        step = start + epoch - first
        if walk(context, epoch, step, 0, limit):
            status = STATUS_FAILED
        else:
            status = after_step(context, step, steps, caller)
            epoch += 1
            if status == STATUS_DONE:
                store(context.EPOCH, epoch, release)
    store(context.EPOCH, last, release)
    store(pool.GENERATION, generation + 2, seq_cst)
    if status == STATUS_FAILED:
        # regions after the failure were never claimed: nobody may walk towards them once the failure is cleared
        pullback_quiesce(context)
    return status

# Call a function out of the program, with the interpreter lock; an exception stays set, and ends the run.
def pullback_call(context: Context, number: i64, addresses: ptr):
    if load(context.FAILURE_CODE, acquire) != 0:
        return
    lock = PyGILState_Ensure()
    if not called_well(context.CALLS[number], addresses):
        context.RAISED = 1
        # signals are not looked for any more: their handlers would run with the exception set
        caller = context.CALLER
        if caller is not None:
            caller.RAISED = 1
        store(context.FAILURE_CODE, INTERRUPTED, release)
    PyGILState_Release(lock)

def called_well(function: ptr, addresses: ptr) -> i1:
    where = PyLong_FromVoidPtr(addresses)
    if where is None:
        return False
    made = PyObject_CallFunctionObjArgs(function, where, None)
    Py_DecRef(where)
    if made is None:
        return False
    Py_DecRef(made)
    return True

def pullback_run(context: Context, steps: i64) -> i64:
    caller: Caller = reserve(CALLER_BYTES)
    caller.RAISED = 0
    caller.THREAD_STATE = None
    store(context.FAILURE_CODE, 0, monotonic)
    context.RAISED = 0
    context.STEPS_DONE = 0
    context.CALLER = None
    if steps == 0:
        return STATUS_DONE
    releases = steps >= context.RELEASE_FROM
    if releases:
        caller.MILLISECONDS = milliseconds()
        caller.MODE = flushed(False)
        caller.THREAD_STATE = PyEval_SaveThread()
        if steps == 1:
            context.CALLER = caller
    status = STATUS_DONE
    shared = False
    if steps >= context.SHARE_FROM:
        pool = context.POOL
        alive = load(pool.STARTED, acquire) + 1
        wanted = load(pool.WANTED, acquire)
        limit = alive if alive < wanted else wanted
        limit = limit if limit < context.WIDTH else context.WIDTH
        if limit > 1 and pullback_take(address(pool.BUSY)) == 0:
            shared = counts(context, steps)
            if shared:
                status = run_measured(context, steps, limit, caller)
            pullback_give(address(pool.BUSY))
    if not shared:
        status = run_alone(context, 0, steps, steps, caller)
    if caller.RAISED != 0 or context.RAISED != 0:
        status = STATUS_INTERRUPTED
    if releases:
        PyEval_RestoreThread(caller.THREAD_STATE)
    return status
"""
