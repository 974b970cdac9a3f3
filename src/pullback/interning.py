"""Tables that keep equal things one: values by key, for as long as somebody else refers to them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Interned"]

_V = TypeVar("_V")
_LEAST = 1024  # entries before the dead ones are looked for


class Interned(Generic[_V]):
    """Values by key, held weakly.

    Entries of dead values are removed when there are twice as many entries as were alive the last time. A callback
    for each of them, as ``WeakValueDictionary`` has, would be Python code that runs wherever a value dies: there
    Ctrl-C would be dropped, because nobody could be told.

    The table is whole between any two instructions, so after a fork in which another thread was at work here, its
    lock is all that has to be made anew.

    >>> class Word(str): pass
    >>> words = Interned()
    >>> a = words.intern("a", lambda: Word("a"))
    >>> words.intern("a", lambda: Word("other")) is a, len(words)
    (True, 1)
    >>> del a
    >>> len(words)
    0
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.references: dict[Any, weakref.ref[Any]] = {}
        """By key a reference to each value, which may be dead."""
        self._limit = _LEAST
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    def intern(self, key: Any, make: Callable[..., _V], *arguments: Any) -> _V:
        """The value of ``key``; where none is alive, ``make(*arguments)``."""
        with self._lock:
            reference = self.references.get(key)
            known: _V | None = None if reference is None else reference()
            return self.enter(key, make(*arguments)) if known is None else known

    def known(self, key: Any) -> _V | None:
        """The value of ``key``, if one is alive."""
        reference = self.references.get(key)
        return None if reference is None else reference()

    def replace(self, key: Any, made: _V) -> _V:
        """Make ``made`` the value of ``key``, whatever that was."""
        self.references[key] = weakref.ref(made)
        if len(self.references) > self._limit:
            self.sweep()
        return made

    def enter(self, key: Any, made: _V) -> _V:
        """The value of ``key``; where none is alive, what has been ``made``."""
        entered = weakref.ref(made)
        reference = self.references.setdefault(key, entered)
        if reference is not entered:
            with self._lock:
                known: _V | None = self.references.setdefault(key, entered)()
                if known is not None:
                    return known
                self.references[key] = entered
        if len(self.references) > self._limit:
            self.sweep()
        return made

    def __len__(self) -> int:
        """How many values are alive."""
        self.sweep()
        return len(self.references)

    def sweep(self) -> None:
        """Remove the entries of dead values, whose keys may hold much."""
        with self._lock:
            entries = self.references.copy().items()  # a finaliser may enter something meanwhile
            dead = [(key, reference) for key, reference in entries if reference() is None]
            for key, reference in dead:
                if self.references.get(key) is reference:
                    del self.references[key]
            self._limit = max(_LEAST, 2 * len(self.references))

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()
