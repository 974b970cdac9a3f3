"""The machine's peak of float32 fused multiply-adds: what "share of the peak" is a share of.

A loop of multiply-adds on values that never leave the registers, with the widest vectors that the processor
has and as many independent chains as it has registers for. Run as ``python benchmarks/peak.py``.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable

import numpy as np

from pullback.compiler.llvm.function import Module
from pullback.compiler.runtime.engine import load
from pullback.compiler.target import Processor

__all__ = ["measure"]

_UNROLLED = 2
_TURNS = 1_000_000


@functools.lru_cache(maxsize=1)
def _kernel() -> tuple[Callable[[int, int], None], int]:
    """The compiled loop, and its floating-point operations a turn."""
    processor = Processor.host()
    lanes = processor.lanes(4)
    chains = processor.vector_registers - 8 if processor.vector_registers > 16 else 12
    vector = f"<{lanes} x float>"
    module = Module()
    width = f'"prefer-vector-width"="{8 * processor.vector_bytes}"'
    f = module.function("peak", [("ptr", "out"), ("i64", "turns")], attributes=f"nounwind {width}")
    # The factors are loaded, so that nothing about them is known when the loop is compiled.
    factor, addend = (
        f.value(f"load {vector}, ptr {address}, align 4")
        for address in (f["out"], f.value(f"getelementptr {vector}, ptr {f['out']}, i64 1"))
    )
    fma = f"{vector} @llvm.fma.v{lanes}f32"
    module.declare(f"{fma}({vector}, {vector}, {vector})")
    with f.loop("0", f["turns"], carried=[(vector, "zeroinitializer")] * chains) as loop:
        values = loop.values
        for _ in range(_UNROLLED):
            values = [
                f.value(f"call {fma}({vector} {factor}, {vector} {value}, {vector} {addend})")
                for value in values
            ]
        loop.carry(*values)
    total = loop.results[0]
    for value in loop.results[1:]:
        total = f.value(f"fadd {vector} {total}, {value}")
    f.do(f"store {vector} {total}, ptr {f['out']}, align 4")
    code = load(module.text(), processor)
    code.make_immortal()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
    return function, 2 * lanes * chains * _UNROLLED


def measure(threads: int, turns: int = _TURNS) -> float:
    """GFLOP/s of ``threads`` threads at once, in one run of about 10 ms."""
    function, flops = _kernel()
    gate = threading.Barrier(threads + 1)

    def work() -> None:
        values = np.full(64, 0.5, np.float32)
        values[:32] = 0.999
        address = values.ctypes.data
        gate.wait()
        function(address, turns)
        gate.wait()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    start = time.perf_counter()
    gate.wait()
    seconds = time.perf_counter() - start
    for worker in workers:
        worker.join()
    return flops * turns * threads / seconds / 1e9


def main() -> None:
    processor = Processor.host()
    print(f"{processor.name}, vectors of {processor.vector_bytes} bytes")
    for threads in range(1, processor.cores + 1):
        rates = sorted(measure(threads) for _ in range(9))
        print(f"{threads} threads: {rates[-1]:.1f} GFLOP/s at best, {rates[4]:.1f} in the median")


if __name__ == "__main__":
    main()
