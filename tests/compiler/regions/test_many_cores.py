"""Work is dealt out among as many cores as a processor has, and no result shows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import build, every_step
from pullback.compiler.regions.chunks import _makespan, _share_evenly
from pullback.compiler.regions.steps import Group, Region
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.target import Processor
from pullback.testing.programs.processors import compiled_for, with_cores

CORES = 3, 16, 64


def wide(cores, **changes):
    vectors = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32, l2_bytes=1 << 20)
    return replace(vectors, cores=cores, **changes)


def regions_of(graph, target):
    return [step for step, _ in every_step(build(graph, {}, target).schedule) if isinstance(step, Region)]


def dense(x, w, u):
    return np.tanh(np.tanh(x @ w) @ u)


def recurrent(x, w, u):
    return pb.scan(lambda h, row: ((h := np.tanh(row @ w + h @ u)), None), x[0] @ w, x)[0]


def beside(x, *weights):
    return tuple(x @ w for w in weights)


PROGRAMS = {
    "dense": (dense, (100, 300), (300, 256), (256, 128)),
    "few rows": (dense, (12, 512), (512, 256), (256, 512)),
    "recurrent": (recurrent, (20, 64, 96), (96, 128), (128, 128)),
    "beside": (beside, (128, 256), *[(256, 64)] * 8),
    "matrix": (beside, (200, 150), (150, 330)),
}


def values(name):
    function, *shapes = PROGRAMS[name]
    random = np.random.default_rng(0)
    given = [random.standard_normal(shape).astype(np.float32) / 8 for shape in shapes]

    def loss(*arrays):
        found = pb.flatten(function(*arrays))[0]
        return sum(np.sum(each * each) for each in found)

    return pb.value_and_grad(loss, tuple(range(len(given)))), given


@pytest.mark.parametrize("vectors", [64, 32, 16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same_bits_for_any_number_of_cores(name, vectors):
    function, given = values(name)
    host = Processor.host()
    host = host.limited(min(vectors, host.vector_bytes))
    found = []
    for cores in (1, 2, *CORES):
        with compiled_for(with_cores(host, cores)):
            value, gradients = pb.jit(function)(*given)
        found.append((np.array(value).tobytes(), *(each.tobytes() for each in gradients)))
    assert len(set(found)) == 1


@pytest.mark.parametrize("vectors", [64, 32, 16])
@pytest.mark.parametrize("rows", range(5, 10))
def test_a_sum_along_memory_has_the_same_bits_alone_and_beside_others(rows, vectors):
    host, random = Processor.host(), np.random.default_rng(0)
    host = host.limited(min(vectors, host.vector_bytes))
    x, w = random.standard_normal((rows, 8)), random.standard_normal((8, 277))
    found = set()
    for cores in (1, *CORES):
        with compiled_for(with_cores(host, cores)):
            gradients = pb.jit(pb.grad(lambda x, w: np.sum((x @ w) ** 3), (0, 1)))(x, w)
        found.add(tuple(each.tobytes() for each in gradients))
    assert len(found) == 1


def test_the_same_product_may_be_cut_in_two_ways():
    """Finely in a region of its own, and not beside others that keep cores busy."""
    random = np.random.default_rng(0)
    shapes = (128, 256), (256, 256), (128, 784), (784, 784), (784, 784)
    given = [random.standard_normal(shape).astype(np.float32) / 16 for shape in shapes]

    def function(x, w, y, *others):
        alone = x @ w.T
        total = alone.sum()
        return alone, (alone - total) @ w.T, *((y + total) @ other.T for other in others)

    with compiled_for(with_cores(Processor.host(), 16)):
        found = pb.jit(function)(*given)
    for value, expected in zip(found, function(*given)):
        np.testing.assert_allclose(value, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["dense", "recurrent", "beside", "matrix"])
def test_no_chunk_keeps_sixteen_cores_waiting_for_long(name):
    """Dealt out to whoever is free, the chunks of a region of much work take little more than a sixteenth of it."""
    function, given = values(name)
    graph = pb.trace(function, *given).graph

    def longest(cores):
        """How much more, at most, in code for so many cores."""
        found = []
        for region in regions_of(graph, wide(cores)):
            share = sum(group.cycles for group in region.groups) / 16
            if share > 3 * wide(cores).chunk_cycles:
                found.append(_makespan(region.groups, 16) / share)
        return max(found)

    assert longest(16) < 1.25 < longest(2)


def most_chunks(function, *shapes):
    graph = pb.trace(function, *(np.zeros(shape, np.float32) for shape in shapes)).graph
    heaviest = max(regions_of(graph, wide(16)), key=lambda region: sum(g.cycles for g in region.groups))
    return max(group.chunks for group in heaviest.groups)


def test_products_side_by_side_stay_in_large_blocks():
    """Eight that together keep sixteen cores busy need not be cut as finely as one that is alone."""
    alone = most_chunks(beside, (1024, 512), (512, 512))
    assert most_chunks(beside, (1024, 512), *[(512, 512)] * 8) < alone


@pytest.mark.parametrize(
    ("function", "rows", "shapes"),
    [
        (dense, 22, [(22, 512), (512, 512), (512, 512)]),
        (recurrent, 32, [(20, 32, 96), (96, 512), (512, 512)]),
    ],
)
def test_few_rows_share_the_reading_of_a_large_matrix(function, rows, shapes):
    graph = pb.trace(function, *(np.zeros(shape, np.float32) for shape in shapes)).graph
    groups = [group for region in regions_of(graph, wide(16)) for group in region.groups]
    assert min(group.grain for group in groups if group.rows == rows) == 4


@pytest.mark.parametrize(
    ("units", "cores", "chunks"), [(128, 2, 8), (128, 4, 8), (1024, 2, 2), (1024, 4, 4), (1024, 16, 16)]
)
def test_a_matrix_that_no_near_cache_holds_is_read_by_a_chunk_for_each_thread(units, cores, chunks):
    """Each chunk of the rows of a recurrent step reads all of it; a small one is there already."""
    shapes = (20, 64, 96), (96, units), (units, units)
    graph = pb.trace(recurrent, *(np.zeros(shape, np.float32) for shape in shapes)).graph
    groups = [group for region in regions_of(graph, wide(cores)) for group in region.groups]
    assert max(groups, key=lambda group: group.cycles * (group.rows == 64)).chunks == chunks


def test_a_short_product_does_not_keep_rows_together():
    """Sixteen rows are one tile of it, and what is done with each of them beside it takes longer."""

    def function(x, w):
        y = np.tanh(x)
        return y, y @ w

    random = np.random.default_rng(0)
    given = [random.standard_normal(shape).astype(np.float32) for shape in ((16, 4000), (4000, 10))]
    graph, found = pb.trace(function, *given).graph, []
    for cores, grain in ((2, 16), (16, 1)):
        (group,) = (group for region in regions_of(graph, wide(cores)) for group in region.groups)
        assert group.grain == grain
        with compiled_for(with_cores(Processor.host(), cores)):
            found.append([each.tobytes() for each in pb.jit(function)(*given)])
    assert found[0] == found[1]


def test_rows_of_a_result_are_shared_out_where_there_are_few_parts_of_its_sum():
    """The weights of a convolution: four parts of the images, each as much as a near cache holds, for sixteen cores."""
    random = np.random.default_rng(0)
    shapes = (32, 64, 10, 10), (32, 64, 8, 8)
    given = [random.standard_normal(shape).astype(np.float32) for shape in shapes]

    def weights(images, cotangents):
        kernels = np.zeros((64, 64, 3, 3), np.float32)
        return pb.grad(lambda kernels: np.sum(pb.nn.conv(images, kernels) * cotangents))(kernels)

    graph, found = pb.trace(weights, *given).graph, []
    for cores, chunks in ((2, 4), (16, 16)):
        heaviest = max(
            (group for region in regions_of(graph, wide(cores)) for group in region.groups),
            key=lambda group: group.cycles,
        )
        assert heaviest.chunks == chunks
        with compiled_for(with_cores(Processor.host(), cores)):
            found.append(pb.jit(weights)(*given).tobytes())
    assert found[0] == found[1]


def test_a_region_that_takes_no_time_is_left_as_it_is():
    group = Group(4, grain=4)
    _share_evenly([group], Schedules(wide(16)), 1)
    assert group.chunks == 1


def test_code_is_made_for_the_threads_that_a_program_may_use():
    """But the memory of a program serves as many as there are cores, and results are the same bits."""
    random = np.random.default_rng(0)
    given = [
        random.standard_normal(shape).astype(np.float32) for shape in ((100, 300), (300, 256), (256, 128))
    ]
    before, found = pb.get_num_threads(), []
    try:
        with compiled_for(replace(Processor.host(), cores=16)):
            for threads in (2, 16):
                pb.set_num_threads(threads)
                compiled = pb.jit(dense)
                found.append((compiled.inspect(*given).llvm, compiled(*given).tobytes()))
    finally:
        pb.set_num_threads(before)
    (few, first), (many, second) = found
    assert few != many and first == second


def test_two_cores_and_one_have_the_same_code():
    function, given = values("dense")
    graph = pb.trace(function, *given).graph
    texts = {cores: build(graph, {}, wide(cores)).emitted.text for cores in (1, 2, 16)}
    assert texts[1] == texts[2] != texts[16]
