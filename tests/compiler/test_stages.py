"""Every stage run: the operators' cases, and faults made on purpose, which must be found where they were made."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from pullback.compiler import plan as planning
from pullback.compiler.kernels.donate import arrange
from pullback.compiler.lowering.lower import Lowered
from pullback.compiler.passes import PASSES
from pullback.compiler.passes.rewriting import RulePass
from pullback.compiler.regions.memory import MemoryPlan
from pullback.compiler.regions.steps import Group, Region
from pullback.compiler.stages import check_stages, run_stages, within
from pullback.compiler.target import Processor
from pullback.errors import IndexRangeError, StageError
from pullback.graph import OPERATORS, Graph, Variable, constant, is_complex, is_float
from pullback.loops import Apply, Kernel, Literal
from pullback.testing import OperatorCase, operator_cases
from pullback.transforms.reverse import cotangents

PROCESSORS = (
    Processor("znver3", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16),
    Processor("sapphirerapids", "+avx512f", "x86_64", 64, 32, 48 << 10, 2 << 20),
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
        if is_float(result.dtype) and active:
            values = random.standard_normal(result.shape)
            if is_complex(result.dtype):
                values = values + 1j * random.standard_normal(result.shape)
            seed = constant(values, result.dtype)
            inputs += own
            arrays += case.arguments()
            outputs += [bar for bar in cotangents([result], [seed], active) if bar is not None]
    graph = Graph(tuple(inputs), tuple(outputs))
    check_stages(graph, arrays, some_processor(f"{name}, backwards"), same=lambda *_: within(4096))


# -- faults made on purpose


def off_by_one(kernel: Kernel) -> Kernel:
    """The kernel with 1 added to what it stores first."""
    store, *others = kernel.stores
    value = Apply("add", (store.value, Literal(1, store.value.dtype)), store.value.dtype)
    return kernel.with_stores((replace(store, value=value), *others))


def first_off(kernels: Iterable[Kernel]) -> list[Kernel]:
    first, *rest = kernels
    return [off_by_one(first), *rest]


def lowered_off(lowered: Lowered) -> Lowered:
    lowered.kernels = first_off(lowered.kernels)
    return lowered


def without_first(kernels: Iterable[Kernel]) -> list[Kernel]:
    return list(kernels)[1:]


def in_one_region(regions: list[Region]) -> list[Region]:
    """All groups side by side, though some need others."""
    return [Region([group for region in regions for group in region.groups])]


def in_one_group(regions: list[Region]) -> list[Region]:
    """A kernel that needs all rows in the row group of the kernel that makes them."""
    rows = regions[0].groups[0]
    for region in regions[1:]:
        rows.jobs += [job for group in region.groups for job in group.jobs]
    return [Region([Group(rows.rows, rows.jobs, max(1, rows.rows // 4))])]


def overlapping(memory: MemoryPlan) -> MemoryPlan:
    assert len(memory.placed) > 1
    return replace(memory, placed=tuple(replace(p, offset=0) for p in memory.placed))


def rows_too_short(memory: MemoryPlan) -> MemoryPlan:
    """Every chunk is at the same elements of what chunks keep to themselves."""
    assert memory.kept
    return replace(memory, kept={buffer: replace(kept, row_bytes=0) for buffer, kept in memory.kept.items()})


def network(x, w, v):
    h = np.tanh(x @ w)
    h = h / np.sqrt((h * h).mean(1, keepdims=True))
    return np.tanh(h @ v).sum(0), h.sum(0)


NETWORK = [(200, 30), (30, 70), (70, 70)]
FAULTS = [
    ("lower", "lower", lowered_off, network, NETWORK),
    ("fuse", "fuse", first_off, network, NETWORK),
    ("canonicalise", "canonicalise", off_by_one, network, NETWORK),
    ("few rows last", "few_rows_last", first_off, network, NETWORK),
    ("split", "split_sums", without_first, lambda x: (x * x).sum(), [(100_000,)]),
    ("pack reread", "pack_reread", first_off, network, NETWORK),
    ("materialise indices", "materialise_indices", first_off, network, NETWORK),
    ("compact", "compact_masked", first_off, network, NETWORK),
    ("pack", "pack", first_off, lambda x, w: x @ w.T, [(9, 40), (40, 40)]),
    ("donate", "arrange", lambda made: (made[0][::-1], made[1]), network, NETWORK),
    ("regions", "make_regions", in_one_region, network, NETWORK),
    ("regions", "make_regions", in_one_group, network, NETWORK),
    ("memory", "plan_memory", overlapping, network, NETWORK),
    ("memory", "plan_memory", rows_too_short, network, NETWORK),
]


@pytest.mark.parametrize(
    "stage, name, fault, function, shapes", FAULTS, ids=[f"{f[0]}-{k}" for k, f in enumerate(FAULTS)]
)
def test_a_fault_is_found_in_the_stage_that_made_it(
    traced, monkeypatch, stage, name, fault, function, shapes
):
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph, right = traced(function, *arrays), getattr(planning, name)
    check_stages(graph, arrays, PROCESSORS[0])
    monkeypatch.setattr(planning, name, lambda *arguments: fault(right(*arguments)))
    with pytest.raises(StageError) as error:
        check_stages(graph, arrays, PROCESSORS[0])
    assert str(error.value).startswith(f"[{stage}] ")


def test_a_wrong_rule_is_found_among_those_that_share_a_walk(traced):
    """Rules share a walk over the graph; the pass that the wrong one belongs to is named, not all of them."""
    wrong = RulePass("wrong", {"tanh": [lambda node: OPERATORS["sin"](*node.inputs)]})
    passes = (PASSES[0], PASSES[1], wrong, *PASSES[2:])
    x = np.ones((2, 3))
    graph = traced(lambda x: np.tanh(x + 0) * 2, x)
    with pytest.raises(StageError, match=r"^\[wrong\] result 0 at \(0, 0\) is 1.68"):
        check_stages(graph, [x], PROCESSORS[0], passes=passes)


def test_an_index_out_of_range_is_reported_by_every_stage(traced, monkeypatch):
    def step(table, index, x):
        return table - 0.1 * x * table.sum(), table[index].sum(0)

    arrays = [np.ones((6, 4)), np.array([2, 7]), np.ones((6, 4))]
    graph = traced(step, *arrays)
    check_stages(graph, arrays, PROCESSORS[0], donated={0: 0})
    with pytest.raises(IndexRangeError, match="7 at position"):
        run_stages(graph, arrays, PROCESSORS[0])

    def unchecked(kernels, *others):
        kernels = [kernel for kernel in kernels if not kernel.has_checks]
        return arrange(kernels, *others)

    monkeypatch.setattr(planning, "arrange", unchecked)
    with pytest.raises(StageError, match=r"^\[donate\] an index that is out of range is not reported"):
        check_stages(graph, arrays, PROCESSORS[0], donated={0: 0})


def test_nothing_may_be_overwritten_before_an_index_is_checked(traced, monkeypatch):
    def step(table, index, x):
        return table - 0.1 * x * table.sum(), x[index].sum(0)

    arrays = [np.ones((6, 4)), np.array([2, 7]), np.ones((6, 4))]
    graph = traced(step, *arrays)
    check_stages(graph, arrays, PROCESSORS[0], donated={0: 0})

    def late(kernels, *others):
        kernels, before = arrange(kernels, *others)
        return sorted(kernels, key=lambda kernel: kernel.has_checks), before

    monkeypatch.setattr(planning, "arrange", late)
    with pytest.raises(StageError, match=r"^\[donate\] argument0.* is overwritten although an index is out"):
        check_stages(graph, arrays, PROCESSORS[0], donated={0: 0})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_are_the_same_up_to_rounding(dtype):
    same, wanted = within(4), np.array([1.0, 1e-9, np.nan, np.inf], dtype)
    eps = np.finfo(dtype).eps
    assert same(0, wanted + dtype(3 * eps), wanted)
    assert not same(0, wanted + dtype(9 * eps), wanted)
    for place, value in ((0, np.nan), (2, 1), (3, 1), (3, -np.inf)):
        other = wanted.copy()
        other[place] = value
        assert not same(0, other, wanted)
    assert not same(0, np.array([1, 2]), np.array([1, 3]))
