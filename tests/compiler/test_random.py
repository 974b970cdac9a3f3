"""Random programs in memory that is fenced in and after every stage of the compiler, arguments given away."""

from __future__ import annotations

import pytest

from pullback.compiler.stages import run_stages
from pullback.compiler.target import Processor
from pullback.testing.programs.compare import donated, plain
from pullback.testing.programs.generate import generate
from pullback.testing.programs.rounding import expected
from pullback.tracing import trace

PROGRAMS = 20


@pytest.mark.parametrize("first", range(0, 2 * PROGRAMS, PROGRAMS))
def test_programs_stay_within_their_arrays(compiler, processor, first):
    for number in range(first, first + PROGRAMS):
        program = generate("fenced", number)
        if program.asked.fails:
            continue
        graph = trace(program.function(), *program.arguments()).graph
        arrays = plain(graph, program.arguments())
        results = compiler.run(graph, arrays, donated(program, graph), processor)
        for k, (found, wanted) in enumerate(zip(results, expected(graph, arrays), strict=True)):
            wrong = wanted.difference(found)
            assert wrong is None, f"program {number}, result {k} is {wrong}\n\n{program.source()}"


DESCRIBED = (
    Processor("znver3", "+avx2,+fma", "x86_64", 32, 16),
    Processor("sapphirerapids", "+avx512f", "x86_64", 64, 32, 48 << 10, 2 << 20),
    Processor("neoverse-v1", "+neon", "aarch64", 16, 32, 64 << 10, 1 << 20),
)


@pytest.mark.parametrize("described", DESCRIBED, ids=lambda described: described.name)
def test_programs_are_the_same_after_every_stage(described):
    for number in range(2 * PROGRAMS):
        program = generate("stages", number)
        if program.asked.fails:
            continue
        graph = trace(program.function(), *program.arguments()).graph
        arrays = plain(graph, program.arguments())
        known = expected(graph, arrays)
        for stage, results in run_stages(graph, arrays, described, donated(program, graph)):
            for k, (found, wanted) in enumerate(zip(results, known, strict=True)):
                wrong = wanted.difference(found)
                assert wrong is None, (
                    f"program {number}, {stage.name}: result {k} is {wrong}\n\n{program.source()}"
                )
