"""How threads share the chunks of a region, as LLVM IR text: a part of the walk in ``driver.py``.

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

__all__ = ["BEFORE_SHARED", "RANGE", "REGION_SHARED"]

BEFORE_SHARED = """\
  %words_at = getelementptr i8, ptr %context, i64 $CONTEXT_WORDS
  %words_base = load ptr, ptr %words_at, align 8
  %room_at = getelementptr i8, ptr %context, i64 $CONTEXT_RANGES
  %room = load i64, ptr %room_at, align 8
  %row_bytes = mul i64 %room, $WORD_BYTES
  %ranges = call i64 @llvm.umin.i64(i64 %threads, i64 %room)
  %own = urem i64 %thread, %ranges"""

REGION_SHARED = """\
  %row_offset = mul i64 %index, %row_bytes
  %row = getelementptr i8, ptr %words_base, i64 %row_offset
  %fresh = shl i64 %visit, $VISIT_SHIFT
  %visit_1 = add i64 %visit, 1
  %complete = shl i64 %visit_1, $VISIT_SHIFT
  ; as many ranges as have a chunk, the first ones
  %used = call i64 @llvm.umin.i64(i64 %count, i64 %ranges)
  br label %claims
claims:
  ; its own range first, then those of the threads after it
  %helped = phi i64 [0, %region], [%helped_1, %claimed]
  %patience = phi i64 [$PATIENCE, %region], [%patience_left, %claimed]
  %to_enter = phi i1 [%enters, %region], [%to_enter_yet, %claimed]
  %owns = icmp eq i64 %helped, 0
  %turned = add i64 %own, %helped
  %beyond = icmp uge i64 %turned, %ranges
  %less = select i1 %beyond, i64 %ranges, i64 0
  %range = sub i64 %turned, %less
  %word_offset = mul i64 %range, $WORD_BYTES
  %word_at = getelementptr i8, ptr %row, i64 %word_offset
  %done_at = getelementptr i8, ptr %word_at, i64 $DONE_BYTES
  %any_there = icmp ult i64 %range, %used
  br i1 %any_there, label %look_there, label %claimed
look_there:
  %left_alone = and i1 %callers, %is_worker
  br i1 %left_alone, label %claimed, label %look_whose
look_whose:
  br i1 %owns, label %measure, label %owner_first
owner_first:
  %patience_there = phi i64 [%patience, %look_whose], [%patience_less, %wait_there]
  %done_there = load atomic i64, ptr %done_at acquire, align 8
  %over_there = icmp uge i64 %done_there, %complete
  br i1 %over_there, label %claimed, label %not_over
not_over:
  %impatient = icmp eq i64 %patience_there, 0
  br i1 %impatient, label %measure, label %wait_there
wait_there:
  %patience_less = sub i64 %patience_there, 1
  call void @relax(i64 0)
  br label %owner_first
measure:
  %patience_now = phi i64 [%patience, %look_whose], [0, %not_over]
  %first = call i64 @range_start(i64 %count, i64 %range, i64 %used)
  %range_1 = add i64 %range, 1
  %end_chunk = call i64 @range_start(i64 %count, i64 %range_1, i64 %used)
  %length = sub i64 %end_chunk, %first
  %seen_first = load atomic i64, ptr %word_at acquire, align 8
  br label %claim
claim:
  %seen = phi i64 [%seen_first, %measure], [%seen_again, %lost], [%seen_next, %ran]
  %finished_here = phi i64 [0, %measure], [%finished_here, %lost], [%finished_more, %ran]
  %to_enter_now = phi i1 [%to_enter, %measure], [%to_enter_now, %lost], [false, %ran]
  %seen_visit = lshr i64 %seen, $VISIT_SHIFT
  %newer = icmp ugt i64 %seen_visit, %visit
  br i1 %newer, label %taken_all, label %not_newer
not_newer:
  %older = icmp ult i64 %seen_visit, %visit
  %state = select i1 %older, i64 %fresh, i64 %seen
  %front = and i64 %state, $COUNT_MASK
  %back_shifted = lshr i64 %state, $COUNT_BITS
  %back = and i64 %back_shifted, $COUNT_MASK
  %taken = add i64 %front, %back
  %is_left = icmp ult i64 %taken, %length
  br i1 %is_left, label %try, label %taken_all
try:
  ; the owner takes half of what is left: each claim waits until all that it has written is in its cache
  %left = sub i64 %length, %taken
  %left_1 = add i64 %left, 1
  %half = lshr i64 %left_1, 1
  %amount = select i1 %owns, i64 %half, i64 1
  %claimed_more = select i1 %owns, i64 %half, i64 $ONE_BACK
  %wanted = add i64 %state, %claimed_more
  %exchange = cmpxchg ptr %word_at, i64 %seen, i64 %wanted acq_rel acquire, align 8
  %won = extractvalue {i64, i1} %exchange, 1
  br i1 %won, label %own_some, label %lost
lost:
  %seen_again = extractvalue {i64, i1} %exchange, 0
  br label %claim
