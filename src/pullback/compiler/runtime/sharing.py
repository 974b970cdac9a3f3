"""Among how many threads the steps of a run are shared: measured from time to time, not only estimated.

Threads exchange something at every region, and how long that takes is for the machine to say: of a step of some ten
microseconds it may be more than is saved, and of a longer one for sixteen threads more than for eight. So a *trial*
does steps with all threads and with about half of them, in turns, and goes on so while fewer are faster; of short
steps down to the caller alone, for which any help may come too late. A trial is a part of the run that it falls into,
or of several calls. There is another when a multiple of its time has passed, a larger one each time that the verdict is
the same, as what was measured may have been another process. Results are the same bits either way.
"""

from __future__ import annotations

__all__ = ["TRIALS"]

TRIALS = """
def nanoseconds(clock: i32) -> i64:
    if SYSTEM == "win32":
        return 0
    time: Words = reserve(16)
    clock_gettime(clock, time)
    return time[0] * 1000000000 + time[1]

# Begin with as many threads as a run may have, and fewer beside these.
def begin_trial(context: Context, most: i64):
    context.MOST = most
    context.THREADS = most
    context.NANOSECONDS = LONGEST
    context.SPENT = 0
    try_threads(context, fewer(context, most))

# The next power of two below so many threads, whose workers are whole ranks, so that nobody else is woken with them; or
# 0, also where only the caller would be left of a longer step.
def fewer(context: Context, threads: i64) -> i64:
    if threads == 1:
        return 0
    below = 1 << (rank_of(threads - 1) - 1)
    return 0 if below == 1 and context.STEP_NANOSECONDS >= LONGEST_TRIED_ALONE else below

def try_threads(context: Context, threads: i64):
    context.TRIED = threads
    context.TRIED_NANOSECONDS = LONGEST
    context.ROWS = 0
    context.PARTS = 0
    context.PASSED = 0

# Whether the next part of a trial has the threads that are tried. Parts with one number come in rows: in the first of
# them threads wake up, and fetch what others have in their caches.
def tries(context: Context) -> i1:
    return context.ROWS % 2 == 1

# What so many steps took in a part of a trial; after enough of them, which number of threads is the better one.
def pullback_weigh(context: Context, taken: i64, steps: i64):
    each = taken // steps
    context.SPENT += taken
    context.PASSED += taken
    context.PARTS += 1
    if tries(context):
        if each < context.TRIED_NANOSECONDS:
            context.TRIED_NANOSECONDS = each
    elif each < context.NANOSECONDS:
        context.NANOSECONDS = each
    if context.PARTS < PARTS_OF_ROW or context.PASSED < ROW_NANOSECONDS:
        return
    context.ROWS += 1
    context.PARTS = 0
    context.PASSED = 0
    if tries(context):
        return
    one = context.NANOSECONDS
    other = context.TRIED_NANOSECONDS
    if context.ROWS < ROWS_OF_TRIAL and other * 100 <= one * SLOWER_PERCENT:
        return
    faster = other * 100 < one * FASTER_PERCENT
    if faster:
        context.THREADS = context.TRIED
        context.NANOSECONDS = other
    goes_on = faster or context.STEP_NANOSECONDS < LONGEST_TRIED_ALONE
    try_threads(context, fewer(context, context.TRIED) if goes_on else 0)
    if context.TRIED == 0:
        settle(context)

# The end of a trial; so many times as long as it has taken passes until the next one.
def settle(context: Context):
    factor = 2 * context.FACTOR if context.THREADS == context.SETTLED else LEAST_BETWEEN_TRIALS
    factor = factor if factor < MOST_BETWEEN_TRIALS else MOST_BETWEEN_TRIALS
    context.SETTLED = context.THREADS
    context.FACTOR = factor
    context.LEFT = context.SPENT * factor

# The steps of a run in parts, with as many threads as trials say.
def run_measured(context: Context, steps: i64, most: i64, caller: Caller) -> i64:
    if context.STEP_NANOSECONDS == 0 or fewer(context, most) == 0:
        return run_shared(context, 0, steps, steps, most, caller)
    if context.MOST != most:
        begin_trial(context, most)
    status = STATUS_DONE
    done = 0
    while done < steps and status == STATUS_DONE:
        if context.TRIED == 0 and context.LEFT == 0:
            begin_trial(context, most)
        trial = context.TRIED != 0
        each = context.STEP_NANOSECONDS if trial else context.NANOSECONDS
        time = PART_NANOSECONDS if trial else context.LEFT
        part = time // (each + 1) + 1
        part = part if part < steps - done else steps - done
        threads = context.TRIED if trial and tries(context) else context.THREADS
        began = 0
        if trial:
            began = nanoseconds(PRECISE_CLOCK)
        if threads == 1:
            status = run_alone(context, done, done + part, steps, caller)
        else:
            status = run_shared(context, done, done + part, steps, threads, caller)
        if trial:
            if status == STATUS_DONE:
                pullback_weigh(context, nanoseconds(PRECISE_CLOCK) - began, part)
        else:
            passed = part * each
            context.LEFT = time - passed if passed < time else 0
        done += part
    return status
"""
