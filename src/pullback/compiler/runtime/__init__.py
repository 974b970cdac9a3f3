"""What makes machine code run: processor, engine, code cache, worker threads, programs, Python entry.

**What a compiler hands over.** LLVM IR text of a module that defines *region functions*, all of one signature,

    void NAME(ptr context, i64 step, i64 iteration, i64 chunk, ptr scratch)

and the schedule that runs them: a list of ``RegionSpec(NAME, chunks)``, some of them inside
``RepeatSpec(trips, [...])``. One step of a program runs its regions in order. The chunks ``0 …
chunks-1`` of a region run in any order, on any thread, at the same time; the next region starts when
all of them are done. ``step`` is 0 for a plain call and counts the steps of ``Program.run_steps``;
``iteration`` counts the turns of the enclosing ``RepeatSpec`` (0 outside; for nested ones ``outer *
inner_trips + inner``); ``scratch`` is 64-byte aligned memory of ``scratch_bytes`` that belongs to
the chunk while it runs and holds garbage when it starts. What a chunk computes must depend on
nothing else, so results are the same bits for any number of threads: choose the number of chunks
from the shapes, never from the threads (1 to 1023; a region of one chunk is the caller's).

**Where the memory is.** ``context`` holds a table of slots, ``[arena, arguments…, results…,
constants…]``, numbered in this order; each has a base address and a stride in bytes per step.
``emit_pointer`` writes the address:

    f = region_function(module, "scale")                    # f["context"], f["step"], f["iteration"], …
    x = emit_pointer(f, 1, f["step"])              # base + step * stride
    loss = emit_pointer(f, 3, f["step"])           # of two arguments and a result the latter
    temporary = emit_pointer(f, ARENA)             # the arena and constants have no stride

A result that takes over a donated argument's memory has that same address in its own slot. The
arena is 64-byte aligned (2 MiB when large), zero when the program is made, and keeps its contents
from call to call. Addresses of arguments and results are aligned to their elements only.

**Errors.** ``emit_failure(f, code, position, value)`` records a failure (``code`` ≥ 1 is the
compiler's own number, ``position`` and ``value`` are i64 values); the chunk goes on or returns. The
region is completed, no later region starts, and the call raises what ``Program``'s
``explain(Failure)`` returns. Of several failures in one region the one of the lowest position is
kept (then the lowest code), so the report does not depend on threads. A check placed in a region
before the updates leaves donated arguments as they were. The function that records is one of ``machine()``, which
must be there before code is loaded that calls what it has.

**Calls of Python.** ``emit_host_call(f, number, addresses)`` calls ``calls[number]`` of the program with the address of
a table of ``addresses``, in a ``RegionSpec`` of the ``callers``, which no other thread runs. If it raises, no later
region starts, and the call raises that exception.

**Making and calling a program.**

    code = load(text, Processor.host())
    program = Program(code, arguments=[Type(np.dtype("float32"), (3,))], results=[Type(np.dtype("float32"), (3,))],
                      donated={}, regions=[RegionSpec("scale", 1)],
                      arena_bytes=0, scratch_bytes=0, constants=[], cost=100.0, saving=-200.0,
                      watch_result=None, calls=[])
    program(x)                      # a tuple of NumPy arrays; converts what it can, otherwise a clear error
    program.entry(x)                # the compiled function: a tuple, or NotImplemented: use program(...)
    signature = program.signature(trees)                # trees of arguments, for make_function(…, [signature], last)
    program.run(arrays, steps, sliced)                  # the results of many steps, and how many were done
    program.run_steps(arrays, steps, strides)           # the same in arrays of the caller's: steps done

``cost`` is the estimated time of one step on one thread in nanoseconds: short runs are the caller's
alone and keep the interpreter lock. ``saving`` is by how much two threads are faster at a step: where
it is negative, as with many small regions, the caller runs any number of steps alone. Several Python
threads may call one program or many at once; the workers serve one run at a time and every other
run is done by its caller.

Ctrl-C ends a run of several steps between two steps, and a single long step between two chunks, but
not once a region that writes into donated memory has begun; ``steps_done`` says how many steps were
finished. After a run that ended early donated arrays hold the state after that many steps, except after
a failure, where the regions before the failing one have already written theirs.
"""
