"""What the tests of the compiler share: LLVM text made into code, graphs into programs that run fenced in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import llvmlite.binding as llvm
import numpy as np
import pytest

from pullback.compiler.build import Stage, build
from pullback.compiler.kernels.single_evaluation import evaluated_twice
from pullback.compiler.legalise.parts import packed_array
from pullback.compiler.llvm.function import Module
from pullback.compiler.lowering.lower import Lowered
from pullback.compiler.programs.executable import make_executable
from pullback.compiler.runtime.program import Program
from pullback.compiler.target import Processor
from pullback.graph import Graph, float_limits, is_half
from pullback.interpreter import evaluate
from pullback.loops import Kernel, Reduce, walk
from pullback.loops.checker import check_kernel, check_order
from pullback.loops.printer import format_kernel
from pullback.testing.fences import fence, fenced_programs
from pullback.tracing.trace import leaf_type, trace_flat
from pullback.tracing.trees import flatten


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


HOST = replace(Processor.host(), l1_bytes=32 << 10, l2_bytes=1 << 20, cores=2)
"""This processor, with caches and cores that no test has from the machine."""
PROCESSORS = [HOST.limited(size) for size in (64, 32, 16) if size <= HOST.vector_bytes]
"""This processor as it is, and as if it had only narrower vectors."""


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_CACHE", "off")


@pytest.fixture(params=PROCESSORS, ids=lambda processor: f"{processor.vector_bytes}bytes", scope="session")
def processor(request: pytest.FixtureRequest) -> Processor:
    """Each width of vectors that this processor has: for what is run."""
    return request.param


def carries_index(kernel: Kernel) -> bool:
    """Whether a kernel tells which of its values was the largest, so that nobody looks for it by comparing."""
    return any(isinstance(e, Reduce) and e.kind in ("argmax", "argmin") for e in kernel.expressions())


class Compiler:
    """Programs for graphs, their kernels checked after every stage of the way."""

    processors = PROCESSORS

    def __init__(self) -> None:
        self._sound = WeakKeyDictionary[Kernel, set[bool]]()
        self._seen: tuple[Kernel, ...] = ()

    def program(
        self, graph: Graph, donated: Mapping[int, int] | None = None, processor: Processor = HOST
    ) -> Program:
        """The loaded program; ``donated`` offers arguments to results, by number."""
        return make_executable(graph, donated or {}, processor=processor, watch=self.watch).program

    def watch(self, stage: Stage) -> None:
        """Check the kernels that a stage leaves."""
        if stage.lowered is not None and stage.kernels:
            self.check(stage.name, stage.lowered, stage.kernels)

    def check(self, stage: str, lowered: Lowered, kernels: Sequence[Kernel]) -> None:
        """Check kernels, which never change: those that stages before left as they are need no second look."""
        given = {*lowered.arguments, *lowered.constants}
        written = {buffer for kernel in kernels for buffer in kernel.writes()}
        if stage != "donate":  # after it a result that is the argument it takes over is written by none
            assert all(buffer in written for buffer in lowered.outputs if buffer.size), stage
        shared_axes = stage != "lower"  # fusing may put a reduction into another one over the same axis
        for kernel in kernels:
            if shared_axes not in (sound := self._sound.setdefault(kernel, set())):
                check_kernel(kernel, shared_axes)
                sound.add(shared_axes)
            if stage == "fuse":  # but none inside a loop over it
                for store in kernel.stores:
                    sums = [e for e in walk(*store.roots()) if isinstance(e, Reduce)]
                    assert not any({*kernel.axes, *store.inner}.intersection(e.over) for e in sums), stage
        check_order(kernels, given)
        if self._seen == tuple(kernels):
            return
        self._seen = tuple(kernels)
        twice = evaluated_twice(kernel for kernel in kernels if not carries_index(kernel))
        assert twice is None, f"{stage}: {twice!r} is evaluated in two loops, each in an order of its own"

    def run(
        self,
        graph: Graph,
        arrays: Sequence[np.ndarray],
        donated: Mapping[int, int] | None = None,
        processor: Processor = HOST,
    ) -> list[np.ndarray]:
        """The results for ``arrays``, which stay as they are; all memory is fenced."""
        given = [fence(array) for array in arrays]
        with fenced_programs():
            program = self.program(graph, donated, processor)
            taken = program.donated
            results = [
                given[taken[k]] if k in taken else fence(np.zeros(node.shape, node.dtype))
                for k, node in enumerate(graph.outputs)
            ]
            every = [*given, *results]
            program.run_steps(every, 1, [0] * len(every))
        for k, array in enumerate(arrays):
            if k not in taken.values():
                np.testing.assert_array_equal(
                    packed_array(given[k]), packed_array(array), f"argument {k} was written"
                )
        return [np.array(result) for result in results]

    @staticmethod
    def reference(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results by the interpreter."""
        return evaluate(graph, arrays)

    def assert_same(
        self,
        graph: Graph,
        arrays: Sequence[np.ndarray],
        donated: Mapping[int, int] | None = None,
        processor: Processor = HOST,
        rounding: float = 0.0,
    ) -> None:
        """The program and the interpreter agree: ``rounding`` units of 2**-24 or 2**-53 of the largest value."""
        wanted = evaluate(graph, arrays)
        found = self.run(graph, arrays, donated, processor)
        for k, (value, want) in enumerate(zip(found, wanted, strict=True)):
            assert_close(value, want, rounding, f"result {k}, {graph.outputs[k]!r}")


