"""How threads share the chunks of a region: a part of the walk in ``driver.py``.

The chunks of a region are dealt out in equal ranges, one for each thread, so that from region to region a
thread finds the part of the arrays that is already in its own cache. Each range has a word on a cache line
of its own, from which its owner claims chunks by compare-and-swap, from the front, half of what is left at a
time. A thread that has done its own helps others from the back of theirs, but only if they are not done after
a while: what they have in their caches takes longer to fetch than to work on. What is done stands in a second
word of the range, and only that one do others read while they wait: the owner need not fetch its claims
back. A thread goes on when all ranges are done. A word carries the number of the visit and only ever
grows: nothing is reset between steps, a thread that comes late finds everything claimed and catches up, and a
thread that the system has suspended is waited for only with what it has claimed. A region of a single chunk is
the caller's, whose cache then holds all that such regions hand on to each other; another thread helps even there, but
never where Python is called, which must happen in the thread that has the interpreter lock.
"""

from __future__ import annotations

__all__ = ["SHARING"]

SHARING = """
# The first chunk of a range: the earlier ones get what cannot be dealt out evenly.
def range_start(count: i64, range: i64, ranges: i64) -> i64:
    return (count * range + ranges - 1) // ranges

def share_region(
    context: Context, region: Entry, row: Range, visit: i64, step: i64, iteration: i64, thread: i64, threads: i64,
    scratch: ptr, caller: Caller,
):
    function = region.FUNCTION
    count = region.COUNT
    fresh = visit << VISIT_SHIFT
    complete = (visit + 1) << VISIT_SHIFT
    ranges = threads if threads < context.RANGES else context.RANGES
    # as many ranges as have a chunk, the first ones
    used = count if count < ranges else ranges
    own = thread % ranges
    patience = PATIENCE
    # its own range first, then those of the threads after it
    for helped in range(ranges):
        number = own + helped
        number = number - ranges if number >= ranges else number
        if number >= used or (region.CALLERS != 0 and thread != 0):
            continue
        owns = helped == 0
        there = row[number]
        if not owns:
            over = load(there.DONE, acquire) >= complete
            while not over and patience != 0:
                patience -= 1
                relax(0)
                over = load(there.DONE, acquire) >= complete
            if over:
                continue
        first = range_start(count, number, used)
        length = range_start(count, number + 1, used) - first
        finished = 0
        seen = load(there.CLAIMS, acquire)
        while seen >> VISIT_SHIFT <= visit:
            state = fresh if seen >> VISIT_SHIFT < visit else seen
            front = state & MAX_CHUNKS
            back = state >> COUNT_BITS & MAX_CHUNKS
            if front + back >= length:
                break
            # the owner takes half of what is left: each claim waits until all that it has written is in its cache
            half = (length - front - back + 1) >> 1
            amount = half if owns else 1
            seen, won = exchange(there.CLAIMS, seen, state + (half if owns else (1 << COUNT_BITS)), acquire)
            if not won:
                continue
            chunk = first + (front if owns else length - back - 1)
            end = chunk + amount
            while chunk < end:
                if load(context.FAILURE_CODE, monotonic) != INTERRUPTED:
                    call(void, function, context, step, iteration, chunk, scratch)
                    stopped(caller, context)
                chunk += 1
            finished += amount
            seen = load(there.CLAIMS, acquire)
        if finished == 0:
            continue
        if finished == length:
            # nobody else writes this word in this visit: a store, which need not be waited for
            store(there.DONE, complete, release)
            continue
        reported = load(there.DONE, acquire)
        swapped = False
        while not swapped:
            sum = (fresh if reported < fresh else reported) + finished
            sum = complete if (sum & MAX_CHUNKS) == length else sum
            reported, swapped = exchange(there.DONE, reported, sum, acquire)
    for number in range(used):
        turns = 0
        while load(row[number].DONE, acquire) < complete:
            turns += 1
            relax(turns)
            if (turns & ASK_MASK) == 0:
                # what another thread does in a single chunk may take any time
                stopped(caller, context)
    stopped(caller, context)
"""
