"""Calls that Ctrl-C cannot end half done: other threads make them.

Python runs signal handlers in the main thread, between any two instructions, and there Ctrl-C raises: between taking a
lock and the block that gives it back, where that is written in Python, or between a library's call and keeping what it
returned. Other threads see no signals. So what must not be torn apart, LLVM's work first of all, is done by one of
these, while the caller waits; Ctrl-C ends the waiting, and the call goes on and cleans up behind itself.

The threads have only what a signal cannot tear: locks and queues written in C. ``threading.Thread.start``, ``Event``
and ``Condition`` are written in Python; interrupted in them, a thread waits for ever for a lock that nobody gives back.

A fork waits until no such call is under way: the child finds whole what it was working on. So does the interpreter's
end, where a thread inside LLVM would meet the ruins of it.

>>> undisturbed(lambda: 6 * 7)
42
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Job", "completed", "start_thread", "undisturbed"]

_T = TypeVar("_T")

# Windows does not end the waiting for a lock when Ctrl-C is pressed.
_PATIENCE = 0.1 if sys.platform == "win32" else -1.0


class _Here(threading.local):
    """Whether this thread is one of those that make the calls."""

    ours = False


_here = _Here()
_under_way: dict[Any, int] = {}
"""For each call under way a lock that it holds, and the thread that makes it."""
_forks: dict[int, Any] = {}
"""For each thread that is about to fork a lock that it holds until it has."""


class Job(Generic[_T]):
    """A call for another thread to make.

    >>> job = Job(lambda: sum(range(10)))
    >>> job.start()
    >>> job.result()
    45
    """

    def __init__(self, call: Callable[[], _T]) -> None:
        self._calls = [call]
        self._results: list[_T] = []
        self._error: BaseException | None = None
        self._over = False
        self._ended = _thread.allocate_lock()
        self._ended.acquire()

    def start(self) -> None:
        """Have the call made by a thread of its own."""
        start_thread(self.run)

    def run(self) -> None:
        """Make the call in this thread, unless another one has begun it."""
        try:
            call = self._calls.pop()
        except IndexError:
            return
        mark = _enter()
        _here.ours = True
        try:
            self._results.append(call())
        except BaseException as error:  # raised where the result is asked for
            self._error = error
        finally:
            _here.ours = False
            _leave(mark)
            self._over = True
            self._ended.release()

    def result(self) -> _T:
        """What the call returned, once it has; raises what it raised. Ctrl-C ends the waiting, not the call."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def wait(self) -> None:
        """Until the call is over, or was never begun by the thread that is to make it."""
        # Ctrl-C may come between taking the lock and giving it back: whoever waits again must not need it.
        while not self._over:
            if self._ended.acquire(timeout=_PATIENCE):
                self._ended.release()


def start_thread(call: Callable[[], object]) -> None:
    """Make a call in a thread of its own; in this one where the system has none to give."""
    try:
        _thread.start_new_thread(call, ())
    except RuntimeError:
        call()


def undisturbed(call: Callable[[], _T]) -> _T:
    """The result of ``call()``, made by another thread; after Ctrl-C it is made to its end, and nobody waits for it."""
    if _here.ours:
        return call()
    job = Job(call)
    job.start()
    return job.result()


def completed(call: Callable[[], _T]) -> _T:
    """The result of ``call()``; an exception of a signal handler is raised when the call is over.

    A second one is raised at once.
    """
    if _here.ours:
        return call()
    job = Job(call)
    try:
        job.start()
        return job.result()
    finally:
        job.run()  # it may not have come to be started
        job.wait()


def _enter() -> Any:
    """Begin a call, not while a thread forks; what is returned is for ``_leave``."""
    while True:
        mark = _thread.allocate_lock()
        mark.acquire()
        _under_way[mark] = _thread.get_ident()
        forks = list(_forks.values())  # announced first: whoever forks now waits for this call
        if not forks:
            return mark
        _leave(mark)
        for fork in forks:
            with fork:
                pass


def _leave(mark: Any) -> None:
    del _under_way[mark]
    mark.release()


def _wait_for_all() -> bool:
    """Until no other thread makes a call; whether a signal handler raised meanwhile."""
    interrupted = False
    own = _thread.get_ident()
    while marks := [mark for mark, thread in _under_way.copy().items() if thread != own]:
        try:
            for mark in marks:
                with mark:
                    pass
        except BaseException:
            interrupted = True
    return interrupted


def _before_fork() -> None:
    fork = _thread.allocate_lock()
    fork.acquire()
    _forks[_thread.get_ident()] = fork
    if _wait_for_all():
        # What is raised here is dropped. Another thread passes the signal on, which comes to run after the fork.
        start_thread(_thread.interrupt_main)


def _after_fork_in_parent() -> None:
    fork = _forks.pop(_thread.get_ident(), None)
    if fork is not None:
        fork.release()


def _after_fork_in_child() -> None:
    _forks.clear()
    _under_way.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
atexit.register(_wait_for_all)
