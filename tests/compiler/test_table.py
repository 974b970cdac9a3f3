"""Every operator of the table, compiled: values and cotangents against the interpreter, in all dtypes."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest

from pullback.graph import OPERATORS, Constant, Graph, Node, Type, Variable, constant, is_complex, is_float
from pullback.testing import OperatorCase, operator_cases
from pullback.transforms.batching import batched
from pullback.transforms.reverse import cotangents

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
ROUNDING, ROUNDING_OF_COTANGENTS = 64, 512
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 88.0, -104.0, 1e-40, -1e30, np.inf, -np.inf, np.nan)
LARGEST_EXTENT = 40
CASES: dict[str, list[OperatorCase]] = {}
for _case in operator_cases():
    CASES.setdefault(_case.operator.name, []).append(_case)


def together(cases: list[OperatorCase]) -> tuple[tuple[Variable, ...], list[Node], list[np.ndarray]]:
    """Inputs, results and arguments of all cases, for one program: compiling one takes longer than its code."""
    inputs, outputs, arrays = [], [], []
    for case in cases:
        own = [Variable(type, f"x{k}") for k, type in enumerate(case.types)]
        inputs += own
        outputs.append(case.apply(*own))
        arrays += case.arguments()
    return tuple(inputs), outputs, arrays


@pytest.mark.parametrize("name", CASES)
def test_values(name, compiler, processor):
    inputs, outputs, arrays = together(CASES[name])
    compiler.assert_same(Graph(inputs, tuple(outputs)), arrays, processor=processor, rounding=ROUNDING)


@pytest.mark.parametrize(
    "name", [name for name, cases in CASES.items() if any(c.differentiable for c in cases)]
)
def test_cotangents(name, compiler):
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
    compiler.assert_same(graph, arrays, rounding=ROUNDING_OF_COTANGENTS)


@pytest.mark.parametrize(
    "name", [name for name, cases in CASES.items() if cases[0].types and not OPERATORS[name].elementwise]
)
def test_batches(name, compiler):
    """What the batching rule makes for each choice of batched inputs: axes in places where no case has them."""
    inputs, outputs, arrays = [], [], []
    for case in CASES[name]:
        if case.dtypes != CASES[name][0].dtypes:
            continue
        rows = [case.arguments(example) for example in range(3)]
        for chosen in list(itertools.product((True, False), repeat=len(case.types)))[:-1]:
            own = [Variable(type, f"x{k}") for k, type in enumerate(case.types)]
            given = [np.stack(x) if many else x[0] for x, many in zip(zip(*rows), chosen)]
            batch = [
                Variable(Type(x.dtype, x.shape)) if many else one for one, x, many in zip(own, given, chosen)
            ]
            outputs += batched([case.apply(*own)], own, batch)
            inputs += batch
            arrays += given
    compiler.assert_same(Graph(tuple(inputs), tuple(outputs)), arrays, rounding=ROUNDING)


def _elementwise(kinds: str) -> list[str]:
    """Elementwise operators that take dtypes of ``kinds``, with no attributes."""
    return [
        name
        for name, cases in CASES.items()
        if OPERATORS[name].elementwise
        and any(not case.attributes and case.dtypes and case.dtypes[-1].kind in kinds for case in cases)
    ]


def signs_of_zeros(values: np.ndarray) -> np.ndarray:
    """1 and -1 for zeros of either sign, 0 for the rest."""
    return np.where(values == 0, np.copysign(1, values), 0)


@pytest.mark.parametrize("name", _elementwise("f"))
def test_special_floats(name, compiler, processor):
    """NaN, infinities, zeros of both signs, subnormal and huge numbers."""
    inputs, outputs, arrays = [], [], []
    for dtype in FLOATS:
        case = next(c for c in CASES[name] if c.dtypes[-1] == dtype)
        count = sum(d == dtype for d in case.dtypes)
        values = np.array(list(itertools.product(SPECIAL, repeat=count))).astype(dtype)
        own = []
        for k, kind in enumerate(case.dtypes):
            column = values[:, len([d for d in case.dtypes[:k] if d == dtype])] if kind == dtype else None
            arrays.append(np.arange(len(values)) % 3 == 0 if column is None else np.ascontiguousarray(column))
            own.append(Variable(Type(kind, (len(values),))))
        inputs += own
        outputs.append(case.apply(*own))
    graph = Graph(tuple(inputs), tuple(outputs))
    wanted = compiler.reference(graph, arrays)
    for value, want in zip(compiler.run(graph, arrays, processor=processor), wanted):
        if want.dtype.kind == "f":
            tolerance = 2e-6 if want.dtype.itemsize == 4 else 2e-14
            np.testing.assert_allclose(value, want, rtol=tolerance, atol=0, equal_nan=True)
            np.testing.assert_array_equal(signs_of_zeros(value), signs_of_zeros(want))
        else:
            np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize(
    "source", ["float32", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool"]
)
def test_casts_at_the_ends(source, compiler, processor):
    """Floats outside the range of integers become its ends, NaN 0; integers wrap around."""
    kind = np.dtype(source)
    floats = [
        value
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
        for end in (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))
        for value in (end, np.nextafter(end, 0), end - 1, end - 0.5, end + 0.5, end + 1, 2 * end)
    ]
    if kind.kind == "f":
        array = np.array([*SPECIAL, *floats]).astype(kind)
    else:
        ends = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max, 0, 1, 100)
        array = np.array(ends, kind)
    x = Variable(Type(kind, array.shape))
    targets = [
        np.dtype(np.bool_),
        *(np.dtype(f"{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)),
        *FLOATS,
    ]
    compiler.assert_same(
        Graph((x,), tuple(OPERATORS["cast"](x, dtype=dtype) for dtype in targets)),
        [array],
        processor=processor,
    )


def test_what_a_cast_does_to_a_float_that_does_not_fit():
    found = OPERATORS["cast"].reference(
        np.array([np.nan, 300.7, -300.7, -1.5, 99.9]), dtype=np.dtype(np.int8)
    )
    assert found.tolist() == [0, 127, -128, -1, 99]


@pytest.mark.parametrize("name", _elementwise("iu"))
def test_extreme_integers(name, compiler, processor):
    """The least and the greatest integers of every dtype, zero and minus one."""
    inputs, outputs, arrays = [], [], []
    for case in CASES[name]:
        if case.dtypes[-1].kind not in "iu" or case.samples[0].shape != (3, 2) or case.attributes:
            continue
        limits = np.iinfo(case.dtypes[-1])
        special = sorted({limits.min, limits.max, 0, 1, max(-1, limits.min), 7, limits.max // 3})
        count = sum(d.kind in "iu" for d in case.dtypes)
        values = np.array(list(itertools.product(special, repeat=count)), case.dtypes[-1])
        if name == "power":  # NumPy raises no integer to a negative power
            values = values[values[:, 1] >= 0]
        own = [Variable(Type(kind, (len(values),))) for kind in case.dtypes]
        columns = iter(values.T)
        arrays += [
            np.ascontiguousarray(next(columns)) if d.kind in "iu" else np.arange(len(values)) % 3 == 0
            for d in case.dtypes
        ]
        inputs += own
        outputs.append(case.apply(*own))
    compiler.assert_same(Graph(tuple(inputs), tuple(outputs)), arrays, processor=processor)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_special_floats_in_reductions(name, compiler, processor):
    """NaN wherever it stands wins extremes, and the first one is where the extreme is."""
    random = np.random.default_rng(1)
    outputs, inputs, arrays = [], [], []
    for dtype, shape in itertools.product(FLOATS, [(5, 3), (3, 37), (37, 3), (20, 20)]):
        array = random.standard_normal(shape).astype(dtype)
        for value in (np.nan, np.inf, -np.inf):
            array[random.random(shape) < 0.1] = value
        array[0, :2] = np.nan, -np.inf
        x = Variable(Type(dtype, shape))
        inputs.append(x)
        arrays.append(array)
        outputs += [OPERATORS[name](x, axes=axes) for axes in [(0,), (1,), (0, 1)]]
    compiler.assert_same(Graph(tuple(inputs), tuple(outputs)), arrays, processor=processor, rounding=ROUNDING)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_zeros_of_either_sign_in_reductions(name, compiler, processor):
    """The sign does not depend on how many are reduced at once: +0 is above -0, and sums begin with +0."""
    outputs, inputs, arrays = [], [], []
    random = np.random.default_rng(3)
    for dtype, shape in itertools.product(FLOATS, [(1, 3), (5, 1), (5, 3), (3, 37), (37, 3), (20, 20)]):
        for share in (0.0, 0.1, 0.5, 1.0):
            inputs.append(Variable(Type(dtype, shape)))
            arrays.append(np.where(random.random(shape) < share, dtype.type(0), dtype.type(-0.0)))
            outputs += [OPERATORS[name](inputs[-1], axes=axes) for axes in [(0,), (1,), (0, 1)]]
    graph = Graph(tuple(inputs), tuple(outputs))
    wanted = compiler.reference(graph, arrays)
    for value, want in zip(compiler.run(graph, arrays, processor=processor), wanted, strict=True):
        np.testing.assert_array_equal(signs_of_zeros(value), signs_of_zeros(want))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_cube_roots_of_all_sizes(dtype, compiler, processor):
    limits = np.finfo(dtype)
    sizes = np.geomspace(float(limits.smallest_normal), float(limits.max) / 2, 500).astype(dtype)
    few = np.array([1, 2, 3, 1000], dtype) * limits.smallest_subnormal
    x = np.concatenate([sizes, -sizes, few, -few, np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)])
    variable = Variable(Type(dtype, x.shape), "x")
    (found,) = compiler.run(Graph((variable,), (OPERATORS["cbrt"](variable),)), [x], processor=processor)
    np.testing.assert_array_max_ulp(found[:-1], np.cbrt(x)[:-1], 4)
    np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(x[:-1]))
    assert np.isnan(found[-1])


def test_constants_in_every_dtype(compiler, processor):
    """A constant stored, repeated or large is what it was, to the sign of zero."""
    random = np.random.default_rng(2)
    outputs: list[Constant] = []
    for dtype in {d for cases in CASES.values() for case in cases for d in case.dtypes}:
        for shape in [(), (3,), (1, 5), (0, 2), (9, 11)]:
            outputs.append(constant(random.integers(0, 2, shape), dtype))
            outputs.append(constant(np.ones(shape), dtype))
    outputs.append(constant(np.array([0.0, -0.0] * 40)))
    outputs.append(constant(np.full(80, np.nan)))
    found = compiler.run(Graph((), tuple(outputs)), [], processor=processor)
    for value, node in zip(found, outputs, strict=True):
        assert value.dtype == node.dtype
        assert value.tobytes() == node.value.tobytes()


def test_random_numbers_have_the_same_bits_for_any_width(compiler, processor):
    random = np.random.default_rng(4)
    inputs, outputs, arrays = [], [], []
    for size, dtype in itertools.product((1, 5, 64, 1003), FLOATS):
        words = [Variable(Type(np.dtype(np.uint32), (size,))) for _ in range(2)]
        inputs += words
        arrays += [random.integers(0, 2**32, size, np.uint32) for _ in words]
        outputs.append(OPERATORS["box_muller"](*words, dtype=dtype))
    graph = Graph(tuple(inputs), tuple(outputs))
    for value, want in zip(
        compiler.run(graph, arrays, processor=processor), compiler.reference(graph, arrays)
    ):
        assert value.tobytes() == want.tobytes()


def test_a_rounded_product_is_rounded_before_it_is_added(compiler, processor):
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(1003).astype(dtype) for dtype in FLOATS for _ in range(3)]
    own = [Variable(Type(array.dtype, array.shape)) for array in arrays]
    outputs = [OPERATORS["rounded"](x * y) + z for x, y, z in (own[:3], own[3:])]
    graph = Graph(tuple(own), tuple(outputs))
    found, wanted = compiler.run(graph, arrays, processor=processor), compiler.reference(graph, arrays)
    for value, want in zip(found, wanted, strict=True):
        assert value.tobytes() == want.tobytes()
