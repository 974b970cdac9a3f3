"""The smallest program that still differs: steps left out, inputs made small and simple."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pullback.testing.programs.compare import Difference, difference
from pullback.testing.programs.program import Input, Program, Step

__all__ = ["shrunk"]

SECONDS = 30.0


def shrunk(
    program: Program,
    found: Difference,
    differs: Callable[[Program], Difference | None] = difference,
    seconds: float = SECONDS,
) -> tuple[Program, Difference]:
    """A smaller program that ``differs`` in the same comparison, looked for as long as ``seconds`` allow."""
    end = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(program):
            if time.monotonic() > end:
                return program, found
            if candidate.asked.fails != program.asked.fails or not _runs(candidate):
                continue
            other = differs(candidate)
            if other is not None and other.compared == found.compared:
                program, found, smaller = candidate, other, True
                break
    return program, found


def _runs(program: Program) -> bool:
    """Whether NumPy computes the program, or refuses it as it should."""
    try:
        program.numpy()
    except Exception:
        return program.asked.fails
    if program.asked.form != "value" and not (program.differentiable() and program.floats()):
        return False
    return not program.asked.fails and bool(program.inputs)


def _candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, the much smaller ones first."""
    yield from _fewer_outputs(program)
    yield from _simpler_question(program)
    yield from _fewer_steps(program)
    yield from _smaller_shapes(program)
    yield from _simpler_inputs(program)


def _fewer_outputs(program: Program) -> Iterator[Program]:
    names = [step.name for step in program.steps]
    for name in names[:-1]:
        if program.outputs != (name,):
            yield replace(program, outputs=(name,)).without_unused()
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield replace(program, outputs=tuple(n for n in program.outputs if n != name)).without_unused()


def _simpler_question(program: Program) -> Iterator[Program]:
    asked = program.asked
    if asked.small:
        yield replace(program, asked=replace(asked, small=False))
    if asked.vectors < 64:
        yield replace(program, asked=replace(asked, vectors=64))
    if asked.donated:
        yield replace(program, asked=replace(asked, donated=()))
    if asked.form == "both":
        yield replace(program, asked=replace(asked, form="value"))
        yield replace(program, asked=replace(asked, form="gradient"))
    if asked.form == "curvature":
        yield replace(program, asked=replace(asked, form="gradient"))
    if asked.loss != "sum":
        yield replace(program, asked=replace(asked, loss="sum"))
    if program.batch is not None:
        inputs = tuple(Input(x.name, x.values[0], x.layout) if x.batched else x for x in program.inputs)
        yield replace(program, inputs=inputs)


def _fewer_steps(program: Program) -> Iterator[Program]:
    """Each step replaced by an operand, or by a new input in its place."""
    try:
        values = dict(next(program.examples()))
        for step in program.steps:
            values[step.name] = _single(program, step.name)
    except Exception:
        values = {}
    for k, step in enumerate(program.steps):
        for operand in dict.fromkeys(step.operands):
            yield _renamed(program, k, operand)
    if program.batch is not None:
        return
    for k, step in enumerate(program.steps):
        value = np.asarray(values[step.name]) if step.name in values else None
        if value is not None and not all(name.startswith("x") for name in step.operands):
            made = Input(f"x{len(program.inputs) + 10}", value)
            yield _renamed(replace(program, inputs=(*program.inputs, made)), k, made.name)


def _single(program: Program, name: str) -> object:
    return replace(program, outputs=(name,)).without_unused().outputs_of(next(program.examples()))[0]


def _renamed(program: Program, k: int, other: str) -> Program:
    """Without step ``k``; ``other`` stands for its result."""
    gone = program.steps[k].name

    def name(old: str) -> str:
        return other if old == gone else old

    steps = [Step(s.name, s.text, tuple(map(name, s.operands))) for s in program.steps if s.name != gone]
    known = {s.name for s in steps}
    outputs = tuple(dict.fromkeys(name(n) for n in program.outputs if name(n) in known))
    if not outputs and steps:
        outputs = (steps[-1].name,)
    return replace(program, steps=tuple(steps), outputs=outputs).without_unused()


def _smaller_shapes(program: Program) -> Iterator[Program]:
    """All axes of one extent cut alike, then single axes."""
    axes = [(k, axis, n) for k, x in enumerate(program.inputs) for axis, n in enumerate(x.values.shape)]
    for extent in sorted({n for _, _, n in axes if n > 1}, reverse=True):
        for less in sorted({1, 2, 3, extent // 2, extent - 1}):
            if 0 < less < extent:
                yield _cut(program, {(k, axis) for k, axis, n in axes if n == extent}, less)
    for k, axis, extent in axes:
        for less in sorted({1, 2, extent // 2, extent - 1}):
            if 0 < less < extent:
                yield _cut(program, {(k, axis)}, less)


def _cut(program: Program, axes: set[tuple[int, int]], less: int) -> Program:
    """These axes of these inputs cut to ``less`` elements."""
    inputs = []
    for k, x in enumerate(program.inputs):
        places = tuple(slice(less if (k, axis) in axes else None) for axis in range(x.values.ndim))
        inputs.append(replace(x, values=x.values[places].copy()))
    return replace(program, inputs=tuple(inputs))


def _simpler_inputs(program: Program) -> Iterator[Program]:
    for k, x in enumerate(program.inputs):
        simple = [replace(x, layout="plain")] if x.layout != "plain" else []
        if x.values.dtype.kind == "f":
            rounded = np.round(x.values, 1)
            counted = (np.arange(x.values.size, dtype=x.values.dtype) + 1).reshape(x.values.shape)
            simple += [replace(x, values=values) for values in (counted, rounded, np.ones_like(rounded))]
        for other in simple:
            same = other.values.tobytes() == x.values.tobytes() and other.layout == x.layout
            if not same and not (other.layout == "plain" and _plainer(x, other)):
                yield replace(program, inputs=(*program.inputs[:k], other, *program.inputs[k + 1 :]))


def _plainer(x: Input, other: Input) -> bool:
    """Whether the values were already as simple as those offered: no turning in circles."""

    def rank(values: np.ndarray) -> int:
        counted = (np.arange(values.size, dtype=values.dtype) + 1).reshape(values.shape)
        for place, simple in enumerate((np.ones_like(values), counted, np.round(values, 1))):
            if values.tobytes() == simple.tobytes():
                return place
        return 3

    return x.layout == "plain" and rank(x.values) <= rank(other.values)
