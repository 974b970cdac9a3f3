"""Calls that other threads make: their results, and what an interrupt of the caller does to them."""

from __future__ import annotations

import os
import threading

import pytest

from pullback.undisturbed import Job, completed, undisturbed


def interrupt_when(begun: threading.Event) -> None:
    """Press Ctrl-C once ``begun`` is set."""
    import signal

    def press() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()


def test_errors_reach_the_caller():
    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 // 0)


def test_calls_within_calls():
    assert undisturbed(lambda: undisturbed(threading.get_ident)) != threading.get_ident()


def test_an_interrupt_ends_the_waiting_and_not_the_call():
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        go_on.wait()
        ended.set()

    interrupt_when(begun)
    with pytest.raises(KeyboardInterrupt):
        undisturbed(call)
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(60)


def test_an_interrupt_is_raised_when_the_call_is_complete():
    begun, ended = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        assert not ended.wait(0.2)
        ended.set()

    interrupt_when(begun)
    with pytest.raises(KeyboardInterrupt):
        completed(call)
    assert ended.is_set()


def test_who_was_interrupted_in_waiting_may_wait_again():
    job = Job(lambda: 42)
    job.run()
    job._ended.acquire()  # as Ctrl-C leaves it that comes between taking the lock and giving it back
    assert job.result() == 42


def test_a_job_is_done_once():
    done = []
    job = Job(lambda: done.append(1))
    job.run()
    job.start()
    job.result()
    assert done == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_waits_for_calls_under_way():
    begun, ended = threading.Event(), []
    job = Job(lambda: (begun.set(), threading.Event().wait(0.2), ended.append(True)))
    job.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if ended and undisturbed(lambda: True) else 1)
    assert os.waitpid(child, 0)[1] == 0
