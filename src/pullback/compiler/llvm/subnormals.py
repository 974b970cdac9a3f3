"""Subnormal numbers as zeros: a mode of the processor's, of each thread by itself.

Many processors compute with subnormal numbers by microcode, a hundred times slower than with others, and gradients that
vanish over the steps of a long loop go through them. A thread that walks the schedule of a program that flushes them
sets the mode when it begins a step, not for each chunk, and is given back as it was at the step's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pullback.compiler.llvm.function import Function, Module
from pullback.compiler.target import Processor

__all__ = ["mode_functions", "switched", "unflushed"]


def switched(f: Function, target: Processor, flush: bool = True) -> Callable[[], None]:
    """What is written next computes with zeros for subnormal numbers, or without, if the target's programs do at all.

    What is returned writes the end of that.
    """
    if not target.flush_subnormals or target.architecture not in _MODES:
        return lambda: None
    read, write = _MODES[target.architecture]
    before, flag = read(f)
    write(f, f.value(f"or i64 {before}, {flag}" if flush else f"and i64 {before}, {~flag}"))
    return lambda: write(f, before)


@contextmanager
def unflushed(f: Function, target: Processor) -> Iterator[None]:
    """A call of what knows nothing of the mode is written inside."""
    end = switched(f, target, flush=False)
    yield
    end()


def mode_functions(architecture: str) -> str:
    """``flushed``, which sets the mode if asked to and gives the one before, and ``unflushed``, which restores it.

    Where there is no such mode they do nothing.
    """
    module = Module()
    f = module.function("flushed", [("i1", "wanted")], "i64", "internal")
    g = module.function("unflushed", [("i1", "wanted"), ("i64", "before")], "void", "internal")
    before = "0"
    if architecture in _MODES:
        read, write = _MODES[architecture]
        before, flag = read(f)
        with f.when(f["wanted"]):
            write(f, f.value(f"or i64 {before}, {flag}"))
        with g.when(g["wanted"]):
            write(g, g["before"])
    f.returns(before)
    return module.text()


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
