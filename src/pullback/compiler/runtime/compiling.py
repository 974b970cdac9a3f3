"""Modules compiled by other threads while this one writes the next.

LLVM works outside the interpreter lock and modules have nothing in common, so a program's parts are compiled side by
side, on as many threads as programs may use. While a module is written there is one thread less: writing is work too.

>>> from pullback.compiler.target import Processor
>>> with Compilation(Processor.host()) as compilation:
...     for name in ("one", "two"):
...         compilation.add(f"define void @{name}() {{\\n  ret void\\n}}")
...     objects = compilation.objects()
>>> [name in data for name, data in zip((b"one", b"two"), objects)]
[True, True]
"""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable
from typing import Any

from pullback.compiler.runtime.engine import compile_object
from pullback.compiler.runtime.threads import get_num_threads
from pullback.compiler.target import Processor, usable_cores
from pullback.undisturbed import Job, start_thread

__all__ = ["Compilation"]


class Compilation:
    """Modules that are compiled in any order and given back as they were added.

    Leaving it drops what nobody has begun; Ctrl-C waits for nothing, a thread then ends with the module that it is at.
    ``threads`` is how many work, the calling one included.
    """

    def __init__(self, processor: Processor, threads: int | None = None) -> None:
        self._processor = processor
        self._limit = min(usable_cores(), get_num_threads()) if threads is None else threads
        self._lock = _thread.allocate_lock()
        self._waiting: deque[Job[Any]] = deque()
        self._at_work = 0
        self._begun: list[Job[Any]] = []
        self._modules: list[Job[bytes]] = []

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()

    def begin(self, call: Callable[[], Any]) -> Job[Any]:
        """Have ``call()`` done on the way."""
        job = Job(call)
        self._begun.append(job)
        self._waiting.append(job)
        self._help()
        return job

    def add(self, text: str) -> None:
        """Have a module compiled."""
        self._modules.append(self.begin(lambda: compile_object(text, self._processor)))

    def objects(self, tell: Callable[[str], None] = lambda _: None) -> list[bytes]:
        """The object files of all modules; raises what went wrong in the first of the calls that did not end well.

        ``tell`` is told of each that is there.
        """
        self._limit += 1  # this thread has nothing to do any more
        self._help()
        for number, job in enumerate(self._begun, 1):
            job.result()
            tell(f"{number} of {len(self._begun)} parts of machine code")
        return [job.result() for job in self._modules]

    def _help(self) -> None:
        """One thread more, if there may be one."""
        with self._lock:
            more = bool(self._waiting) and self._at_work + 1 < self._limit
            self._at_work += more
        if more:
            start_thread(self._work)

    def _work(self) -> None:
        """Do what waits, until nothing does."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._at_work -= 1
                    return
                job = self._waiting.popleft()
            job.run()
