"""The program of a seed and a number."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np

from pullback.testing.programs import (  # noqa: F401  (fill the table of families)
    complex_values,
    halves,
    idioms,
    images,
    loops,
    matrices,
    special,
    values,
    vocabulary,
)
from pullback.testing.programs.families import FAMILIES
from pullback.testing.programs.maker import INTEGERS, Maker, Rejected
from pullback.testing.programs.places import refused
from pullback.testing.programs.program import LAYOUTS, LOSSES, Asked, Input, Program

__all__ = ["generate"]

FORMS = ("value", "value", "gradient", "gradient", "gradient", "both", "curvature")
CALLS, WEIGHTS = [call for call, _ in FAMILIES], [weight for _, weight in FAMILIES]
TRIES = 60

SMALL_EXAMPLE, MANY = 20, (67, 131, 261)
"""Elements of a small example's inputs, and how many of these there are now and then: lanes lie along them then."""

VECTORS = 64, 64, 64, 32, 32, 16
"""Bytes of the vectors that programs are compiled for, where the processor has such."""

CORES = 2, 2, 2, 3, 8, 32
"""Cores among which their work is dealt out."""


def generate(seed: int | str, number: int) -> Program:
    """The program number ``number`` of ``seed``: always the same one."""
    attempt = 0
    while True:
        try:
            program = _made(Maker(f"{seed}/{number}/{attempt}"))
        except Rejected:
            program = None
        if program is not None:
            return program
        attempt += 1


def _made(m: Maker) -> Program | None:
    for _ in range(1 + m.below(2)):
        m.input(m.some_shape())
    if m.chance(0.15):
        m.input(m.some_shape(), m.pick((*INTEGERS, np.dtype(bool))))
    wanted = 1 + m.below(m.pick((3, 6, 12)))
    broken = m.chance(0.03)
    for _ in range(TRIES):
        with contextlib.suppress(Rejected):
            m.random.choices(CALLS, WEIGHTS)[0](m)
        if len(m.steps) >= wanted:
            break
    if broken:
        refused(m)
        made = Program(tuple(m.inputs), tuple(m.steps), (m.steps[-1].name,), Asked(fails=True))
        return made.without_unused()
    if not m.steps:
        return None
    names = [step.name for step in m.steps]
    outputs = {names[-1], *(name for name in names[:-1] if m.chance(0.15))}
    program = Program(
        tuple(m.inputs), tuple(m.steps), tuple(n for n in names if n in outputs)
    ).without_unused()
    return _asked(m, program) if program.inputs else None


def _asked(m: Maker, program: Program) -> Program | None:
    """The program with what is asked of it, batches and layouts chosen."""
    form = m.pick(FORMS)
    if not program.differentiable() or not program.floats():
        form = "value"
    if m.chance(0.15):
        program = _batched(m, program)
    # A donated array must be one that can be written.
    donated = tuple(k for k in range(len(program.inputs)) if m.chance(0.6)) if m.chance(0.15) else ()
    inputs = list(program.inputs)
    for k, x in enumerate(inputs):
        if k not in donated and m.chance(0.25):
            inputs[k] = _laid_out(m, x)
    asked = Asked(
        form,
        m.pick(tuple(LOSSES)),
        donated,
        small=m.chance(0.4),
        vectors=m.pick(VECTORS),
        cores=m.pick(CORES),
    )
    made = replace(program, inputs=tuple(inputs), asked=asked)
    try:
        made.numpy()
    except Exception:
        return None
    return made


def _batched(m: Maker, program: Program) -> Program:
    count = m.pick((1, 2, 3, 5))
    if max(x.values.size for x in program.inputs) <= SMALL_EXAMPLE and m.chance(0.4):
        count = m.pick(MANY)
    chosen = [m.chance(0.7) for _ in program.inputs]
    if not any(chosen):
        chosen[0] = True
    inputs = []
    for x, batched in zip(program.inputs, chosen):
        if batched:
            rows = [x.values]
            for _ in range(count - 1):
                # The same values elsewhere: what is an index stays one.
                rows.append(m.numbers.permutation(x.values.reshape(-1)).reshape(x.values.shape))
            inputs.append(Input(x.name, np.stack(rows), batched=True))
        else:
            inputs.append(x)
    return replace(program, inputs=tuple(inputs))


def _laid_out(m: Maker, x: Input) -> Input:
    layout = m.pick(tuple(LAYOUTS))
    if layout == "number" and (x.values.ndim or x.values.dtype not in (np.float64, np.int64, np.bool_)):
        return x
    if x.values.ndim == 0 and layout in ("every second", "column-major"):
        return x
    if not x.values.size and layout == "unaligned":
        return x
    return replace(x, layout=layout)
