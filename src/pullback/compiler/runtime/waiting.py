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
    return nanoseconds(CLOCK) // 1000000

# Sleep for a while, or until woken, if a word still has this value.
def sleep_while(word: ptr, old: i32, ranks: i32):
    if SYSTEM == "win32":
        Sleep(1)
    elif FUTEX:
        syscall(FUTEX, word, i32(137), old, None, None, ranks)
    else:
        usleep(POLL_MICROSECONDS)

# Workers are woken by ranks: the first, the next two, the next four, and so on.
def rank_of(thread: i64) -> i64:
    rank = 0
    while thread >> rank != 0:
        rank += 1
    return rank

# Wake those that sleep of the workers of a run with so many threads.
def pullback_wake(pool: Pool, threads: i64):
    if FUTEX:
        sleepers = Ints(address(pool.SLEEPERS))
        ranks = 0
        for rank in range(1, rank_of(threads - 1) + 1):
            if load(sleepers[rank], seq_cst) != 0:
                ranks = ranks | 1 << rank
        if ranks != 0:
            syscall(FUTEX, pool, i32(138), i32(2147483647), None, None, i32(ranks))

# Until a run is opened or closed, or the workers are sent home; whether there is something to do.
def wait_generation(pool: Pool, old: i64, thread: i64, spins: i64) -> i1:
    turns = 0
    while load(pool.GENERATION, acquire) == old:
        if turns < spins:
            turns += 1
            relax(turns)
        else:
            rank = rank_of(thread)
            sleepers = Ints(address(pool.SLEEPERS))
            add(sleepers[rank], 1)
            sleep_while(pool, i32(old), i32(1 << rank))
            add(sleepers[rank], -1)
    return load(pool.STOP, acquire) == 0

def worker_steps(context: Context, start: i64, first: i64, last: i64, thread: i64, threads: i64):
    reached = load(context.EPOCH, acquire)
    epoch = reached if reached > first else first
    while epoch < last and not walk(context, epoch, start + epoch - first, thread, threads):
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
    spins = SPINS
    while wait_generation(pool, generation, thread, spins):
        generation = load(pool.GENERATION, acquire)
        if (generation & 1) == 0:
            continue
        context = load(pool.CONTEXT, acquire)
        start = load(pool.START, acquire)
        first = load(pool.FIRST, acquire)
        last = load(pool.LAST, acquire)
        limit = load(pool.LIMIT, acquire)
        # whoever is not wanted sleeps at once, and leaves the others alone
        spins = SPINS
        if thread >= limit:
            spins = 0
            continue
        # announce first, then look whether the run is still open: a closing caller sees the one or we see the other
        store(mine.CONTEXT, context, seq_cst)
        if load(pool.GENERATION, seq_cst) == generation:
            worker_steps(context, start, first, last, thread, limit)
        store(mine.CONTEXT, None, release)

# Wait until no worker is in a context.
def pullback_quiesce(context: Context):
    pool = context.POOL
    for worker in range(1, load(pool.STARTED, acquire) + 1):
        turns = 0
        while load(Worker(address(pool.IN_USE))[worker].CONTEXT, seq_cst) == context:
            turns += 1
            relax(turns)
"""
