"""Calls of routines: at addresses, which the program is told when it is loaded, or written into the program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pullback.compiler.codegen.fourier import define_transform
from pullback.compiler.codegen.marking import define_distinct
from pullback.compiler.codegen.running import define_running
from pullback.compiler.codegen.sorting import define_argsort
from pullback.compiler.codegen.types import literal, scalar_type
from pullback.compiler.llvm.function import Function
from pullback.compiler.runtime.layout import emit_call_word, emit_is_well
from pullback.compiler.target import Processor
from pullback.graph import Type
from pullback.graph.routine import InputAt, OutputAt, Routine, Scalar, WorkAt

__all__ = ["emit_routine"]

TypedPointer = tuple[str, Type]
"""Where an array lies."""
Argument = InputAt | OutputAt | Scalar | WorkAt


def emit_routine(
    f: Function,
    processor: Processor,
    number: int,
    routine: Routine,
    inputs: Sequence[TypedPointer],
    outputs: Sequence[TypedPointer],
) -> None:
    """Call the routine, unless an error is known; its address is the word ``number`` of the program's calls."""
    if not routine.count:
        return
    with f.when(emit_is_well(f)):
        address = _own(f, processor, routine) if routine.address is None else emit_call_word(f, number)
        with f.loop("0", str(routine.count)) as turn:

            def part(place: TypedPointer) -> str:
                at, type = place
                distance = f.value(f"mul i64 {turn.index}, {type.nbytes // routine.count}")
                return f.ahead(at, "i8", distance)

            def emitted(argument: Argument) -> str:
                if isinstance(argument, Scalar):
                    return _scalar(f, argument)
                if isinstance(argument, WorkAt):
                    return f"ptr {f.ahead(outputs[-1][0], 'i8', argument.offset)}"
                if isinstance(argument, InputAt):
                    return f"ptr {part(inputs[argument.number])}"
                target = part(outputs[argument.number])
                if argument.start is not None:
                    source = inputs[argument.start]
                    _copy(f, target, part(source), source[1].nbytes // routine.count)
                return f"ptr {target}"

            given = [emitted(argument) for argument in routine.arguments]
            f.do(f"call void {address}({', '.join(given)})")


def _own(f: Function, processor: Processor, routine: Routine) -> str:
    """The name of a routine that the program has itself; it is written where the first call is."""
    name = f"pullback_{routine.name.replace('.', '_')}"
    if name not in f.module.functions:
        kind, *details = routine.name.split(".")
        if kind == "argsort":
            define_argsort(f.module, name, *details)
        elif kind == "distinct":
            define_distinct(f.module, name)
        elif kind.endswith("fft"):
            define_transform(f.module, processor.lanes(np.dtype(details[0]).itemsize), name, kind, *details)
        else:
            define_running(f.module, processor.lanes(4), name, kind, *details)
    return f"@{name}"


def _scalar(f: Function, scalar: Scalar) -> str:
    kind, value = scalar_type(scalar.dtype), literal(scalar.dtype, scalar.value)
    if scalar.by_value:
        return f"{kind} {value}"
    place = f.reserve(kind, scalar.dtype.itemsize)
    f.do(f"store {kind} {value}, ptr {place}")
    return f"ptr {place}"


def _copy(f: Function, target: str, source: str, size: int) -> None:
    given = ("ptr", target), ("ptr", source), ("i64", str(size)), ("i1", "false")
    f.call("void", "llvm.memcpy.p0.p0.i64", *given)
