"""Ctrl-C at random moments: ``python -m tests.stress.interrupts --count 1000 --what compile``.

Each process is interrupted some times, one time after the other, and must go on with the right result each time.
``--what import`` interrupts fresh processes while they import the package or start the command line. Prints what
happened, with the seed; the exit status tells whether all was well.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

__all__ = ["interrupt_imports", "interrupt_victims", "main"]

ROUNDS = 40
"""Interrupts of one process: a fresh one now and then also loads what is loaded once."""

PATIENCE = 60.0
"""Seconds after which a process hangs."""


class _Process:
    """A victim's process, its lines read by a thread."""

    def __init__(self, what: str, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.stress.victims", what, str(ROUNDS)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        for stream, take in (
            (self.process.stdout, self.lines.put),
            (self.process.stderr, self.errors.append),
        ):
            threading.Thread(target=self._read, args=(stream, take), daemon=True).start()

    @staticmethod
    def _read(stream, take) -> None:
        for line in stream:
            take(line)
        take("")

    def line(self, timeout: float) -> list[str] | None:
        """The next line's words, none at the end, ``None`` if it does not come."""
        try:
            return self.lines.get(timeout=timeout).split()
        except queue.Empty:
            return None

    def end(self) -> str:
        """Kill it if need be; what it said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)  # where it hangs
            time.sleep(0.5)
            self.process.kill()
        self.process.wait()
        time.sleep(0.1)
        return "".join(self.errors)[-6000:]


def interrupt_victims(what: str, count: int, chance: random.Random) -> tuple[Counter[str], list[str]]:
    """Interrupt ``count`` times; how often what came of it, and reports of what went wrong."""
    outcomes: Counter[str] = Counter()
    reports: list[str] = []
    victim: _Process | None = None
    done = started = 0
    while done < count:
        if victim is None:  # with and without a cache, in turns
            victim = _Process(what, os.environ | ({} if started % 2 else {"PULLBACK_CACHE": "off"}))
            started += 1
        words = victim.line(PATIENCE)
        if words == [] and victim.process.wait() == 0:  # it has done its rounds
            victim = None
            continue
        done += 1
        if words and words[0] == "begin":
            time.sleep(chance.uniform(0, 1.5 * float(words[1])))
            for attempt in range(3):  # an interrupt that is dropped in a finaliser comes a second time
                victim.process.send_signal(signal.SIGINT)
                words = victim.line(PATIENCE / 3)
                if words is not None:
                    break
                outcomes["dropped"] += attempt < 2
        if words and words[0] == "right":
            outcomes["right"] += 1
            continue
        status = victim.process.poll()
        outcomes["hung" if words is None else "crashed"] += 1
        reports.append(f"{what} {done}: status {status}\n{victim.end()}")
        victim = None
    if victim is not None:
        victim.end()
    return outcomes, reports


_AGAIN = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begin", flush=True)
try:
    import pullback
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    pass
import pullback
import numpy as np
assert float(pullback.grad(lambda x: np.sum(x * x))(3.0)) == 6.0
print("right", flush=True)
"""


_COMMAND = """
print("begin", flush=True)
from pullback.cli import main
raise SystemExit(main(["--help"]))
"""


def interrupt_imports(count: int, chance: random.Random) -> tuple[Counter[str], list[str]]:
    """Interrupt ``count`` fresh processes: in turns one that imports twice, and the command line."""
    outcomes: Counter[str] = Counter()
    reports = []
    for number in range(count):
        imports = number % 2 == 0
        command = ["-c", _AGAIN if imports else _COMMAND]
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.6))
        process.send_signal(signal.SIGINT)
        try:
            output, errors = process.communicate(timeout=PATIENCE)
            status = process.returncode
            expected = output == "right\n" and status == 0 if imports else status in (0, 130, -signal.SIGINT)
            outcome = "right" if expected else "crashed"
        except subprocess.TimeoutExpired:
            process.kill()
            (_, errors), status, outcome = process.communicate(), None, "hung"
        outcomes[outcome] += 1
        if outcome != "right":
            reports.append(f"import {number}: status {status}\n{errors[-6000:]}")
    return outcomes, reports


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--what", choices=("compile", "call", "fit", "save", "import"), required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    print(f"{options.what}: {options.count} interrupts, seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    if options.what == "import":
        outcomes, reports = interrupt_imports(options.count, chance)
    else:
        outcomes, reports = interrupt_victims(options.what, options.count, chance)
    print("\n".join(reports[:5]))
    print(", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()))
    return int(outcomes["right"] < options.count)


if __name__ == "__main__":
    sys.exit(main())
