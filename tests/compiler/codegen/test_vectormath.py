"""Vector mathematics: stated accuracy against mpmath, edges, equal bits for any number of lanes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest

from pullback import operators as _operators  # noqa: F401  (fills the table)
from pullback.compiler.codegen.vectormath import ACCURACY, ELEMENTWISE, Lanes
from pullback.compiler.llvm.function import Module
from pullback.graph import OPERATORS

KINDS = {"float": np.float32, "double": np.float64}
COUNTS = (1, 4, 8, 16)
BINARY = {
    "add",
    "subtract",
    "multiply",
    "divide",
    "copysign",
    "minimum",
    "maximum",
    "arctan2",
    "power",
    "remainder",
    "floor_divide",
}
# What NumPy itself rounds as IEEE 754 prescribes, or defines bit by bit.
EXACT = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "negative": np.negative,
    "absolute": np.absolute,
    "sign": np.sign,
    "square": np.square,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "copysign": np.copysign,
    # Which of two zeros NumPy takes depends on the processor.
    "minimum": OPERATORS["minimum"].reference,
    "maximum": OPERATORS["maximum"].reference,
    "relu": OPERATORS["relu"].reference,
    "remainder": np.remainder,
    "floor_divide": np.floor_divide,
}
REFERENCES: dict[str, Callable[..., mpmath.mpf]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "bell": lambda x: mpmath.exp(-x * x),
    "half_bell": lambda x: mpmath.exp(-x * x / 2),
    "decay": lambda x: mpmath.exp(-abs(x)),
    "rise": lambda x: -mpmath.expm1(-abs(x)),
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x) / mpmath.ln2,
    "log10": lambda x: mpmath.log(x) / mpmath.ln10,
    "log1p": mpmath.log1p,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    "arctan2": mpmath.atan2,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "arcsinh": mpmath.asinh,
    "arccosh": mpmath.acosh,
    "arctanh": mpmath.atanh,
    "erf": mpmath.erf,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "power": lambda x, y: x**y,
}
INF, NAN = math.inf, math.nan


def compiled(machine, requests):
    """One module with a function for each ``(operator, kind, lanes)``, named after them."""
    module = Module()
    for name, kind, count in requests:
        labels = "xy"[: 1 + (name in BINARY)]
        parameters = [("ptr", label) for label in (*labels, "result")]
        f = module.function(f"{name}_{kind}_{count}", [*parameters, ("i64", "n")])
        lanes = Lanes(f, kind, count)

        def address(label, index, f=f, kind=kind):
            return f.value(f"getelementptr {kind}, ptr {f[label]}, i64 {index}")

        with f.loop("0", f["n"], step=count) as loop:
            operands = [lanes.load(address(label, loop.index)) for label in labels]
            lanes.store(ELEMENTWISE[name](lanes, *operands), address("result", loop.index))
    return machine(module)


@pytest.fixture(scope="module")
def code(machine):
    return compiled(machine, itertools.product(ELEMENTWISE, KINDS, COUNTS))


@pytest.fixture(scope="module")
def apply(code):
    """``apply(name, *operands, count=…)``: an elementwise function on arrays of any length."""

    def run(name, *operands, count=8):
        dtype = operands[0].dtype
        kind = {np.dtype(t): k for k, t in KINDS.items()}[dtype]
        operands = np.broadcast_arrays(*operands)
        size = operands[0].size
        padded = [np.concatenate([operand, np.ones(-size % count, dtype)]) for operand in operands]
        return code.map(f"{name}_{kind}_{count}", *padded)[:size]

    return run


def spread(rng, low, high, size):
    """Both signs, magnitudes even in their logarithm."""
    return rng.choice([-1, 1], size) * np.exp(rng.uniform(math.log(low), math.log(high), size))


def samples(name, kind, rng):
    """Arguments where the function is defined, dense where it is delicate."""
    size, dtype = 700, KINDS[kind]
    limits = np.finfo(dtype)
    tiny, huge = float(limits.smallest_subnormal), float(limits.max)
    top, bottom = math.log(huge), math.log(tiny)
    ordinary = rng.uniform(-3, 3, size)
    small = spread(rng, tiny, 1, size)
    anything = spread(rng, tiny, huge, size)
    positive = np.concatenate([np.abs(anything), np.abs(ordinary), 1 + spread(rng, 1e-7, 0.5, size)])
    inside = np.concatenate([small, rng.uniform(-1, 1, size), np.sign(ordinary) - 0.5 * ordinary**9 / 3**9])
    reduced = rng.uniform(-1e5, 1e5, size) if kind == "float" else rng.uniform(-1e9, 1e9, size)
    near_zeros = np.rint(rng.uniform(0, 1e4, size)) * math.pi / 2
    angles = np.concatenate([ordinary, small, reduced, near_zeros, anything])
    arguments = {
        "exp": [ordinary, small, rng.uniform(bottom - 1, top, size)],
        "exp2": [ordinary, small, rng.uniform(bottom - 1, top, size) / math.log(2)],
        "expm1": [ordinary, small, rng.uniform(-40, top, size)],
        "bell": [ordinary, small, rng.uniform(-1, 1, size) * math.sqrt(1 - bottom), anything],
        "half_bell": [ordinary, small, rng.uniform(-1, 1, size) * math.sqrt(2 - 2 * bottom), anything],
        "decay": [ordinary, small, rng.uniform(bottom - 1, 1 - bottom, size), anything],
        "rise": [ordinary, small, rng.uniform(-40, 40, size), anything],
        "log": [positive],
        "log2": [positive],
        "log10": [positive],
        "log1p": [ordinary[ordinary > -1], small[small > -1], np.abs(anything), -1 + np.abs(small) * 1e-3],
        "sin": [angles],
        "cos": [angles],
        "tan": [angles],
        "arcsin": [inside],
        "arccos": [inside],
        "arctan": [ordinary, anything],
        "sinh": [ordinary, small, rng.uniform(-top, top, size)],
        "cosh": [ordinary, small, rng.uniform(-top, top, size)],
        "tanh": [ordinary * 3, small, rng.uniform(-25, 25, size)],
        "arcsinh": [ordinary, anything],
        "arccosh": [1 + np.abs(ordinary), 1 + np.abs(spread(rng, 1e-7, 1, size)), 1 + np.abs(anything)],
        "arctanh": [inside],
        "erf": [ordinary, small, rng.uniform(-7, 7, size)],
        "sigmoid": [ordinary * 3, small, rng.uniform(bottom - 1, 40, size)],
        "softplus": [ordinary * 3, small, rng.uniform(bottom - 1, 40, size), np.abs(anything)],
    }
    x = np.concatenate(arguments[name])
    return (np.clip(x, -huge, huge).astype(dtype),)


def pairs(name, kind, rng):
    """Arguments of the functions of two operands."""
    size, dtype = 1500, KINDS[kind]
    if name == "arctan2":
        return spread(rng, 1e-6, 1e6, size).astype(dtype), spread(rng, 1e-6, 1e6, size).astype(dtype)
    base = np.concatenate([np.exp(rng.uniform(-20, 20, size)), rng.uniform(0.5, 2, size)]).astype(dtype)
    top = math.log(float(np.finfo(dtype).max))
    exponent = rng.uniform(-1.03, 1, 2 * size) * top / np.log(base.astype(np.float64))
    return base, exponent.astype(dtype)


def errors_in_ulp(name, result, operands):
    """``|result - exact|`` in units of the last place of the exact value."""
    limits = np.finfo(result.dtype)
    worst = []
    with mpmath.workprec(140):
        # An argument's own range can need more bits: 2^1000 has to be reduced by π exactly.
        reach = 1200 if name in ("sin", "cos", "tan") else 140
        for value, *arguments in zip(result.tolist(), *[operand.tolist() for operand in operands]):
            with mpmath.workprec(reach if max(map(abs, arguments)) > 1e10 else 140):
                exact = REFERENCES[name](*map(mpmath.mpf, arguments))
            if math.isinf(value) or mpmath.isinf(exact):
                assert value * exact > 0 and min(abs(value), abs(exact)) > float(limits.max)
                worst.append(0.0)
                continue
            exponent = max(mpmath.frexp(exact)[1] - 1, int(limits.minexp)) if exact else int(limits.minexp)
            unit = mpmath.ldexp(1, exponent - limits.nmant)
            worst.append(float(abs(mpmath.mpf(value) - exact) / unit))
    return np.array(worst)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(ACCURACY))
def test_error_is_within_the_stated_bound(apply, name, kind):
    rng = np.random.default_rng(5)
    operands = (pairs if name in BINARY else samples)(name, kind, rng)
    result = apply(name, *operands)
    errors = errors_in_ulp(name, result, operands)
    place = int(np.argmax(errors))
    bound = ACCURACY[name][list(KINDS).index(kind)]
    assert errors[place] <= bound, [operand[place] for operand in operands]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_any_number_of_lanes_gives_the_same_bits(apply, name, kind):
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.normal(0, 3, 400), spread(rng, 1e-300, 1e300, 100), [0.0, -0.0, INF, -INF, NAN]])
    with np.errstate(over="ignore", under="ignore"):
        x = x.astype(KINDS[kind])
    operands = (x, np.roll(x, 7)) if name in BINARY else (x,)
    scalar = apply(name, *operands, count=1)
    for count in COUNTS[1:]:
        assert_same(apply(name, *operands, count=count), scalar)


def assert_same(result, expected):
    """Equal numbers with equal signs, NaN where NaN is expected."""
    np.testing.assert_array_equal(result, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[number]), np.signbit(expected[number]))


def edges(dtype):
    """Numbers at which definitions change, paired with each other."""
    limits = np.finfo(dtype)
    tiny, huge = limits.smallest_subnormal, limits.max
    one = [0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 7.0, 1e5, INF, tiny, limits.tiny, huge, 1 + limits.eps, 2.0**30]
    values = np.array([*one, *(-x for x in one), NAN], dtype)
    grid = np.array(list(itertools.product(values, values)), dtype)
    return values, grid[:, 0].copy(), grid[:, 1].copy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(EXACT))
def test_what_is_defined_bit_by_bit_equals_numpy(apply, name, kind):
    rng = np.random.default_rng(7)
    dtype = KINDS[kind]
    values, left, right = edges(dtype)
    x = np.concatenate(
        [left, rng.normal(0, 9, 500).astype(dtype), spread(rng, 1e-30, 1e30, 500).astype(dtype)]
    )
    y = np.concatenate(
        [right, rng.normal(0, 2, 500).astype(dtype), spread(rng, 1e-30, 1e30, 500).astype(dtype)]
    )
    multiples = np.rint(rng.uniform(-99, 99, 300)).astype(dtype) * y[-300:]
    x, y = np.concatenate([x, multiples]), np.concatenate([y, y[-300:]])
    operands = (x, y) if name in BINARY else (np.concatenate([values, x[left.size :]]),)
    with np.errstate(all="ignore"):
        expected = EXACT[name](*operands)
    result = apply(name, *operands)
    assert_same(result, expected)


SPECIAL = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e5, INF), (-1e5, 0.0)],
    "exp2": [
        (0.0, 1.0),
        (INF, INF),
        (-INF, 0.0),
        (NAN, NAN),
        (3.0, 8.0),
        (-5.0, 2.0**-5),
        (100.0, 2.0**100),
        (-140.0, 2.0**-140),
    ],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (-1e5, -1.0)],
    "bell": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN), (1e30, 0.0), (-50.0, 0.0)],
    "half_bell": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN), (1e30, 0.0), (-50.0, 0.0)],
    "decay": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN), (1e30, 0.0), (-1e5, 0.0)],
    "rise": [(0.0, 0.0), (-0.0, 0.0), (INF, 1.0), (-INF, 1.0), (NAN, NAN), (1e30, 1.0), (-1e5, 1.0)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-1.0, NAN), (NAN, NAN)],
    "log2": [(1.0, 0.0), (0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (8.0, 3.0), (2.0**-140, -140.0)],
    "log10": [(1.0, 0.0), (0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN), (-INF, NAN), (NAN, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "arcsin": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (1.0, math.pi / 2),
        (-1.0, -math.pi / 2),
        (1.5, NAN),
        (-INF, NAN),
        (NAN, NAN),
    ],
    "arccos": [
        (1.0, 0.0),
        (-1.0, math.pi),
        (0.0, math.pi / 2),
        (-0.0, math.pi / 2),
        (1.5, NAN),
        (-2.0, NAN),
        (NAN, NAN),
    ],
    "arctan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (NAN, NAN)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e5, INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (30.0, 1.0)],
    "arcsinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "arccosh": [(1.0, 0.0), (INF, INF), (0.5, NAN), (-5.0, NAN), (-INF, NAN), (NAN, NAN)],
    "arctanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (8.0, 1.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)],
    "softplus": [(INF, INF), (-INF, 0.0), (NAN, NAN), (100.0, 100.0)],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_edges_of_functions_of_one_operand(apply, name, kind):
    dtype = KINDS[kind]
    x, expected = np.array(SPECIAL[name], dtype).T.copy()
    for count in COUNTS:
        assert_same(apply(name, x, count=count), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh"]
)
def test_subnormal_numbers_pass_where_the_slope_is_one(apply, name, kind):
    least = np.finfo(KINDS[kind]).smallest_subnormal
    x = np.arange(-20, 21).astype(KINDS[kind]) * least
    np.testing.assert_array_equal(apply(name, x), x)


@pytest.mark.parametrize("name", ["power", "arctan2"])
@pytest.mark.parametrize("kind", KINDS)
def test_edges_of_functions_of_two_operands(apply, name, kind):
    _, x, y = edges(KINDS[kind])
    with np.errstate(all="ignore"):
        # In double precision for both kinds: the library's own error is then below the tolerance.
        expected = getattr(np, name)(x.astype(np.float64), y.astype(np.float64)).astype(KINDS[kind])
        tolerance = 3 * np.spacing(np.abs(expected))
    result = apply(name, x, y)
    defined = np.isnan(expected) | np.isinf(expected) | (expected == 0)
    assert_same(result[defined], expected[defined])
    distance = np.abs(result[~defined] - expected[~defined])
    assert (distance <= tolerance[~defined]).all()


def test_integer_powers_of_negative_numbers(apply):
    x = np.array([-2.0, -2.0, -2.0, -8.0, -1.0, -1.0, -4.0, -0.0, -0.0])
    y = np.array([2.0, 3.0, 0.5, 1 / 3, 1e300, INF, -1.0, 3.0, -3.0])
    expected = np.array([4.0, -8.0, NAN, NAN, 1.0, 1.0, -0.25, -0.0, -INF])
    assert_same(apply("power", x, y), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles_beside_small_ones(apply, name, kind):
    dtype = KINDS[kind]
    x = np.array([0.5, 1e30, -3.0, 2.0**120, 1e9, -1e11, 0.25, 1e6], dtype)
    result = apply(name, x)
    bound = ACCURACY[name][list(KINDS).index(kind)]
    assert errors_in_ulp(name, result, (x,)).max() <= bound
    alone = apply(name, x[[0, 2, 6]], count=1)
    np.testing.assert_array_equal(result[[0, 2, 6]], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_bounded_functions_stay_within_their_bounds(apply, kind):
    rng = np.random.default_rng(8)
    dtype = KINDS[kind]
    wide = rng.uniform(-25, 25, 200_000).astype(dtype)
    turns = np.rint(rng.uniform(-1e4, 1e4, 100_000)) + 0.5
    crests = (turns * math.pi + spread(rng, 1e-9, 1e-2, turns.size)).astype(dtype)
    for name, x in (("tanh", wide), ("erf", wide), ("sin", crests), ("cos", crests + dtype(math.pi / 2))):
        assert np.abs(apply(name, x)).max() == 1, name
    level = apply("sigmoid", wide * dtype(10))
    assert level.min() >= 0 and level.max() == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extremum_with_a_constant_is_that_of_two_operands(machine, name, kind):
    """Either operand may be the constant: fewer instructions, the same NaN and the same zeros."""
    bounds = {"zero": 0.0, "minus": -0.0, "one": 1.0, "nan": NAN}
    module = Module()
    for (label, bound), first in itertools.product(bounds.items(), (True, False)):
        f = module.function(f"{label}{first}", [("ptr", "x"), ("ptr", "result"), ("i64", "n")])
        lanes = Lanes(f, kind, 8)
        operands = (lanes.constant(bound), lanes.load(f["x"]))[:: 1 if first else -1]
        lanes.store(ELEMENTWISE[name](lanes, *operands), f["result"])
    code = machine(module)
    x = np.array([-1.0, 2.0, NAN, INF, 0.0, -0.0, 1.0, -INF], KINDS[kind])
    for (label, bound), first in itertools.product(bounds.items(), (True, False)):
        with np.errstate(invalid="ignore"):
            expected = EXACT[name](x, np.full_like(x, bound))
        assert_same(code.map(f"{label}{first}", x), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_relu_is_two_vector_instructions(machine, kind):
    if not llvm.get_default_triple().startswith("x86_64") or not llvm.get_host_cpu_features().get("avx2"):
        pytest.skip("counts the instructions of AVX2 and later")
    assembly = compiled(machine, [("relu", kind, 4)]).assembly
    found = re.findall(r"\t(v(?:cmp|and|max|min|add|blend|mov\w+\t[^\n]*\{z\})\w*)", assembly)
    assert len(found) == 2, assembly


@pytest.mark.parametrize(
    "name", ["exp", "log", "tanh", "sigmoid", "expm1", "softplus", "erf", "bell", "power"]
)
def test_vector_instructions_and_no_call(machine, name):
    packed = {"x86_64": r"\tv?(fmadd|fmul|mul)\w*ps\t", "aarch64": r"\tfmla\t|\tfmul\tv"}
    architecture = llvm.get_default_triple().split("-")[0].replace("arm64", "aarch64")
    if architecture not in packed or not any(llvm.get_host_cpu_features().get(f) for f in ("fma", "neon")):
        pytest.skip("only known for processors with fused vector arithmetic")
    assembly = compiled(machine, [(name, "float", 8)]).assembly
    assert re.search(packed[architecture], assembly)
    assert not re.search(r"\t(call|bl)\w*\s", assembly)


def test_every_operator_has_a_reference_here():
    assert set(EXACT) | set(REFERENCES) == set(ELEMENTWISE)
    assert set(REFERENCES) == set(ACCURACY)
