"""Random numbers drawn by NumPy or Python while a function is traced: the program would repeat them for ever.

Where a draw happened cannot be asked of NumPy, but a generator's state tells that one did. The states of the global
generators, and of those that the function can reach, are compared before and after the trace. Only where one has
changed the function is traced again, line by line: that finds the user's line, and tells a draw that happens in every
call from one that happens once (numbers that are drawn when first used and kept) or in another thread.
"""

from __future__ import annotations

import functools
import pickle
import random
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from pullback.errors import TracingError
from pullback.graph.source import Source, is_users, user_frame

__all__ = ["without_draws"]

T = TypeVar("T")
_MOST_OBJECTS = 10_000
"""So many objects are looked at for generators; a function seldom reaches a hundred."""
_PAUSE = 0.02
"""Seconds in which this thread draws nothing: a state that changes in them is another thread's."""
_fresh = threading.local()


def without_draws(trace: Callable[[], T], *roots: Any) -> T:
    """``trace()``; ``roots`` are the function and what else it can reach generators through.

    Raises ``TracingError`` for a draw that every call of the function would make again.
    """
    states = _States(roots)
    before = states.read()
    result = trace()
    if states.read() == before:
        return result
    culprits = []
    for _ in range(2):
        lines = _Lines(states)
        result = lines.run(trace)
        culprits.append(lines.found)
    before = states.read()
    time.sleep(_PAUSE)
    after = states.read()
    for source, name in culprits[0]:
        if (source, name) in culprits[1] and before[name] == after[name]:
            place = "" if source is None else f" (at {source})"
            raise TracingError(
                f"{name} draws random numbers while the function is traced, and the compiled function would give the "
                "same ones in every call; draw with pullback.random, such as pb.random.normal(key, shape), and give "
                f"the key as an argument{place}"
            )
    return result


class _States:
    """The states of all generators that a function may draw from, by what they are called."""

    def __init__(self, roots: tuple[Any, ...]) -> None:
        _count_fresh_seeds()
        self._generators = dict(_reachable(roots))

    def read(self) -> dict[str, bytes]:
        found = {
            "np.random": pickle.dumps(np.random.get_state(legacy=False)),
            "random": pickle.dumps(random.getstate()),
            "a generator without a seed": pickle.dumps(getattr(_fresh, "count", 0)),
        }
        return found | {name: pickle.dumps(_state(generator)) for name, generator in self._generators.items()}


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return getattr(generator, "bit_generator", generator).state


def _count_fresh_seeds() -> None:
    """Count, for each thread, the generators that are seeded by the system: nothing else tells of them."""
    module: Any = sys.modules.get("numpy.random.bit_generator")
    original = getattr(module, "randbits", None)
    if original is None or hasattr(original, "counts"):
        return

    @functools.wraps(original)
    def randbits(bits: int) -> int:
        _fresh.count = getattr(_fresh, "count", 0) + 1
        return original(bits)  # type: ignore[no-any-return]

    randbits.counts = True  # type: ignore[attr-defined]
    module.randbits = randbits


def _reachable(roots: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Generators in the closure, the globals, the arguments and the attributes of functions and objects."""
    stack = [("", root) for root in roots]
    seen: dict[int, Any] = {}
    while stack and len(seen) < _MOST_OBJECTS:
        name, value = stack.pop()
        if id(value) in seen or value is random:
            continue
        seen[id(value)] = value
        if isinstance(
            value, (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
        ):
            yield f"the generator {name.lstrip('.') or 'that it was given'}", value
        else:
            stack += [(f"{name}{step}", part) for step, part in _parts(value)]


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, with the way there."""
    if isinstance(value, types.FunctionType):
        if is_users(value.__code__.co_filename):
            yield from ((f".{name}", part) for name, part in _names(value))
        yield from (("", part) for part in (*(value.__defaults__ or ()), getattr(value, "__wrapped__", None)))
        yield from ((f".{name}", part) for name, part in (value.__kwdefaults__ or {}).items())
        if not is_users(value.__code__.co_filename):
            yield from (("", cell.cell_contents) for cell in value.__closure__ or () if _filled(cell))
    elif isinstance(value, types.MethodType):
        yield from (("", value.__self__), ("", value.__func__))
    elif isinstance(value, functools.partial):
        yield from (("", part) for part in (value.func, value.args, value.keywords))
    elif isinstance(value, type):
        yield from (("", part) for part in vars(value).values() if isinstance(part, types.FunctionType))
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield from (("", part) for part in value)
    elif isinstance(value, dict):
        yield from ((f"[{key!r:.20}]", part) for key, part in value.items())
    elif not isinstance(value, (np.ndarray, types.ModuleType)):
        held = getattr(value, "__dict__", None)  # of a foreign library's object it may be anything
        yield from ((f".{name}", part) for name, part in (held.items() if isinstance(held, dict) else ()))
        if not isinstance(value, (str, bytes, int, float, type(None))):
            yield "", type(value)


def _names(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The values of the names that a function's code reads from outside."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        if _filled(cell):
            yield name, cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, types.ModuleType):
                inside = vars(value)
                if is_users(getattr(value, "__file__", None) or ""):
                    yield from ((f"{name}.{each}", inside[each]) for each in code.co_names if each in inside)
            elif value is not None:
                yield name, value


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


class _Lines:
    """A run of a function in which states are compared at each of the user's lines."""

    def __init__(self, states: _States) -> None:
        self._states = states
        self._last = states.read()
        self._line: Source | None = None
        self.found: dict[tuple[Source | None, str], None] = {}

    def run(self, function: Callable[[], T]) -> T:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return function()
        finally:
            sys.settrace(before)
            self._compare()

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if not is_users(frame.f_code.co_filename) or frame.f_code.co_filename == random.__file__:
            return None
        self._compare()
        self._line = user_frame(frame.f_back if event == "return" else frame)
        return self._trace

    def _compare(self) -> None:
        now = self._states.read()
        for name, state in now.items():
            if state != self._last[name]:
                self.found[self._line, name] = None
        self._last = now
