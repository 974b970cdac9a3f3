"""Random programs: NumPy, the interpreter and compiled code agree on values, gradients and second derivatives."""

import secrets

import pytest

from pullback.testing.programs.compare import difference
from pullback.testing.programs.generate import generate
from pullback.testing.programs.shrink import shrunk

FIXED, FRESH = 300, 60
FRESH_SEED = secrets.token_hex(4)


@pytest.mark.parametrize("first", range(0, FIXED, 20))
def test_programs_of_a_fixed_seed(first):
    check("fixed", first, first + 20)


@pytest.mark.parametrize("first", range(0, FRESH, 20))
def test_programs_of_a_fresh_seed(first):
    check(FRESH_SEED, first, first + 20)


def check(seed, first, stop):
    for number in range(first, stop):
        program = generate(seed, number)
        found = difference(program)
        if found is not None:
            smallest, what = shrunk(program, found)
            pytest.fail(f"seed {seed!r}, program {number}: {what}\n\n{smallest.source()}", pytrace=False)
