"""The language of hand-written machine code: what Python makes of a text, machine code makes of it too."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from pullback.compiler.llvm.language import Record, Unit
from pullback.compiler.runtime.engine import Loaded, compile_object
from pullback.compiler.target import Processor

NUMBERS = """
def divisor(a: i64, b: i64) -> i64:
    while b != 0:
        c = a % b
        a = b
        b = c
    return a

def pullback_loops(n: i64, most: i64) -> i64:
    total = 0
    for i in range(n):
        if i == 3:
            continue
        for j in range(i, n + 2):
            if i * j > most:
                break
            total += j << 1 if (j & 1) == 0 or i == 2 else j // 2
        if total > most and not i < 2:
            total -= 1
            return total
    return total

def pullback_logic(n: i64, m: i64) -> i64:
    found = 0
    both = n > 2 and m > 2
    if both or (not n == m and m % 2 == 1):
        found = 1
    elif n == 0:
        found = 2
    else:
        while True:
            found += LARGE // 2
            if found > n:
                break
    kept = found
    if LARGE > 3 and NAME == "other":
        found = absent(n)
    return kept | 8 if both else found

def pullback_calls(n: i64, m: i64) -> i64:
    return divisor(n + 6, m + 4) * (1 << 3) + divisor(LARGE, n + 1)
"""
CONSTANTS = {"LARGE": 7, "NAME": "this"}
PLACES = """
def pullback_places(x: Pair, words: Words, n: i64) -> i64:
    before = 0
    for k in range(n):
        here = x[k]
        here.SMALL = i32(words[k])
        here.NEXT = None
        if k != 0:
            x[k - 1].NEXT = here
        words[k] = i64(here.SMALL) * 2
    while x is not None:
        before += i64(x.SMALL)
        x = x.NEXT
    return before

def pullback_atomic(words: Words, seen: i64) -> i64:
    there, won = exchange(words[0], seen, 9, acquire)
    old = add(words[1], 5)
    store(words[2], old, release)
    if won:
        return load(words[0], acquire)
    return there + 100
"""


def function(unit: Unit, text: str, name: str, count: int, result: type = ctypes.c_int64):
    code = Loaded([compile_object(unit.compiled(text), Processor.host())], Processor.host())
    called = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * count)(code.address(name))
    return lambda *given: (called(*given), code)[0]


@pytest.mark.parametrize("name", ["pullback_loops", "pullback_logic", "pullback_calls"])
def test_python_computes_the_same(name):
    text = NUMBERS.replace("^", "^")
    names: dict = dict(CONSTANTS)
    exec("from __future__ import annotations\n" + text, names)
    compiled = function(Unit({}, CONSTANTS), text, name, 2)
    for n, m in itertools.product(range(7), (0, 1, 2, 3, 5, 20)):
        assert compiled(n, m) == names[name](n, m), (n, m)


def test_records_and_arrays():
    unit = Unit({"Pair": Record(SMALL="i32", NEXT="Pair")})
    words = np.array([3, -4, 5])
    memory = np.zeros(6, np.int64)
    assert function(unit, PLACES, "pullback_places", 3)(memory.ctypes.data, words.ctypes.data, 3) == 4
    assert words.tolist() == [6, -8, 10]
    assert memory[1] == memory.ctypes.data + 16


def test_atomic_operations():
    words = np.array([4, 1, 0])
    called = function(
        Unit({"Pair": Record(SMALL="i32", NEXT="Pair")}),
        PLACES,
        "pullback_atomic",
        2,
    )
    assert called(words.ctypes.data, 3) == 104
    assert called(words.ctypes.data, 4) == 9
    assert words.tolist() == [9, 11, 6]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    return missing", "missing has no value here"),
        ("    x = 1", "ends without a result"),
        ("    return f(x, x)", "takes i64"),
        ("    with x:\n        pass", "no statement"),
        ("    return [x]", "no expression"),
        ("    return absent(x.A)", "absent"),
    ],
)
def test_what_is_no_text_of_the_language(body, said):
    with pytest.raises((ValueError, KeyError), match=said):
        Unit({}).compiled(f"def f(x: i64) -> i64:\n{body}\n")