def assert_close(value: np.ndarray, want: np.ndarray, rounding: float, what: str) -> None:
    """Equal types; equal values, floats within ``rounding`` units of the largest finite one."""
    assert (value.dtype, value.shape) == (want.dtype, want.shape), what
    if is_half(want.dtype) and rounding:  # one unit in the last place: what 32 bits say may lie at a middle
        spacing = float(float_limits(want.dtype).eps)
        value, want = value.astype(np.float32), want.astype(np.float32)
        scale = spacing * float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
        np.testing.assert_allclose(value, want, rtol=spacing, atol=scale, equal_nan=True, err_msg=what)
        return
    value, want = packed_array(value), packed_array(want)
    if want.dtype.kind != "f" or not rounding:
        np.testing.assert_array_equal(value, want, what)
        return
    tolerance = rounding * 2.0 ** (-24 if want.dtype.itemsize == 4 else -53)
    finite = np.abs(want[np.isfinite(want)].astype(np.float64))
    scale = tolerance * float(finite.max(initial=0.0))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(value, want, rtol=tolerance, atol=scale, equal_nan=True, err_msg=what)


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    """Compiles, runs and compares programs."""
    return Compiler()


@pytest.fixture(scope="session")
def traced() -> Callable[..., Graph]:
    """``traced(function, *arrays)``: the graph of a function of arrays."""

    def graph(function: Callable[..., Any], *arrays: np.ndarray) -> Graph:
        leaves, structure = flatten((arrays, {}))
        return trace_flat(function, structure, [leaf_type(leaf) for leaf in leaves]).graph

    return graph


@pytest.fixture(scope="session")
def stages(traced: Callable[..., Graph]) -> Callable[..., dict[str, str]]:
    """``stages(function, *shapes)``: the kernels after each stage as text, block by block, for ``float32`` arguments.

    Passes over graphs are left out, so that what is lowered is what the function says.
    """

    def shown(function: Callable[..., Any], *shapes: tuple[int, ...]) -> dict[str, str]:
        graph = traced(function, *(np.zeros(shape, np.float32) for shape in shapes))
        found: dict[str, str] = {}

        def watch(stage: Stage) -> None:
            kernels = "\n".join(format_kernel(kernel) for kernel in stage.kernels)
            found[stage.name] = f"{found[stage.name]}\n\n{kernels}" if stage.name in found else kernels

        some = Processor("generic", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16)
        build(graph, {}, some, passes=(), watch=watch)
        return found

    return shown
