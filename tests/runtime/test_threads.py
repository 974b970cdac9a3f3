"""How many threads: asked for, by the environment, refused."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from pullback.compiler.runtime import threads
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.compiler.target import usable_cores


@pytest.mark.parametrize("count", [0, -1, 1025, 2.0, "2", True, None])
def test_numbers_of_threads_that_are_refused(count):
    with pytest.raises(ValueError, match="from 1 to 1024"):
        set_num_threads(count)


def test_environment_sets_the_number(monkeypatch):
    monkeypatch.setattr(threads, "_wanted", None)
    monkeypatch.delenv("PULLBACK_NUM_THREADS", raising=False)
    assert get_num_threads() == usable_cores()
    monkeypatch.setenv("PULLBACK_NUM_THREADS", "5")
    assert get_num_threads() == 5
    for text in ("0", "many", "-1", "2000", "1.5", "1e1", "²", "9" * 6000):
        monkeypatch.setenv("PULLBACK_NUM_THREADS", text)
        with pytest.raises(ValueError, match="PULLBACK_NUM_THREADS"):
            get_num_threads()


def test_workers_start_when_a_program_needs_them_and_stay(mixing):
    program = mixing()
    count = len(machine().pool._threads) + 3
    set_num_threads(count)
    assert program.entry(np.arange(37), 0) is NotImplemented  # Python has to start the workers first
    program(np.arange(37), 0)
    names = {thread.name for thread in threading.enumerate()}
    assert {f"pullback-{number}" for number in range(1, count)} <= names
    set_num_threads(1)
    assert program.entry(np.arange(37), 0) is not NotImplemented
    set_num_threads(count)
    assert program.entry(np.arange(37), 0) is not NotImplemented
    assert {thread.name for thread in threading.enumerate()} == names


def test_program_runs_where_no_thread_can_be_started(mixing, monkeypatch):
    pool = machine().pool

    def refuse(self):
        raise RuntimeError("can't start new thread")

    set_num_threads(len(pool._threads) + 3)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    state, expected = np.arange(37), np.arange(37)
    mixing()(state, 3)
    set_num_threads(1)
    mixing()(expected, 3)
    np.testing.assert_array_equal(state, expected)


_LEAVING = """
import sys, threading, time
import numpy as np
from pullback.compiler.llvm.function import Module
from pullback.compiler.runtime.engine import load
from pullback.compiler.runtime.layout import region_function
from pullback.compiler.target import Processor
from pullback.compiler.runtime.program import RegionSpec, Program
from pullback.compiler.runtime.threads import set_num_threads

set_num_threads(3)
module = Module()
region_function(module, "nothing")
code = load(module.text(), Processor.host())
program = Program(code, arguments=[], results=[], regions=[RegionSpec("nothing", 5)])
program.run_steps([], 1000, [])
endless = threading.Thread(target=program.run_steps, args=([], 2**40, []), daemon=True)
if sys.argv[1] == "running":
    endless.start()
    time.sleep(0.05)
print("end")
"""


@pytest.mark.parametrize("state", ["idle", "running"])
def test_process_ends_with_workers_asleep_or_at_work(state):
    command = [sys.executable, "-X", "faulthandler", "-c", _LEAVING, state]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")
