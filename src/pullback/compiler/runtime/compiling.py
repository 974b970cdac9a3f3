"""Modules compiled by other threads while this one writes the next.

LLVM works outside the interpreter lock and modules have nothing in common, so a program's parts are compiled side by
side, on as many threads as programs may use. What is left when this thread has written the last it compiles itself.

>>> from pullback.compiler.runtime.processor import Processor
>>> with Compilation(Processor.host()) as compilation:
...     for name in ("one", "two"):
...         compilation.add(f"define void @{name}() {{\\n  ret void\\n}}")
...     objects = compilation.objects()
>>> [name in data for name, data in zip((b"one", b"two"), objects)]
[True, True]
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pullback.compiler.runtime.engine import compile_object
from pullback.compiler.runtime.processor import Processor, usable_cores
from pullback.compiler.runtime.threads import get_num_threads

__all__ = ["Compilation"]


class Compilation:
    """Modules that are compiled in any order and given back as they were added. Leaving it ends the threads.

    ``threads`` is how many compile, the calling one included.
    """

    def __init__(self, processor: Processor, threads: int | None = None) -> None:
        self._processor = processor
        self._limit = min(usable_cores(), get_num_threads()) if threads is None else threads
        self._waiting: deque[Callable[[], object]] = deque()
        self._helpers: list[threading.Thread] = []
        self._more = threading.Condition()
        self._open = True
        self._objects: list[bytes] = []
        self._error: BaseException | None = None

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        with self._more:
            self._open = False
            self._waiting.clear()
            self._more.notify_all()
        for helper in self._helpers:
            helper.join()

    def begin(self, call: Callable[[], object]) -> None:
        """Have ``call()`` done on the way; its result is not kept."""
        if len(self._helpers) + 1 < self._limit:
            helper = threading.Thread(target=self._help, name=f"pullback-compile-{len(self._helpers)}")
            helper.start()
            self._helpers.append(helper)
        with self._more:
            self._waiting.append(call)
            self._more.notify()

    def add(self, text: str) -> None:
        """Have a module compiled."""
        place = len(self._objects)
        self._objects.append(b"")

        def compile_it() -> None:
            self._objects[place] = compile_object(text, self._processor)

        self.begin(compile_it)

    def objects(self) -> list[bytes]:
        """The object files of all modules; raises what went wrong first in any of the calls."""
        with self._more:
            self._open = False
            self._more.notify_all()
        self._work()
        for helper in self._helpers:
            helper.join()
        if self._error is not None:
            raise self._error
        return self._objects

    def _help(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._waiting or not self._open)
                if not self._waiting:
                    return
            self._work()

    def _work(self) -> None:
        """Do what waits, until nothing does."""
        while True:
            try:
                call = self._waiting.popleft()
            except IndexError:
                return
            try:
                call()
            except BaseException as error:  # raised where the objects are asked for
                self._error = self._error or error
                self._waiting.clear()
