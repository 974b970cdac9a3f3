"""Every stage run: the operators' cases, and faults made on purpose, which must be found where they were made."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from pullback.compiler.runtime.processor import Processor
from pullback.compiler.stages import check_stages, within
from pullback.graph import Graph, Variable, constant
from pullback.testing import OperatorCase, operator_cases
from pullback.transforms.reverse import cotangents

PROCESSORS = (
    Processor("znver3", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16),
    Processor("sapphirerapids", "+avx512f", "x86_64", 64, 32, l1_bytes=48 << 10, l2_bytes=2 << 20),
    Processor("neoverse-v1", "+neon", "aarch64", 16, 32, l1_bytes=64 << 10, l2_bytes=1 << 20),
)
"""Described, whatever this one is: nothing is made into code."""

CASES: dict[str, list[OperatorCase]] = {}
for _case in operator_cases():
    CASES.setdefault(_case.operator.name, []).append(_case)


def some_processor(name: str) -> Processor:
    """One of the processors, another one for other names."""
    return PROCESSORS[zlib.crc32(name.encode()) % len(PROCESSORS)]


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    inputs, outputs, arrays = [], [], []
    for case in CASES[name]:
        own = [Variable(type, f"x{k}") for k, type in enumerate(case.types)]
        inputs += own
        outputs.append(case.apply(*own))
        arrays += case.arguments()
    check_stages(Graph(tuple(inputs), tuple(outputs)), arrays, some_processor(name))


@pytest.mark.parametrize(
    "name", [name for name, cases in CASES.items() if any(c.differentiable for c in cases)]
)
def test_cotangents(name):
    inputs, outputs, arrays = [], [], []
    random = np.random.default_rng(zlib.crc32(name.encode()))
    for case in CASES[name]:
        own = [Variable(type, f"x{k}") for k, type in enumerate(case.types)]
        result = case.apply(*own)
        active = [own[k] for k in case.differentiable]
        if result.dtype.kind == "f" and active:
            seed = constant(random.standard_normal(result.shape), result.dtype)
            inputs += own
            arrays += case.arguments()
            outputs += [bar for bar in cotangents([result], [seed], active) if bar is not None]
    graph = Graph(tuple(inputs), tuple(outputs))
    check_stages(graph, arrays, some_processor(f"{name}, backwards"), same=within(4096))
