"""Modules compiled side by side: the same bytes in their order, and errors that reach the caller."""

from __future__ import annotations

import ctypes
import threading

import pytest

from pullback.compiler.llvm.function import Module
from pullback.compiler.runtime.compiling import Compilation
from pullback.compiler.runtime.engine import Loaded, compile_object
from pullback.compiler.target import Processor

HOST = Processor.host()


def _chain(count: int) -> list[str]:
    """Parts of a module, a function each, that calls the one of the part before."""
    module, parts = Module(), []
    for number in range(count):
        f = module.function(f"f{number}", [("i64", "x")], result="i64")
        before = f.call("i64", f"f{number - 1}", ("i64", f["x"])) if number else f["x"]
        f.returns(f.value(f"add i64 {before}, {number}"))
        parts.append(module.part())
    return parts


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_objects_are_those_of_one_thread(threads: int) -> None:
    parts = _chain(12)
    with Compilation(HOST, threads) as compilation:
        for part in parts:
            compilation.add(part)
        assert compilation.objects() == [compile_object(part, HOST) for part in parts]


def test_parts_are_linked() -> None:
    code = Loaded([compile_object(part, HOST) for part in _chain(4)], HOST)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("f3"))(100) == 106


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_reaches_the_caller(threads: int) -> None:
    with Compilation(HOST, threads) as compilation:
        for part in _chain(3):
            compilation.add(part)
        compilation.add("define void @f( {")
        with pytest.raises(RuntimeError, match="error"):
            compilation.objects()


def test_leaving_early_ends_the_threads() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), Compilation(HOST, 3) as compilation:
        for part in _chain(6):
            compilation.add(part)
        raise ZeroDivisionError
    assert threading.active_count() == before


def test_a_part_declares_what_others_define() -> None:
    first, second = _chain(2)
    assert "declare i64 @f0(i64)" in second
    assert "define" not in first.replace("define i64 @f0", "")
