"""How threads wait for each other and for work, and the life of a worker.

Waiting is a pause of the core at first, then the rest of the time slice given away, then (for work
only) sleep: on a futex on Linux, by polling on other systems. Nobody waits for a thread as such,
only for chunks to be done.
"""

from __future__ import annotations

__all__ = ["WAITING"]

WAITING = """
# One turn of waiting: a pause at first, then the rest of the time slice to whoever needs the core.
def relax(turns: i64):
    if turns >= PAUSES:
        if SYSTEM == "win32":
            SwitchToThread()
        else:
            sched_yield()
    elif ARCHITECTURE == "x86_64":
        llvm.x86.sse2.pause()
    elif ARCHITECTURE == "aarch64":
        llvm.aarch64.hint(1)

def milliseconds() -> i64:
    if SYSTEM == "win32":
        return GetTickCount64()
    time: Words = reserve(16)
    clock_gettime(CLOCK, time)
    return time[0] * 1000 + time[1] // 1000000

# Sleep for a while, or until woken, if a word still has this value.
def sleep_while(word: ptr, old: i32):
    if SYSTEM == "win32":
        Sleep(1)
    elif FUTEX:
        syscall(FUTEX, word, i32(128), old, None, None, i32(0))
    else:
        usleep(POLL_MICROSECONDS)

def pullback_wake(pool: Pool):
    if FUTEX:
        if load(pool.SLEEPERS, seq_cst) != 0:
            syscall(FUTEX, pool, i32(129), i32(2147483647), None, None, i32(0))

# Until a run is opened or closed, or the workers are sent home; whether there is something to do.
def wait_generation(pool: Pool, old: i64) -> i1:
    turns = 0
    while load(pool.GENERATION, acquire) == old:
        if turns < SPINS:
            turns += 1
            relax(turns)
        else:
            add(pool.SLEEPERS, 1)
            sleep_while(pool, i32(old))
            add(pool.SLEEPERS, -1)
    return load(pool.STOP, acquire) == 0

def worker_steps(context: Context, first: i64, last: i64, thread: i64, threads: i64):
    reached = load(context.EPOCH, acquire)
    epoch = reached if reached > first else first
    while epoch < last and not walk(context, epoch, epoch - first, thread, threads):
        turns = 0
        now = load(context.EPOCH, acquire)
        while now <= epoch:
            turns += 1
            relax(turns)
            now = load(context.EPOCH, acquire)
        epoch = now

def pullback_worker(pool: Pool, thread: i64):
    mine = Worker(address(pool.IN_USE))[thread]
    generation = 0
    while wait_generation(pool, generation):
        generation = load(pool.GENERATION, acquire)
        if (generation & 1) == 0:
            continue
        context = load(pool.CONTEXT, acquire)
        first = load(pool.FIRST, acquire)
        last = load(pool.LAST, acquire)
        limit = load(pool.LIMIT, acquire)
        if thread >= limit:
            continue
        # announce first, then look whether the run is still open: a closing caller sees the one or we see the other
        store(mine.CONTEXT, context, seq_cst)
        if load(pool.GENERATION, seq_cst) == generation:
            worker_steps(context, first, last, thread, limit)
        store(mine.CONTEXT, None, release)

# Wait until no worker is in a context.
def pullback_quiesce(pool: Pool, context: Context):
    for worker in range(1, load(pool.STARTED, acquire) + 1):
        turns = 0
        while load(Worker(address(pool.IN_USE))[worker].CONTEXT, seq_cst) == context:
            turns += 1
            relax(turns)
"""
