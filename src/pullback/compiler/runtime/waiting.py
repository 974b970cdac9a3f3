"""How threads wait for each other and for work, and the life of a worker, as LLVM IR text.

Waiting is a pause of the core at first, then the rest of the time slice given away, then (for work
only) sleep: on a futex on Linux, by polling on other systems. Nobody waits for a thread as such,
only for chunks to be done.
"""

from __future__ import annotations

from string import Template

__all__ = ["waiting_text"]

_MONOTONIC = {"darwin": 6, "linux": 6}
"""The numbers of clocks that never go back; of Linux' two the coarse one, which costs least."""

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221}
_PAUSE = {"x86_64": "llvm.x86.sse2.pause()", "aarch64": "llvm.aarch64.hint(i32 1)"}

_PAUSE_DECLARATION = {
    "x86_64": "declare void @llvm.x86.sse2.pause()\n",
    "aarch64": "declare void @llvm.aarch64.hint(i32)\n",
}

_WORKER = """
define internal i1 @wait_generation(ptr %pool, i64 %old) nounwind {
entry:
  %sleepers = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  br label %look
look:
  %turns = phi i64 [0, %entry], [%turns_1, %linger], [%turns, %sleep]
  %now = load atomic i64, ptr %pool acquire, align 8
  %changed = icmp ne i64 %now, %old
  br i1 %changed, label %out, label %still
still:
  %patient = icmp ult i64 %turns, $SPINS
  br i1 %patient, label %linger, label %sleep
linger:
  %turns_1 = add i64 %turns, 1
  call void @relax(i64 %turns_1)
  br label %look
sleep:
  %more = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %low = trunc i64 %old to i32
  call void @sleep_while(ptr %pool, i32 %low)
  %less = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
out:
  %stop_at = getelementptr i8, ptr %pool, i64 $POOL_STOP
  %stop = load atomic i64, ptr %stop_at acquire, align 8
  %go = icmp eq i64 %stop, 0
  ret i1 %go
}

define internal void @worker_steps(ptr %context, i64 %first, i64 %last, i64 %thread, i64 %threads) nounwind {
entry:
  %epoch_at = getelementptr i8, ptr %context, i64 $CONTEXT_EPOCH
  br label %begin
begin:
  %reached = load atomic i64, ptr %epoch_at acquire, align 8
  %late = icmp ugt i64 %reached, %first
  %start = select i1 %late, i64 %reached, i64 %first
  br label %look
look:
  %epoch = phi i64 [%start, %begin], [%now, %wait]
  %more = icmp ult i64 %epoch, %last
  br i1 %more, label %run, label %out
run:
  %step = sub i64 %epoch, %first
  %failed = call i1 @step_shared(ptr %context, i64 %epoch, i64 %step, i64 %thread, i64 %threads)
  br i1 %failed, label %out, label %wait_first
wait_first:
  br label %wait
wait:
  %turns = phi i64 [0, %wait_first], [%turns_1, %linger]
  %now = load atomic i64, ptr %epoch_at acquire, align 8
  %go = icmp ugt i64 %now, %epoch
  br i1 %go, label %look, label %linger
linger:
  %turns_1 = add i64 %turns, 1
  call void @relax(i64 %turns_1)
  br label %wait
out:
  ret void
}

define void @pullback_worker(ptr %pool, i64 %thread) nounwind {
entry:
  %context_at = getelementptr i8, ptr %pool, i64 $POOL_CONTEXT
  %first_at = getelementptr i8, ptr %pool, i64 $POOL_FIRST
  %last_at = getelementptr i8, ptr %pool, i64 $POOL_LAST
  %limit_at = getelementptr i8, ptr %pool, i64 $POOL_LIMIT
  %mine = mul i64 %thread, $IN_USE_BYTES
  %mine_offset = add i64 %mine, $POOL_IN_USE
  %in_use = getelementptr i8, ptr %pool, i64 %mine_offset
  br label %top
top:
  %old = phi i64 [0, %entry], [%generation, %open], [%generation, %closed], [%generation, %leave]
  %go = call i1 @wait_generation(ptr %pool, i64 %old)
  br i1 %go, label %look, label %out
look:
  %generation = load atomic i64, ptr %pool acquire, align 8
  %odd = and i64 %generation, 1
  %is_open = icmp ne i64 %odd, 0
  br i1 %is_open, label %open, label %closed
closed:
  br label %top
open:
  %context = load atomic ptr, ptr %context_at acquire, align 8
  %first = load atomic i64, ptr %first_at acquire, align 8
  %last = load atomic i64, ptr %last_at acquire, align 8
  %limit = load atomic i64, ptr %limit_at acquire, align 8
  %invited = icmp ult i64 %thread, %limit
  br i1 %invited, label %enter, label %top
enter:
  ; announce first, then look whether the run is still open: a closing caller sees the one or we see the other
  store atomic ptr %context, ptr %in_use seq_cst, align 8
  %generation_now = load atomic i64, ptr %pool seq_cst, align 8
  %still = icmp eq i64 %generation_now, %generation
  br i1 %still, label %take_part, label %leave
take_part:
  call void @worker_steps(ptr %context, i64 %first, i64 %last, i64 %thread, i64 %limit)
  br label %leave
leave:
  store atomic ptr null, ptr %in_use release, align 8
  br label %top
out:
  ret void
}

define void @pullback_quiesce(ptr %pool, ptr %context) nounwind {
entry:
  %started_at = getelementptr i8, ptr %pool, i64 $POOL_STARTED
  %started = load atomic i64, ptr %started_at acquire, align 8
  br label %next
next:
  %worker = phi i64 [1, %entry], [%worker_1, %free]
  %more = icmp ule i64 %worker, %started
  br i1 %more, label %look_first, label %out
look_first:
  %offset = mul i64 %worker, $IN_USE_BYTES
  %offset_all = add i64 %offset, $POOL_IN_USE
  %in_use = getelementptr i8, ptr %pool, i64 %offset_all
  br label %look
look:
  %turns = phi i64 [0, %look_first], [%turns_1, %linger]
  %there = load atomic ptr, ptr %in_use seq_cst, align 8
  %inside = icmp eq ptr %there, %context
  br i1 %inside, label %linger, label %free
linger:
  %turns_1 = add i64 %turns, 1
  call void @relax(i64 %turns_1)
  br label %look
free:
  %worker_1 = add i64 %worker, 1
  br label %next
out:
  ret void
}
"""

