"""The worker pool: Python threads parked in compiled code, and the machine code that all programs share.

Workers sleep on a futex (on Linux; elsewhere they poll, and on Windows every program runs on its
caller) and wake when a caller opens a run. The pool serves one program at a time: whoever finds it
busy runs alone, with the same bits as the result. How many threads there are never shows in a
result.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
import threading

from pullback.compiler.runtime import layout
from pullback.compiler.runtime.engine import Loaded
from pullback.compiler.target import LINE_BYTES, usable_cores
from pullback.errors import ProcessorError
from pullback.undisturbed import undisturbed

__all__ = ["Pool", "get_num_threads", "set_num_threads"]

_wanted: int | None = None
_pools: list[Pool] = []


def set_num_threads(count: int) -> None:
    """Let programs that are worth it run on up to ``count`` threads, the calling one included.

    More threads than cores are allowed; results are the same bits for any number, only slower. Set it before programs
    are compiled: their work comes out even among as many threads as they may use then.
    Raises ``ValueError`` for less than 1 or more than 1024.

    >>> before = get_num_threads()
    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    >>> set_num_threads(before)
    """
    global _wanted
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= layout.MAX_THREADS:
        raise ValueError(f"set_num_threads({count!r}): pass a whole number from 1 to {layout.MAX_THREADS}")
    _wanted = count
    for pool in _pools:
        pool.want(count)


def get_num_threads() -> int:
    """How many threads a program may use; at first ``PULLBACK_NUM_THREADS`` or all cores of this process."""
    return _wanted if _wanted is not None else _default_threads()


def _default_threads() -> int:
    text = os.environ.get("PULLBACK_NUM_THREADS", "").strip()
    if not text:
        return min(usable_cores(), layout.MAX_THREADS)
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= layout.MAX_THREADS:
        raise ProcessorError(
            f"PULLBACK_NUM_THREADS is {text[:40]!r}: set a whole number from 1 to {layout.MAX_THREADS}"
        )
    return int(text)


class Pool:
    """The workers and the control block through which callers reach them."""

    def __init__(self, code: Loaded) -> None:
        self._memory = ctypes.create_string_buffer(layout.POOL_BYTES + LINE_BYTES)
        ctypes.pythonapi.Py_IncRef(
            ctypes.py_object(self._memory)
        )  # workers may look at it until the very end
        self.address = -(-ctypes.addressof(self._memory) // LINE_BYTES) * LINE_BYTES
        worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._worker = worker(code.address("pullback_worker"))
        self._wake = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("pullback_wake"))
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.want(get_num_threads())
        _pools.append(self)
        atexit.register(self.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def _word(self, name: str) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.address + layout.POOL[name])

    def want(self, count: int) -> None:
        """Let runs have up to ``count`` threads; missing workers start before the next run."""
        self._word("WANTED").value = count if sys.platform != "win32" else 1

    def start(self) -> None:
        """Start the workers that are missing; where the system refuses, go on with those that there are."""
        if len(self._threads) + 1 < self._word("WANTED").value:
            undisturbed(self._start)  # two workers of one number would work in the same memory

    def _start(self) -> None:
        with self._lock:
            while len(self._threads) + 1 < self._word("WANTED").value:
                number = len(self._threads) + 1
                thread = threading.Thread(
                    target=self._worker, args=(self.address, number), name=f"pullback-{number}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    self._word("WANTED").value = number
                    break
                self._threads.append(thread)
                self._word("STARTED").value = number

    def stop(self) -> None:
        """Send the workers home, at the interpreter's exit."""
        self._word("STOP").value = 1
        self._word("WANTED").value = 1
        generation = self._word("GENERATION")
        if generation.value % 2 == 0:  # otherwise a daemon thread is inside a run and has to finish it alone
            generation.value += 2
        self._wake(self.address, layout.MAX_THREADS)
        for thread in self._threads:
            thread.join(timeout=1.0)

    def forget(self) -> None:
        """In the child of a fork: there are no workers, and no run is open."""
        ctypes.memset(self.address, 0, layout.POOL_BYTES)
        self._threads = []
        self.want(get_num_threads())
