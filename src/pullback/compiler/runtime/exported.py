"""A program as a function that C calls: no Python in between, no object made.

It runs in the thread that calls it. What a call writes lies on its stack, or in memory that it takes from the system
and gives back where the stack would be too small; so any number of threads may be in it at once, with Python's lock
or without.

The schedule is written out: the function calls the program's regions one after another, on numbers of its own
parameters: numbers by value, arrays and results by their addresses; it returns 0, or 1 where something is wrong with
the values. A function of numbers whose one result is a float returns that instead, or NaN; those of ``double`` may come
*packed*, in one array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pullback.compiler.llvm.function import Function, Module, float_literal
from pullback.compiler.llvm.subnormals import switched
from pullback.compiler.runtime import layout
from pullback.compiler.runtime.engine import Loaded, compile_object
from pullback.compiler.runtime.specs import RepeatSpec, Scheduled
from pullback.compiler.target import LINE_BYTES
from pullback.errors import AddressError
from pullback.graph import Type

if TYPE_CHECKING:
    from pullback.compiler.runtime.program import Program

__all__ = ["CFunction"]

_STACK_BYTES = 16 << 10
"""What a call may take of its thread's stack: others have much smaller ones than the first thread."""


class _Kind(NamedTuple):
    """What C, LLVM and ctypes call a type."""

    c: str
    llvm: str
    ctypes: Any


class _Parameter(NamedTuple):
    """A parameter of the function: a number, or the address of the first."""

    name: str
    kind: _Kind
    is_address: bool = False
    is_constant: bool = False


