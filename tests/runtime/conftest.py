"""Small programs written by hand, and threads put back to what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pullback.compiler.llvm.function import Module
from pullback.compiler.runtime.engine import Loaded, load
from pullback.compiler.runtime.layout import ARENA, emit_failure, emit_pointer, region_function
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.program import Program, RegionSpec, RepeatSpec
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.compiler.target import Processor
from pullback.graph import Type

CELLS = 37
TURNS = 3
INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def _threads_restored() -> Iterator[None]:
    before = get_num_threads()
    yield
    set_num_threads(before)


def _element(f: Any, base: str, index: str, kind: str = "i64") -> str:
    return f.value(f"getelementptr {kind}, ptr {base}, i64 {index}")


def _mixing_module() -> Module:
    """Two regions that read their neighbours' cells: wrong if one starts before the last one ended."""
    module = Module()
    spread = region_function(module, "spread")
    state = emit_pointer(spread, 1, spread["step"])
    buffer = emit_pointer(spread, ARENA)
    added = emit_pointer(spread, 2, spread["step"])
    following = spread.value(f"add i64 {spread['chunk']}, 1")
    following = spread.value(f"urem i64 {following}, {CELLS}")
    here = spread.value(f"load i64, ptr {_element(spread, state, spread['chunk'])}, align 8")
    there = spread.value(f"load i64, ptr {_element(spread, state, following)}, align 8")
    extra = spread.value(f"load i64, ptr {added}, align 8")
    total = spread.value(f"mul i64 {there}, 3")
    for term in (here, extra, spread["iteration"]):
        total = spread.value(f"add i64 {total}, {term}")
    spread.do(f"store i64 {total}, ptr {_element(spread, buffer, spread['chunk'])}, align 8")

    gather = region_function(module, "gather")
    state = emit_pointer(gather, 1, gather["step"])
    buffer = emit_pointer(gather, ARENA)
    before = gather.value(f"add i64 {gather['chunk']}, {CELLS - 1}")
    before = gather.value(f"urem i64 {before}, {CELLS}")
    here = gather.value(f"load i64, ptr {_element(gather, buffer, gather['chunk'])}, align 8")
    there = gather.value(f"load i64, ptr {_element(gather, buffer, before)}, align 8")
    total = gather.value(f"xor i64 {here}, {gather.value(f'mul i64 {there}, 5')}")
    # the scratch area belongs to this chunk alone: what it writes there it must find again
    gather.do(f"store i64 {total}, ptr {gather['scratch']}, align 8")
    back = gather.value(f"load i64, ptr {gather['scratch']}, align 8")
    gather.do(f"store i64 {back}, ptr {_element(gather, state, gather['chunk'])}, align 8")

    report = region_function(module, "report")
    state = emit_pointer(report, 1, report["step"])
    total_at = emit_pointer(report, 4, report["step"])
    with report.loop("0", str(CELLS), carried=[("i64", "0")]) as loop:
        value = report.value(f"load i64, ptr {_element(report, state, loop.index)}, align 8")
        loop.carry(report.value(f"add i64 {loop.values[0]}, {value}"))
    report.do(f"store i64 {loop.results[0]}, ptr {total_at}, align 8")
    return module


@pytest.fixture(scope="session")
def mixing_code() -> Loaded:
    return load(_mixing_module().text(), Processor.host())


@pytest.fixture
def mixing(mixing_code: Loaded) -> Callable[..., Program]:
    def make(**options: Any) -> Program:
        return Program(
            mixing_code,
            arguments=[Type(INT64, (CELLS,)), Type(INT64, ())],
            results=[Type(INT64, (CELLS,)), Type(INT64, ())],
            donated={0: 0},
            regions=[
                RepeatSpec(TURNS, [RegionSpec("spread", CELLS), RegionSpec("gather", CELLS)]),
                RegionSpec("report"),
            ],
            arena_bytes=8 * CELLS,
            scratch_bytes=8,
            **options,
        )

    return make


@pytest.fixture(scope="session")
def scaling_code() -> Loaded:
    """``scale``: twice the argument, 8 chunks of 4 floats; ``check``: a failure for each negative number."""
    module = Module()
    scale = region_function(module, "scale")
    x, y = (emit_pointer(scale, slot, scale["step"]) for slot in (1, 2))
    factor = scale.value(f"load float, ptr {emit_pointer(scale, 3)}, align 4")
    start = scale.value(f"mul i64 {scale['chunk']}, 4")
    with scale.loop("0", "4") as loop:
        index = scale.value(f"add i64 {start}, {loop.index}")
        value = scale.value(f"load float, ptr {_element(scale, x, index, 'float')}, align 4")
        product = scale.value(f"fmul float {value}, {factor}")
        scale.do(f"store float {product}, ptr {_element(scale, y, index, 'float')}, align 4")

    check = region_function(module, "check")
    x = emit_pointer(check, 1, check["step"])
    value = check.value(f"load float, ptr {_element(check, x, check['chunk'], 'float')}, align 4")
    negative = check.value(f"fcmp olt float {value}, 0.0")
    with check.when(negative):
        emit_failure(check, 7, check["chunk"], check.value(f"fptosi float {value} to i64"))
    machine()  # it has the function that records failures
    return load(module.text(), Processor.host())


@pytest.fixture
def scaling(scaling_code: Loaded) -> Callable[..., Program]:
    def make(donated: bool = False, checked: bool = False, **options: Any) -> Program:
        checks = [RegionSpec("check", 32)] if checked else []
        return Program(
            scaling_code,
            arguments=[Type(FLOAT32, (8, 4))],
            results=[Type(FLOAT32, (8, 4))],
            donated={0: 0} if donated else {},
            regions=[*checks, RegionSpec("scale", 8)],
            constants=[np.float32([2.0])],
            **options,
        )

    return make
