"""Divisions of places by constants, which are a product and a shift."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback.compiler.codegen.integers import Integers
from pullback.compiler.codegen.types import vector_of
from pullback.compiler.llvm.function import Module

DIVISORS = 1, 2, 3, 5, 7, 9, 10, 64, 113, 641, 4096, 65537, 10**9 + 7, 2**31 - 1
RESULTS = {"quotient": np.floor_divide, "remainder": np.remainder}


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("end", [1, 2, 50, 4097, 10**6 + 3, 2**31 - 1, 2**31])
def test_places_are_divided_exactly(machine, lanes, end):
    """On either side of multiples, and at both ends."""
    module, kind = Module(), vector_of("i64", lanes)
    for divisor, (number, name) in itertools.product(DIVISORS, enumerate(RESULTS)):
        f = module.function(f"{name}{divisor}", [("ptr", "x"), ("ptr", "result"), ("i64", "n")])
        with f.loop("0", f["n"], step=lanes) as loop:
            x, result = (
                f.value(f"getelementptr i64, ptr {f[label]}, i64 {loop.index}") for label in ("x", "result")
            )
            place = f.value(f"load {kind}, ptr {x}, align 8")
            found = Integers(f, np.dtype(np.int64), lanes).divided_below(place, divisor, end)
            f.do(f"store {kind} {found[number]}, ptr {result}, align 8")
    code = machine(module)
    for divisor in DIVISORS:
        multiples = np.linspace(0, (end - 1) // divisor, 16).astype(np.int64) * divisor
        drawn = np.random.default_rng(divisor).integers(end, size=15)
        x = np.concatenate([multiples - 1, multiples, multiples + 1, drawn, [end - 1]]).clip(0, end - 1)
        for name, exact in RESULTS.items():
            np.testing.assert_array_equal(code.map(f"{name}{divisor}", x), exact(x, divisor))
