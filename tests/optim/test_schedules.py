"""Schedules against PyTorch's definitions, of numbers and traced steps."""

import math

import numpy as np
import pytest

from pullback import jit
from pullback.optim import schedules


def cosine(first, last, share):
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


def warm_up_cosine(t):
    return 0.3 * (0.25 + 0.75 * t / 4) if t < 4 else cosine(0.3, 0.01, min((t - 4) / 6, 1))


def one_cycle(t):
    """PyTorch's OneCycleLR: phases end at 0.3 * 12 - 1 and 12 - 1."""
    first, peak = 0.5 / 20, 0.3 * 12 - 1
    if t <= peak:
        return cosine(first, 0.5, t / peak)
    return cosine(0.5, first / 100, min((t - peak) / (11 - peak), 1))


CASES = [
    (schedules.Constant(0.2), lambda t: 0.2),
    (schedules.Step(0.2, 3, 0.5), lambda t: 0.2 * 0.5 ** (t // 3)),
    (schedules.Exponential(0.2, 0.9), lambda t: 0.2 * 0.9**t),
    (schedules.Cosine(0.2, 8, 0.05), lambda t: cosine(0.2, 0.05, min(t / 8, 1))),
    (schedules.WarmUpCosine(0.3, 4, 10, start=0.25, lowest=0.01), warm_up_cosine),
    (schedules.OneCycle(0.5, 12, divisor=20, final_divisor=100), one_cycle),
]


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])
@pytest.mark.parametrize(("schedule", "expected"), CASES, ids=lambda case: type(case).__name__)
def test_definitions(schedule, expected, compiled):
    function = jit(lambda step: schedule(step) + 0 * step) if compiled else schedule
    found = [function(np.array(float(step))) for step in range(14)]
    np.testing.assert_allclose(found, [expected(step) for step in range(14)], rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedules.Constant(-0.1),
        lambda: schedules.Step(0.1, 0),
        lambda: schedules.Exponential(0.1, math.nan),
        lambda: schedules.Cosine(0.1, 0),
        lambda: schedules.WarmUpCosine(0.1, 10, 10),
        lambda: schedules.OneCycle(0.1, 100, rising=1.0),
        lambda: schedules.OneCycle(0.1, 100, divisor=0.0),
    ],
)
def test_settings_that_make_no_sense(make):
    with pytest.raises(ValueError, match=r"^\[\w+\] .* Give "):
        make()
