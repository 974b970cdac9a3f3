"""Random programs in any number: ``python -m pullback.testing.programs --count 100000 --seed 1``.

Each program is run by NumPy, the interpreter and compiled code. What differs is shrunk and printed as Python. Programs
run in processes of their own, some hundred in each, so a crash or a hang is a difference as well. The exit status is 1
if there was any; ``--start`` goes on where a run ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

PROGRAMS_OF_A_PROCESS = 200
LONGEST_PROGRAM = 900.0
"""Seconds after which a program counts as hanging: a thousand runs that tell what sign a zero may have take minutes."""
MOST_MEMORY = 8 << 30
"""Bytes of addresses that a process has, where they can be limited: a program that takes more ends itself alone."""


def main() -> int:
    options = _options()
    if options.worker:
        _work(options)
        return 0
    return _Run(options).go()


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m pullback.testing.programs", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many programs (default 1000)")
    parser.add_argument("--seed", help="what they are drawn from (default: a fresh one, which is printed)")
    parser.add_argument("--start", type=int, default=0, help="the number of the first program (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default 1)")
    parser.add_argument(
        "--whole", action="store_true", help="print programs that differ as they are, not shrunk"
    )
    parser.add_argument("--stages", action="store_true", help="compare the program after each stage as well")
    parser.add_argument(
        "--brief",
        action="store_true",
        help="leave out the programs for any size and those inside transformations",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seed = options.seed or secrets.token_hex(4)
    return options


def _work(options: Any) -> None:
    """Run programs; a line of JSON before each one and one after it."""
    from pullback.testing.programs.compare import difference, wrong_stage
    from pullback.testing.programs.generate import generate
    from pullback.testing.programs.shrink import shrunk

    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, resource.RLIM_INFINITY))
    # Programs that have one of their own for some size say so; here nobody wants to know.
    logging.getLogger("pullback.jit").setLevel(logging.ERROR)
    # LAPACK prints what it does not like about infinite numbers: with the warnings, not among the lines.
    with os.fdopen(os.dup(1), "w") as lines:
        os.dup2(2, 1)
        for number in range(options.start, options.start + options.count):
            print(json.dumps({"begun": number}), file=lines, flush=True)
            program = generate(options.seed, number)
            found = difference(program, options.stages, options.brief)
            said = {"number": number, "kind": program.kind, "steps": [step.text for step in program.steps]}
            if found is not None:
                # Shrinking may meet another difference that ends the process: this one is told first.
                first = {"differs": number, "what": str(found), "source": program.source()}
                print(json.dumps(first), file=lines, flush=True)
                if not options.whole:
                    program, found = shrunk(
                        program, found, lambda candidate: difference(candidate, options.stages, options.brief)
                    )
                said |= {"what": str(found), "source": program.source()}
                if found.compared == "compiled against interpreted":
                    said["stage"] = wrong_stage(program) or "every stage is right: the code is wrong"
            print(json.dumps(said), file=lines, flush=True)


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    number: int
    stop: int
    """The program it is at, and the first one that is not its own."""
    since: float = field(default_factory=time.monotonic)
    pending: dict[str, Any] | None = None
    """A difference that is being shrunk."""
    heard: bool = False


class _Run:
    def __init__(self, options: Any) -> None:
        self.options = options
        self.next = options.start
        self.stop = options.start + options.count
        self.kinds: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.differences: list[int] = []
        self.began = time.monotonic()
        self.lines: queue.Queue[tuple[_Worker, str]] = queue.Queue()
        self.workers: list[_Worker] = []

    def go(self) -> int:
        """Keep the processes busy until all programs are done."""
        print(
            f"{self.options.count} programs of seed {self.options.seed!r}, from number {self.options.start}",
            flush=True,
        )
        told = self.began
        try:
            while True:
                while len(self.workers) < self.options.jobs and self.next < self.stop:
                    first, self.next = self.next, min(self.stop, self.next + PROGRAMS_OF_A_PROCESS)
                    self._begin(first, self.next)
                if not self.workers:
                    break
                with contextlib.suppress(queue.Empty):
                    self._heard(*self.lines.get(timeout=1.0))
                for worker in list(self.workers):
                    if time.monotonic() - worker.since > LONGEST_PROGRAM:
                        worker.process.kill()
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    self._progress()
        except KeyboardInterrupt:
            first = min([worker.number for worker in self.workers], default=self.next)
            print(f"\nto go on: --seed {self.options.seed} --start {first} --count {self.stop - first}")
            for worker in self.workers:
                worker.process.kill()
            return 130
        self._progress()
        for kind, count in self.kinds.most_common():
            print(f"{count:8d}  {kind}")
        print(f"{len(self.words)} functions and methods, the rarest: ", end="")
        print(", ".join(f"{word} ({count})" for word, count in self.words.most_common()[:-9:-1]))
        print("differences: " + (", ".join(map(str, sorted(self.differences))) or "none"))
        return 1 if self.differences else 0

    def _begin(self, first: int, stop: int) -> None:
        command = [sys.executable, "-m", "pullback.testing.programs", "--worker", "--seed", self.options.seed]
        command += ["--start", str(first), "--count", str(stop - first)] + ["--whole"] * self.options.whole
        command += ["--stages"] * self.options.stages + ["--brief"] * self.options.brief
        environment = {**os.environ, "PULLBACK_CACHE": "off"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        worker = _Worker(process, first, stop)
        self.workers.append(worker)
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        with worker.process.stdout as lines:
            for line in lines:
                self.lines.put((worker, line))
        self.lines.put((worker, ""))

    def _heard(self, worker: _Worker, line: str) -> None:
        if line:
            message = json.loads(line)
            worker.heard = True
            worker.since = time.monotonic()
            if "begun" in message:
                worker.number = message["begun"]
            elif "differs" in message:
                worker.pending = message
            else:
                self._done(worker, message)
            return
        self.workers.remove(worker)
        status = worker.process.wait()
        if status and not worker.heard:
            raise SystemExit(f"the process of programs {worker.number} to {worker.stop - 1} did not begin")
        if status:
            what = worker.pending or {
                "what": f"the process ended with status {status}",
                "source": self._source(worker.number),
            }
            self._differs(worker.number, what)
            if worker.number + 1 < worker.stop:
                self._begin(worker.number + 1, worker.stop)

    def _done(self, worker: _Worker, message: dict[str, Any]) -> None:
        worker.pending = None
        self.kinds[message["kind"]] += 1
        for text in message["steps"]:
            for word in text.replace("(", " ( ").split():
                if word.startswith(("np.", "pb.")) or ("." in word and word.startswith("{0}")):
                    self.words[word.split("[")[0]] += 1
        if "what" in message:
            self._differs(message["number"], message)

    def _source(self, number: int) -> str:
        from pullback.testing.programs.generate import generate

        return generate(self.options.seed, number).source()

    def _differs(self, number: int, message: dict[str, Any]) -> None:
        self.differences.append(number)
        print(
            f"\n# seed {self.options.seed!r}, program {number}\n# {message['what']}\n{message['source']}",
            flush=True,
        )
        if "stage" in message:
            print("\n".join(f"# {line}" for line in message["stage"].splitlines()), flush=True)

    def _progress(self) -> None:
        done, passed = self.kinds.total(), time.monotonic() - self.began
        print(
            f"{done} done in {passed:.0f} s, {done / max(passed, 1e-9):.1f} a second, "
            f"{len(self.differences)} differ",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
