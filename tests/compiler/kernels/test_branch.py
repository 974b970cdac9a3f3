"""Terms that few turns of a sum have stand behind a branch, where that pays, and no bit tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import build
from pullback.compiler.stages import run_stages
from pullback.compiler.target import Processor

WIDE = Processor(
    "x86-64-v4", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma", "x86_64", 64, 32, l1_bytes=32 << 10
)
NARROW = Processor("x86-64-v3", "+avx2,+fma", "x86_64", 32, 16, l1_bytes=32 << 10)


def spread_by_class(x, labels):
    """Of the rows of each of twelve classes the sum of squared distances from the class's mean."""
    return _spread(x, labels[:, None] == np.arange(12))


def spread_from_class_on(x, labels):
    """The same of what a comparison picks of which nobody knows how often it holds."""
    return _spread(x, labels[:, None] > np.arange(12))


def _spread(x, chosen):
    rows = x[:, None]
    means = np.sum(np.where(chosen[..., None], rows, 0), axis=0) / np.sum(chosen, axis=0)[:, None]
    return np.sum(np.where(chosen[..., None], (rows - means) ** 2, 0), axis=0)


def to_the_nearest(centres, x):
    """The derivative of the squared distances from the nearest centre (k-means)."""
    return pb.grad(lambda c: np.sum(np.min(np.sum((x[:, None] - c) ** 2, axis=-1), axis=1)))(centres)


def classes(dtype=np.float32):
    random = np.random.default_rng(0)
    return [random.standard_normal((120, 37)).astype(dtype), random.integers(0, 12, 120)]


def points(dtype=np.float32):
    """Whole numbers: many points are as far from one centre as from another."""
    random = np.random.default_rng(1)
    return [random.integers(-2, 3, shape).astype(dtype) for shape in ((64, 8), (200, 8))]


def branches(graph, processor) -> int:
    found = {}
    build(graph, {}, processor, watch=lambda stage: found.update({stage.name: str(stage)}))
    return found["branch"].count("unlikely(")


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["64bytes", "32bytes"])
def test_terms_of_matches_are_behind_a_branch(target, traced):
    assert branches(traced(spread_by_class, *classes()), target) == 1
    assert branches(traced(to_the_nearest, *points()), target) == 1


def test_there_is_none_where_it_does_not_pay(traced):
    assert branches(traced(spread_from_class_on, *classes()), WIDE) == 0
    hesitant = replace(WIDE, mispredicted_cycles=10_000.0)
    assert branches(traced(spread_by_class, *classes()), hesitant) == 0


def test_a_comparison_that_lanes_differ_in_is_a_mask(traced):
    def along(x, labels):
        chosen = labels[:, None] == np.arange(64)
        return np.sum(np.where(chosen, (x[:, :1] - x[:1, :1]) ** 2 * x[:, 1:2], 0), axis=0)

    assert branches(traced(along, *classes()), WIDE) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_stage_gives_the_same_bits(value, dtype, compiler, traced, processor):
    """Also where a term that is not chosen is not finite."""
    for function, arrays in ((spread_by_class, classes(dtype=dtype)), (to_the_nearest, points(dtype=dtype))):
        for row in range(0, len(arrays[0]), 7):
            arrays[0][row] = value
        graph = traced(function, *arrays)
        with np.errstate(all="ignore"):
            made = {stage.name: results for stage, results in run_stages(graph, arrays, processor)}
            np.testing.assert_array_equal(made["branch"], made["compact"])
            plain, branched = (
                compiler.run(graph, arrays, processor=replace(processor, mispredicted_cycles=cycles))
                for cycles in (10_000.0, 0.0)
            )
        np.testing.assert_array_equal(branched, plain)


def test_a_place_that_is_out_of_range_is_told_though_no_turn_reads_it(traced):
    def looked_up(x, labels, places):
        return spread_by_class(x[places], labels)

    x, labels = classes()
    places = np.arange(120)
    places[7], labels[7] = 120, 99
    with pytest.raises(IndexError):
        pb.jit(looked_up)(x, labels, places)
