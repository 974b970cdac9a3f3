"""Ctrl-C that Python drops, because it was pressed inside a finaliser or another callback."""

from __future__ import annotations

import sys
import threading
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """While this is open, a ``KeyboardInterrupt`` that Python can only report is kept until ``check`` raises it.

    A signal handler raises wherever the main thread happens to be. What is raised in a ``__del__``, a callback of a
    weak reference or one of ``ctypes`` goes nowhere but to ``sys.unraisablehook``. Handlers stay as they are, and what
    a callback of the user's catches by itself is not seen here.

    >>> import signal
    >>> class Restless:
    ...     def __del__(self):
    ...         signal.default_int_handler(signal.SIGINT, None)
    >>> with Interrupts() as interrupts:
    ...     restless = Restless()
    ...     del restless  # where Python would print "Exception ignored in"
    ...     try:
    ...         interrupts.check()
    ...     except KeyboardInterrupt:
    ...         print("interrupted")
    interrupted
    """

    def __init__(self) -> None:
        self._dropped = False
        self._earlier: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # signal handlers run in no other
            self._earlier, sys.unraisablehook = sys.unraisablehook, self._hook
        return self

    def __exit__(self, *_: object) -> None:
        if sys.unraisablehook == self._hook:
            sys.unraisablehook = self._earlier

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if one was dropped."""
        if self._dropped:
            self._dropped = False
            raise KeyboardInterrupt

    def _hook(self, unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._dropped = True
        else:
            self._earlier(unraisable)
