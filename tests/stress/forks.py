"""Forks while other threads are at work: ``python -m tests.stress.forks --count 500``.

Threads trace, compile and compute; the main thread forks at random moments, and each child must trace, compile and
compute too, with the right results. Prints what happened; the exit status tells whether all was well.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.testing  # numpy imports it when first used, and a fork during an import is Python's own affair

import pullback as pb

__all__ = ["main"]

PATIENCE = 60.0
"""Seconds after which a child hangs."""


def _loss(number: int) -> Callable[[Any], Any]:
    return lambda x: np.sum(np.sin(x @ x.T + number) * 0.5) / x.size


def trace(number: int) -> None:
    """Trace a function and its gradient."""
    pb.trace(pb.grad(_loss(number)), np.ones((8, 4)))


def compile_one(number: int) -> None:
    """Compile a program that no cache has."""
    x = np.linspace(0, 1, 32).reshape(8, 4)
    found = pb.jit(pb.grad(_loss(number)))(x)
    np.testing.assert_allclose(found, pb.grad(_loss(number))(x), rtol=1e-9, atol=1e-12)


class Compute:
    """Calls of one program, long enough to be shared with the workers."""

    def __init__(self) -> None:
        self.x = np.random.default_rng(0).normal(size=(300, 300))
        self.program = pb.jit(lambda x: np.tanh(x @ x) @ x)
        self.expected = self.program(self.x)

    def __call__(self, number: int) -> None:
        np.testing.assert_array_equal(self.program(self.x), self.expected)


def _child(compute: Compute, number: int) -> None:
    faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)
    status = 1
    try:
        trace(number)
        compile_one(number)
        compute(number)
        status = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _ended(child: int) -> str:
    """How the child ended, once it has."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if (found := os.waitpid(child, os.WNOHANG))[0]:
            return "right" if found[1] == 0 else "wrong"
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--what", choices=("trace", "compile", "compute", "all"), default="all")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    print(f"{options.what}: {options.count} forks, seed {options.seed}", flush=True)
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
    os.environ["PULLBACK_CACHE"] = "off"
    faulthandler.enable()
    pb.set_num_threads(3)
    compute = Compute()
    works = {"trace": trace, "compile": compile_one, "compute": compute}
    if options.what != "all":
        works = {options.what: works[options.what]}
    stop = threading.Event()

    def keep_on(work: Callable[[int], None]) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            work(number)

    threads = [threading.Thread(target=keep_on, args=(work,), daemon=True) for work in works.values()]
    for thread in threads:
        thread.start()
    chance = random.Random(options.seed)
    outcomes: Counter[str] = Counter()
    for number in range(options.count):
        time.sleep(chance.uniform(0, 0.05))
        child = os.fork()
        if child == 0:
            _child(compute, 10_000 + number)
        outcomes[_ended(child)] += 1
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
        outcomes["right"] -= thread.is_alive()
    print(", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()))
    return int(outcomes["right"] < options.count)


if __name__ == "__main__":
    sys.exit(main())