_INT = _Kind("int", "i32", ctypes.c_int)
_KINDS = {
    "bool": _Kind("_Bool", "i8", ctypes.c_bool),
    **{
        f"{sort}{bits}": _Kind(f"{sort}{bits}_t", f"i{bits}", getattr(ctypes, f"c_{sort}{bits}"))
        for sort in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "float32": _Kind("float", "float", ctypes.c_float),
    "float64": _Kind("double", "double", ctypes.c_double),
}
"""The dtypes that C has."""


class CFunction:
    """A compiled function as C sees it; made by ``Compiled.c_function`` and ``Compiled.address``.

    ``address`` is where it lies, for as long as this object is there, ``signature`` its declaration in C, and
    ``ctypes`` the function as ctypes has it, which keeps this object and is what ``scipy.LowLevelCallable`` and Numba
    take.

    >>> import numpy as np
    >>> import pullback as pb
    >>> slope = pb.jit(pb.grad(lambda x: x**3)).c_function(1.0)
    >>> slope
    CFunction(double function(double x0))
    >>> slope.ctypes(2.0)
    12.0
    """

    def __init__(self, program: Program, name: str, packed: bool = False) -> None:
        self._program = program
        self._name = name if name.isidentifier() and name.isascii() else "function"
        self._is_packed = packed
        _refuse(program, name)
        if packed and not (_by_value(program) and all(dtype == np.float64 for dtype in _dtypes(program))):
            raise AddressError(
                f"{name}: numbers that come packed are float64, and so is the one result; this function is "
                f"{_declaration(program, self._name, packed=False)}"
            )
        #: Words for the calls out of the program: addresses of routines.
        routines = [call for call in program.calls if isinstance(call, int)]
        self._calls = (ctypes.c_int64 * max(1, len(routines)))(*routines)
        text = _text(program, packed, ctypes.addressof(self._calls))
        processor = program.code.processor
        self._code = Loaded([compile_object(text, processor)], processor)
        self.address = self._code.address("pullback_exported")
        self.signature = _declaration(program, self._name, packed)

    @property
    def ctypes(self) -> Any:
        """The function for ctypes, which gives the interpreter lock away while it runs."""
        kinds = [
            ctypes.POINTER(p.kind.ctypes) if p.is_address else p.kind.ctypes
            for p in _parameters(self._program, self._is_packed)
        ]
        function = ctypes.CFUNCTYPE(_returned(self._program).ctypes, *kinds)(self.address)
        function.owner = self  # type: ignore[attr-defined]
        return function

    @cached_property
    def packed(self) -> CFunction:
        """The function of the same numbers in one array: ``double f(int n, double *x)``, NaN if ``n`` is another.

        It is what ``scipy.integrate.quad`` with ``args=`` and ``scipy.integrate.nquad`` call.
        """
        return CFunction(self._program, self._name, packed=True)

    def __repr__(self) -> str:
        return f"CFunction({self.signature})"


def _refuse(program: Program, name: str) -> None:
    if program.donated:
        raise AddressError(
            f"{name} has donated arguments, and a C function does not say whose memory is whose: leave out "
            "donate_argnums"
        )
    for call in program.calls:
        if not isinstance(call, int):
            where = getattr(call, "source", None)
            raise AddressError(
                f"{name} calls Python{f' at {where}' if where else ''}, which raises exceptions and wants the "
                "interpreter lock; C has neither: write it in functions that are compiled, or call the function "
                "from Python"
            )
    for dtype in _dtypes(program):
        if dtype.name not in _KINDS:
            raise AddressError(f"{name}: C has no {dtype}; take and return arrays of another dtype")


def _by_value(program: Program) -> bool:
    """Whether numbers come in and one float goes out."""
    results = program.results
    single = len(results) == 1 and not results[0].shape and results[0].dtype.kind == "f"
    return single and not any(spec.shape for spec in program.arguments)


def _dtypes(program: Program) -> list[np.dtype[Any]]:
    return [type.dtype for type in (*program.arguments, *program.results)]


def _parameters(program: Program, packed: bool) -> list[_Parameter]:
    if packed:
        return [_Parameter("n", _INT), _Parameter("x", _kind(program.results[0]), is_address=True)]
    given = [
        _Parameter(f"x{k}", _kind(spec), bool(spec.shape), bool(spec.shape))
        for k, spec in enumerate(program.arguments)
    ]
    made = [_Parameter(f"y{k}", _kind(spec), is_address=True) for k, spec in enumerate(program.results)]
    return given if _by_value(program) else given + made


def _returned(program: Program) -> _Kind:
    return _kind(program.results[0]) if _by_value(program) else _INT


def _kind(spec: Type) -> _Kind:
    return _KINDS[spec.dtype.name]


def _declaration(program: Program, name: str, packed: bool) -> str:
    written = [
        f"{'const ' if p.is_constant else ''}{p.kind.c} {'*' if p.is_address else ''}{p.name}"
        for p in _parameters(program, packed)
    ]
    return f"{_returned(program).c} {name}({', '.join(written) or 'void'})"


def _text(program: Program, packed: bool, calls: int) -> str:
    """The function ``pullback_exported`` as LLVM IR."""
    module = Module()
    by_value, returned = _by_value(program), _returned(program).llvm
    parameters = [("ptr" if p.is_address else p.kind.llvm, p.name) for p in _parameters(program, packed)]
    f = module.function("pullback_exported", parameters, returned)
    context = f.reserve(f"[{layout.slot_offset(program.slots)} x i8]")

    def put(offset: int, kind: str, value: str) -> None:
        f.do(f"store {kind} {value}, ptr {f.ahead(context, 'i8', offset)}, align 8")

    def point(slot: int, kind: str, address: str) -> None:
        put(layout.slot_offset(slot), kind, address)  # in step 0 the bytes per step do not matter

    if packed:
        fits = f.value(f"icmp eq i32 {f['n']}, {len(program.arguments)}")
        f.do(f"br i1 {fits}, label %fits, label %unable")
        f.label("fits")
    for name in ("CALLER", "FAILURE_LOCK", "FAILURE_CODE"):
        put(layout.CONTEXT[name], "i64", "0")
    if program.calls:
        put(layout.CONTEXT["CALLS"], "i64", str(calls))
    places = [_argument(f, packed, k, spec) for k, spec in enumerate(program.arguments)]
    made = [f.reserve(returned) if by_value else f[f"y{k}"] for k in range(len(program.results))]
    for slot, place in enumerate((*places, *made), layout.ARENA + 1):
        point(slot, "ptr", place)
    for slot, constant in enumerate(program.constants, program.slots - len(program.constants)):
        point(slot, "i64", str(constant.ctypes.data))
    arena, scratch, taken = _memory(f, program)
    if program.arena_bytes:
        point(layout.ARENA, "ptr", arena)
    flushed_no_more = switched(f, program.code.processor)
    _write_regions(f, program, program.regions, context, scratch, "0")

    def leave(value: str) -> None:
        flushed_no_more()
        if taken:
            f.call("void", "free", ("ptr", taken))
        f.do(f"ret {returned} {value}")

    wrong = float_literal(returned, float("nan")) if by_value else "1"
    leave(f.value(f"load {returned}, ptr {made[0]}, align 8") if by_value else "0")
    f.label("failed")
    leave(wrong)
    f.label("unable")
    f.returns(wrong)
    return module.text()


def _argument(f: Function, packed: bool, number: int, spec: Type) -> str:
    """Where an argument lies in memory; a number that came by value is put there."""
    if packed:
        return f.value(f"getelementptr double, ptr {f['x']}, i64 {number}")
    if spec.shape:
        return f[f"x{number}"]
    place = f.reserve(_kind(spec).llvm)
    f.do(f"store {_kind(spec).llvm} {f[f'x{number}']}, ptr {place}, align 8")
    return place


def _memory(f: Function, program: Program) -> tuple[str, str, str | None]:
    """The arena, the scratch memory, and what must be given back to the system, if anything."""
    arena, scratch = (
        -(-size // LINE_BYTES) * LINE_BYTES for size in (program.arena_bytes, program.scratch_bytes)
    )
    taken = None
    if arena + scratch <= _STACK_BYTES:
        start = f.reserve(f"[{arena + scratch} x i8]")
    else:
        taken = f.call("ptr", "malloc", ("i64", str(arena + scratch + LINE_BYTES)))
        there = f.value(f"icmp ne ptr {taken}, null")
        f.do(f"br i1 {there}, label %there, label %unable")
        f.label("there")
        number = f.value(f"ptrtoint ptr {taken} to i64")
        aligned = f.value(f"and i64 {f.value(f'add i64 {number}, {LINE_BYTES - 1}')}, -{LINE_BYTES}")
        start = f.value(f"inttoptr i64 {aligned} to ptr")
    return start, f.value(f"getelementptr i8, ptr {start}, i64 {arena}"), taken


def _write_regions(
    f: Function, program: Program, regions: Sequence[Scheduled], context: str, scratch: str, iteration: str
) -> None:
    """Call the regions in order; after one that has found something wrong the function is left."""
    for region in regions:
        if isinstance(region, RepeatSpec):
            if region.trips > 0 and region.regions:
                outer = f.value(f"mul i64 {iteration}, {region.trips}")
                with f.loop("0", str(region.trips)) as turn:
                    inner = f.value(f"add i64 {outer}, {turn.index}")
                    _write_regions(f, program, region.regions, context, scratch, inner)
            continue
        function = f"inttoptr (i64 {program.code.address(region.function)} to ptr)"

        def call(chunk: str, function: str = function) -> None:
            f.do(f"call void {function}(ptr {context}, i64 0, i64 {iteration}, i64 {chunk}, ptr {scratch})")

        if region.chunks == 1:
            call("0")
        else:
            with f.loop("0", str(region.chunks)) as chunk:
                call(chunk.index)
        at = f.ahead(context, "i8", layout.CONTEXT["FAILURE_CODE"])
        code = f.value(f"load i64, ptr {at}, align 8")
        well, on = f.value(f"icmp eq i64 {code}, 0"), f.fresh("on")
        f.do(f"br i1 {well}, label %{on}, label %failed")
        f.label(on)
