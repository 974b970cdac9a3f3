"""What the tests of the compiler share: LLVM text made into code that runs here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from pullback.compiler.codegen.function import Module


class Machine:
    """A module compiled for this processor: code generation only, no optimisation passes."""

    def __init__(self, module: Module) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        parsed = llvm.parse_assembly(module.text())
        parsed.verify()
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
        )
        self.assembly: str = target.emit_assembly(parsed)
        self._engine = llvm.create_mcjit_compiler(parsed, target)
        self._engine.finalize_object()

    def function(self, name: str, result: type | None, *arguments: type) -> Callable[..., object]:
        """A compiled function as ctypes sees it; it keeps the code alive."""
        function = ctypes.CFUNCTYPE(result, *arguments)(self._engine.get_function_address(name))
        function.machine = self  # type: ignore[attr-defined]
        return function

    def map(self, name: str, *operands: np.ndarray) -> np.ndarray:
        """Call ``name(operands..., result, count)``, all of them addresses but the count."""
        operands = tuple(np.ascontiguousarray(operand) for operand in operands)
        result = np.empty_like(operands[0])
        arrays = (*operands, result)
        function = self.function(name, None, *[ctypes.c_void_p] * len(arrays), ctypes.c_int64)
        function(*[array.ctypes.data for array in arrays], result.size)
        return result


@pytest.fixture(scope="session")
def machine() -> Callable[[Module], Machine]:
    """``machine(module)``: the module's functions, ready to be called."""
    return Machine