own_some:
  %back_1 = add i64 %back, 1
  %mirrored = sub i64 %length, %back_1
  %within = select i1 %owns, i64 %front, i64 %mirrored
  %chunk_first = add i64 %first, %within
  %chunk_end = add i64 %chunk_first, %amount
  br i1 %to_enter_now, label %enter, label %run
enter:
  call void %function(ptr %context, i64 %step, i64 %iteration, i64 %count, ptr %scratch)
  br label %run
run:
  %chunk = phi i64 [%chunk_first, %own_some], [%chunk_first, %enter], [%chunk_1, %chunk_over]
  %code_there = load atomic i64, ptr %code_at monotonic, align 8
  %is_left_out = icmp eq i64 %code_there, $INTERRUPTED
  br i1 %is_left_out, label %chunk_over, label %chunk_run
chunk_run:
  call void %function(ptr %context, i64 %step, i64 %iteration, i64 %chunk, ptr %scratch)
  %stopped_there = call i1 @stopped(ptr %caller, ptr %code_at)
  br label %chunk_over
chunk_over:
  %chunk_1 = add i64 %chunk, 1
  %more_chunks = icmp ult i64 %chunk_1, %chunk_end
  br i1 %more_chunks, label %run, label %ran
ran:
  %finished_more = add i64 %finished_here, %amount
  %seen_next = load atomic i64, ptr %word_at acquire, align 8
  br label %claim
taken_all:
  %any = icmp ne i64 %finished_here, 0
  br i1 %any, label %report, label %claimed
report:
  %alone = icmp eq i64 %finished_here, %length
  br i1 %alone, label %report_all, label %report_part
report_all:
  ; nobody else writes this word in this visit: a store, which need not be waited for
  store atomic i64 %complete, ptr %done_at release, align 8
  br label %claimed
report_part:
  %reported_first = load atomic i64, ptr %done_at acquire, align 8
  br label %reporting
reporting:
  %reported = phi i64 [%reported_first, %report_part], [%reported_again, %reporting]
  %earlier = icmp ult i64 %reported, %fresh
  %reported_now = select i1 %earlier, i64 %fresh, i64 %reported
  %sum = add i64 %reported_now, %finished_here
  %sum_done = and i64 %sum, $COUNT_MASK
  %last_of_all = icmp eq i64 %sum_done, %length
  %report_value = select i1 %last_of_all, i64 %complete, i64 %sum
  %swap = cmpxchg ptr %done_at, i64 %reported, i64 %report_value acq_rel acquire, align 8
  %reported_again = extractvalue {i64, i1} %swap, 0
  %swapped = extractvalue {i64, i1} %swap, 1
  br i1 %swapped, label %claimed, label %reporting
claimed:
  %patience_left = phi i64 [%patience, %claims], [%patience, %look_there], [%patience_there, %owner_first],
      [%patience_now, %taken_all], [%patience_now, %report_all], [%patience_now, %reporting]
  %to_enter_yet = phi i1 [%to_enter, %claims], [%to_enter, %look_there], [%to_enter, %owner_first],
      [%to_enter_now, %taken_all], [%to_enter_now, %report_all], [%to_enter_now, %reporting]
  %helped_1 = add i64 %helped, 1
  %more_ranges = icmp ult i64 %helped_1, %ranges
  br i1 %more_ranges, label %claims, label %waits
waits:
  %waited = phi i64 [0, %claimed], [%waited_1, %waited_for]
  %waited_1 = add i64 %waited, 1
  %offset_there = mul i64 %waited, $WORD_BYTES
  %word_there = getelementptr i8, ptr %row, i64 %offset_there
  %at_there = getelementptr i8, ptr %word_there, i64 $DONE_BYTES
  br label %wait
wait:
  %turns = phi i64 [0, %waits], [%turns_1, %linger], [%turns_1, %ask]
  %word = load atomic i64, ptr %at_there acquire, align 8
  %go = icmp uge i64 %word, %complete
  br i1 %go, label %waited_for, label %linger
linger:
  %turns_1 = add i64 %turns, 1
  call void @relax(i64 %turns_1)
  %turns_low = and i64 %turns_1, $ASK_MASK
  %asks = icmp eq i64 %turns_low, 0
  br i1 %asks, label %ask, label %wait
ask:
  ; what another thread does in a single chunk may take any time
  %stopped_meanwhile = call i1 @stopped(ptr %caller, ptr %code_at)
  br label %wait
waited_for:
  %more_waits = icmp ult i64 %waited_1, %used
  br i1 %more_waits, label %waits, label %region_over"""

RANGE = """
; The first chunk of a range: the earlier ones get what cannot be dealt out evenly.
define internal i64 @range_start(i64 %count, i64 %range, i64 %ranges) nounwind {
  %whole = mul i64 %count, %range
  %less = sub i64 %ranges, 1
  %rounded = add i64 %whole, %less
  %start = udiv i64 %rounded, %ranges
  ret i64 %start
}
"""
