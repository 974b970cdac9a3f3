"""Subnormal numbers as zeros: a mode of the processor's, of each thread by itself.

Many processors compute with subnormal numbers by microcode, a hundred times slower than with others, and gradients that
vanish over the steps of a long loop go through them. A region whose program flushes them sets the mode when it begins
and gives the thread back as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pullback.compiler.codegen.function import Function
from pullback.compiler.target import Processor

__all__ = ["flushed"]


@contextmanager
def flushed(f: Function, target: Processor, flush: bool = True) -> Iterator[None]:
    """What is written inside computes with zeros for subnormal numbers, if the target is to.

    With ``flush=False`` it does not: it is a call of what knows nothing of the mode.
    """
    if not target.flush_subnormals or target.architecture not in _MODES:
        yield
        return
    read, write = _MODES[target.architecture]
    before, flag = read(f)
    write(f, f.value(f"or i64 {before}, {flag}" if flush else f"and i64 {before}, {~flag}"))
    yield
    write(f, before)


def _read_mxcsr(f: Function) -> tuple[str, int]:
    place = f.reserve("i32", align=4)
    f.call("void", "llvm.x86.sse.stmxcsr", ("ptr", place))
    word = f.value(f"load i32, ptr {place}, align 4")
    return f.value(f"zext i32 {word} to i64"), 1 << 15 | 1 << 6


def _write_mxcsr(f: Function, value: str) -> None:
    place = f.reserve("i32", align=4)
    f.do(f"store i32 {f.value(f'trunc i64 {value} to i32')}, ptr {place}, align 4")
    f.call("void", "llvm.x86.sse.ldmxcsr", ("ptr", place))


def _read_fpcr(f: Function) -> tuple[str, int]:
    return f.call("i64", "llvm.aarch64.get.fpcr"), 1 << 24


def _write_fpcr(f: Function, value: str) -> None:
    f.call("void", "llvm.aarch64.set.fpcr", ("i64", value))


_MODES: dict[str, tuple[Callable[[Function], tuple[str, int]], Callable[[Function, str], None]]] = {
    "x86_64": (_read_mxcsr, _write_mxcsr),
    "aarch64": (_read_fpcr, _write_fpcr),
}
"""How the word that holds the mode is read, with the bits that flush, and written. Elsewhere there is no such mode."""