_RELAX = """
; One turn of waiting: a pause at first, then the rest of the time slice to whoever needs the core.
define internal void @relax(i64 %turns) nounwind {
entry:
  %early = icmp ult i64 %turns, $PAUSES
  br i1 %early, label %short, label %long
short:
  $PAUSE
  ret void
long:
  $YIELD
  ret void
}
"""

_POSIX = """
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
define internal i64 @milliseconds() nounwind {
  %time = alloca [2 x i64], align 8
  %result = call i32 @clock_gettime(i32 $MONOTONIC, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %nano_at = getelementptr i8, ptr %time, i64 8
  %nano = load i64, ptr %nano_at, align 8
  %thousands = mul i64 %seconds, 1000
  %part = sdiv i64 %nano, 1000000
  %sum = add i64 %thousands, %part
  ret i64 %sum
}
"""

_FUTEX = """
declare i64 @syscall(i64, ...)
define internal void @sleep_while(ptr %word, i32 %old) nounwind {
  %result = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 128, i32 %old, ptr null, ptr null, i32 0)
  ret void
}
define void @pullback_wake(ptr %pool) nounwind {
entry:
  %sleepers_at = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %sleepers = load atomic i32, ptr %sleepers_at seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %call, label %out
call:
  %result = call i64 (i64, ...) @syscall(
      i64 $FUTEX, ptr %pool, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}
"""

# Without a futex workers poll; 200 microseconds are short beside the programs that use workers.
_POLL = """
declare i32 @usleep(i32)
define internal void @sleep_while(ptr %word, i32 %old) nounwind {
  %result = call i32 @usleep(i32 200)
  ret void
}
define void @pullback_wake(ptr %pool) nounwind {
  ret void
}
"""

_WINDOWS = """
declare i32 @SwitchToThread()
declare i64 @GetTickCount64()
declare void @Sleep(i32)
define internal i64 @milliseconds() nounwind {
  %now = call i64 @GetTickCount64()
  ret i64 %now
}
define internal void @sleep_while(ptr %word, i32 %old) nounwind {
  call void @Sleep(i32 1)
  ret void
}
define void @pullback_wake(ptr %pool) nounwind {
  ret void
}
"""


def waiting_text(architecture: str, system: str) -> str:
    """The functions for an architecture and a system; the names of the layout are still to be filled in."""
    pause = _PAUSE.get(architecture)
    values = {
        "PAUSE": f"call void @{pause}" if pause else "",
        "YIELD": f"%result = call i32 @{'SwitchToThread' if system == 'win32' else 'sched_yield'}()",
        "MONOTONIC": str(_MONOTONIC.get(system, 1)),
        "FUTEX": str(_FUTEX_NUMBER.get(architecture, 0)),
        "PAUSES": "1000",
        "SPINS": "2000",
    }
    if system == "win32":
        parts = [_WORKER, _RELAX, _WINDOWS]
    elif system.startswith("linux") and architecture in _FUTEX_NUMBER:
        parts = [_WORKER, _RELAX, _POSIX, _FUTEX]
    else:
        parts = [_WORKER, _RELAX, _POSIX, _POLL]
    parts += [_PAUSE_DECLARATION[architecture]] if pause else []
    return Template("".join(parts)).safe_substitute(values)
