"""Random programs: NumPy, the interpreter and compiled code agree on values, gradients and second derivatives.

``python -m pullback.testing.programs --count 100000`` runs as many as one likes.
"""

import contextlib
import functools
import itertools
import secrets
import subprocess
import sys

import numpy as np
import pytest

import pullback as pb
from pullback.graph import OPERATORS
from pullback.testing.programs import compare, reference
from pullback.testing.programs.compare import Difference, difference, wrong_stage
from pullback.testing.programs.families import FAMILIES
from pullback.testing.programs.generate import generate
from pullback.testing.programs.maker import Maker, Rejected
from pullback.testing.programs.program import LAYOUTS, Asked, Input, Program, Step
from pullback.testing.programs.reference import At
from pullback.testing.programs.rounding import expected
from pullback.testing.programs.shrink import shrunk
from pullback.tracing import trace

FRESH = secrets.token_hex(4)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE", "off")


@pytest.mark.parametrize("first", range(0, 180, 20))
def test_programs_of_a_fixed_seed(first):
    check("fixed", first)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_programs_of_a_fresh_seed(first):
    check(FRESH, first)


def check(seed, first):
    for number in range(first, first + 20):
        program = generate(seed, number)
        found = difference(program)
        if found is not None:
            smallest, what = shrunk(program, found)
            told = f"seed {seed!r}, program {number}: {what}\n\n{smallest.source()}\n{wrong_stage(smallest)}"
            pytest.fail(told, pytrace=False)


def test_the_same_seed_makes_the_same_program():
    assert generate("a", 7).source() == generate("a", 7).source() != generate("a", 8).source()


@pytest.mark.parametrize("family", [family for family, _ in FAMILIES], ids=lambda family: family.__name__)
def test_numpy_answers_all_that_a_family_writes(family):
    for number in range(60):
        m = Maker(f"{family.__name__}/{number}")
        with contextlib.suppress(Rejected):
            m.input(m.some_shape())
            family(m)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_keep_their_values_in_every_layout(layout):
    values = np.array(2.5) if layout == "number" else np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(Input("x0", values, layout).given(), values)


def test_what_is_printed_is_what_runs(capsys):
    program = of("np.exp({0}) * 2", np.array([0.0, 1.0]), form="gradient")
    exec(program.source(), {})
    uncompiled, compiled = capsys.readouterr().out.splitlines()
    assert uncompiled == compiled == str(((2 * np.exp(np.array([0.0, 1.0]))),))


# ---------------------------------------------------------------------- what is told apart


def of(text, *arrays, form="value", loss="sum"):
    """The program of one step."""
    inputs = tuple(Input(f"x{k}", array) for k, array in enumerate(arrays))
    step = Step("v0", text, tuple(x.name for x in inputs))
    return Program(inputs, (step,), ("v0",), Asked(form, loss))


def estimate(function, *arrays):
    return expected(trace(function, *arrays).graph, arrays)[0]


def test_sums_of_small_integers_are_exact():
    x = np.arange(12.0).reshape(3, 4)
    assert (estimate(lambda x: (x @ x.T).sum() / 4, x).tolerance == 0).all()


def test_sums_of_others_are_as_exact_as_their_terms():
    x = np.array([1e8, 0.1, -1e8], np.float32)
    found = estimate(lambda x: x.sum(), x)
    assert 1 < found.tolerance < 1000
    assert found.difference(np.float32(0)) is None
    assert "rounding explains" in found.difference(np.float32(5000))


def test_sums_of_equal_terms_may_be_rounded_to_the_same_side_each_time():
    x = np.full(1000, 23.077, np.float32)
    found = estimate(lambda x: x.sum(), x)
    assert found.difference(np.add.accumulate(x)[-1]) is None
    assert found.difference(np.float32(1.001) * found.value) is not None


def test_equal_terms_that_are_added_one_by_one_may_be_multiplied_by_their_number():
    x = np.random.default_rng(0).uniform(0.1, 1, 200)
    found = estimate(lambda x: (np.broadcast_to(x, (700, 200)) ** 3 + 1).sum(0), x)
    assert found.difference(700 * (x**3 + 1)) is None
    assert found.difference(700 * (x**3 + 1) + 1e-9) is not None


def test_turns_of_a_loop_may_round_to_the_same_side_each_time():
    x = np.array([23.077, -23.0], np.float32)
    found = estimate(lambda x: pb.fori_loop(0, 1000, lambda k, total: total + x, x).sum(), x)
    one_by_one = np.add.accumulate(np.broadcast_to(x, (1001, 2)), axis=0)[-1]
    assert found.difference(one_by_one.sum()) is None
    assert found.difference(np.float32(1001 * 0.077)) is None
    assert found.difference(np.float32(1001 * 0.2)) is not None


def test_sums_in_turns_of_a_loop_may_be_made_over_the_turns_first():
    x = np.random.default_rng(0).uniform(0.5, 1, (8, 40))
    x[7] = -x[:7].sum(0)

    def added(x):
        return pb.fori_loop(0, 129, lambda k, c: (c[0] + c[1].sum(0), c[1][::-1]), (x.sum(0), x))[0]

    found = estimate(added, x)
    turns_first = np.add.accumulate(np.broadcast_to(x, (130, 8, 40)), axis=0)[-1].sum(0)
    assert found.difference(turns_first) is None
    assert found.difference(found.value + 1e-8) is not None


def test_a_difference_is_one_only_after_many_runs():
    """Each mean is as likely to be moved up as down, and below zero nothing of it is seen."""
    x = np.full((40, 6), -0.3132616877555847, np.float32)
    found = estimate(lambda x: np.maximum(x - np.mean(x, axis=1, keepdims=True), 0), x)
    assert found.difference(np.full_like(x, 2.9802322e-08)) is None
    assert found.difference(np.full_like(x, 1e-4)) is not None


def test_a_value_still_equals_the_maximum_that_it_is():
    x = np.random.default_rng(0).standard_normal((4, 5))
    found = estimate(lambda x: np.exp(x) == np.exp(x).max(axis=1, keepdims=True), x)
    assert found.decided.all()


def test_what_hangs_on_rounding_is_undecided():
    x = np.array([0.1, 3.0])
    found = estimate(lambda x: x * 3 - (x + x + x) >= 0, x)
    assert found.decided.tolist() == [False, True]


def test_an_equality_that_rounding_may_bring_about_is_undecided():
    x = np.array([[-2.0, 0.0, -2.0, 2.0, 0.0, 3.0, 4.0, -4.0, -1.0]], np.float32)
    found = estimate(lambda x: x * 0.1 == np.mean(x * 0.1, axis=-1, keepdims=True), x)
    assert found.decided.tolist() == [[value != 0 for value in x[0]]]
    assert estimate(lambda x: x == np.mean(x, axis=-1, keepdims=True), x).decided.all()


def test_any_of_many_sums_of_the_same_value_may_be_the_largest():
    x = np.linspace(-1, 1, 360, dtype=np.float32).reshape(120, 3)

    def winners(x):
        sums = np.sum(np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True), axis=-1)
        return np.where(sums == np.max(sums), sums - 1, 0)

    found = estimate(winners, x)
    for k in range(120):
        one = np.eye(1, 120, k, dtype=np.float32)[0]
        assert found.difference(one * np.finfo(np.float32).eps) is None
        assert found.difference(one * 1e-4) is not None


@pytest.mark.parametrize(
    ("value", "other"), [(0.0, -0.0), (np.nan, 1.0), (np.inf, -np.inf), (1.0, np.nextafter(1.0, 2))]
)
def test_exact_values_are_compared_exactly(value, other):
    found = estimate(lambda x: x[::-1], np.array([value]))
    assert found.difference(np.array([value])) is None
    assert found.difference(np.array([other])) is not None


def test_dtypes_and_shapes_are_compared():
    found = estimate(lambda x: x[::-1], np.array([1.0]))
    assert found.difference(np.array([1.0], np.float32)) == "float32[1] for float64[1]"
    assert found.difference(np.array([[1.0]])) == "float64[1, 1] for float64[1]"


# ---------------------------------------------------------------------- what is found


@pytest.fixture
def wrong(request):
    """``wrong(name, **rules)``: an operator has wrong rules for the time of a test."""

    def spoil(name, **rules):
        operator = OPERATORS[name]
        for rule, function in rules.items():
            before = getattr(operator, rule)
            request.addfinalizer(lambda rule=rule, before=before: object.__setattr__(operator, rule, before))
            object.__setattr__(operator, rule, function)

    return spoil


X = np.array([[0.3, 1.2], [-0.7, 2.0]])
EXTENTS = itertools.count(3)


def unseen():
    """An operand of a shape that nobody else has: what operators make of known kinds of operands is remembered."""
    return np.resize(X, (2, next(EXTENTS), 1, 1, 1))


def test_a_wrong_lowering_is_found(wrong):
    wrong("sinh", lower=lambda node, operands, index: operands[0](index))
    assert difference(of("np.sinh({0})", X)).compared == "compiled against interpreted"


def test_a_wrong_reference_is_found(wrong):
    wrong("sinh", reference=np.cosh)
    assert difference(of("np.sinh({0})", unseen())).compared == "NumPy against interpreted"


def test_a_wrong_derivative_is_found(wrong):
    wrong("sinh", pullback=lambda node, g: [g * 3])
    assert (
        difference(of("np.sinh({0})", unseen(), form="gradient")).compared == "gradient against differences"
    )


def test_a_kink_is_not_taken_for_a_wrong_derivative():
    x = np.array([[-1.0, 0.0, 2.0, 2.0]])
    assert difference(of("np.abs({0}) + np.maximum({0}, 2)", x, form="gradient")) is None


COMPOSED = [
    ("np.cbrt", ["np.var({0})", "np.cbrt({0})"], [2.0]),
    ("arccosh", ["{0} * {0} + 1", "np.arccosh({0})", "{0} ** 3"], [4.0, 0.0]),
    ("a condition at one point", ["{0} != 0", "{1} * {0}"], [0.0, 3.0]),
    ("two conditions", ["np.stack([{0} >= 0, {0} <= 0])", "np.where({0}, {1}, 0)"], [0.0, 3.0]),
    ("two kinks that cancel", ["np.clip({0}, 0, None)", "{0} - np.min({0})", "{0} ** 3"], [0.0, -2.0, 1.0]),
    ("one that no direction shows", ["np.median({0}, axis=0)"], [1.0, 1.0, 1.0, 1.0, 1.0]),
]


@pytest.mark.parametrize(("texts", "x"), [case[1:] for case in COMPOSED], ids=[case[0] for case in COMPOSED])
def test_kinks_of_steps_are_not_taken_for_wrong_derivatives(texts, x):
    names = [f"v{k}" for k in range(len(texts))]
    steps = [Step(name, text, (before, "x0")) for name, text, before in zip(names, texts, ["x0", *names])]
    asked = Asked("gradient", "sum")
    assert difference(Program((Input("x0", np.array(x)),), tuple(steps), (names[-1],), asked)) is None


def test_floats_of_untraced_bytes_are_those_of_traced_ones():
    """NumPy's ``sinh`` of untraced bytes has floats of 16 bits; a scan refuses to change its carry's dtype."""
    x, y = (Input(f"x{k}", np.full((2, 3), k + 1, dtype)) for k, dtype in enumerate((np.int8, np.float32)))
    steps = (
        Step("v0", "np.sinh({0})", ("x0",)),
        Step("v1", "pb.scan(lambda c, x: (np.sin(c) * x, c + 1), {0}[0], {1})[1]", ("x1", "v0")),
    )
    program = Program((x, y), steps, ("v0", "v1"), Asked("gradient", "sum"))
    assert difference(program) is None


def test_slopes_are_not_compared_where_steps_are_lost():
    assert difference(of("np.cos({0})", np.array([1e30]), form="gradient")) is None


def test_nan_for_a_slope_is_found(wrong):
    wrong("sinh", pullback=lambda node, g: [g * np.nan])
    assert (
        difference(of("np.sinh({0})", unseen(), form="gradient")).compared == "gradient against differences"
    )


def test_a_slope_at_equal_operands_is_compared(wrong):
    """A function that is smooth at a point has its own slope there, whatever happens elsewhere."""
    wrong("logaddexp", pullback=lambda node, g: [g, None])
    x = unseen()
    program = of("np.logaddexp({0}, {1})", x, x.copy(), form="gradient")
    assert difference(program).compared == "gradient against differences"


def test_signs_of_zero_products_are_undecided():
    x, y = np.array([[-3.0], [1.0]]), np.array([[0.0]])

    def function(x, y):
        v = x @ y
        return v - np.max(v, axis=0, keepdims=True)

    found = expected(trace(function, x, y).graph, [x, y])[0]
    for first in (0.0, -0.0):
        assert found.difference(np.array([[first], [0.0]])) is None
    one = expected(trace(lambda x, y: x * y, x, y).graph, [x, y])[0]
    assert one.difference(np.array([[0.0], [0.0]])) is not None


def test_values_of_odd_functions_are_moved_to_opposite_sides():
    found = estimate(lambda x: np.tanh(x[0]) - np.tanh(x[1]), np.array([-3.0, 3.0], np.float32))
    assert found.tolerance > 0
    assert estimate(lambda x: np.tanh(x[0]) + np.tanh(x[1]), np.array([-3.0, 3.0], np.float32)).tolerance == 0


def test_a_sum_of_zero_products_is_negative_where_all_of_them_may_be():
    x, y = np.array([[-3.0], [1.0]]), np.array([[0.0]])
    found = expected(
        trace(lambda x, y: functools.reduce(np.add, [(x * k) @ y for k in range(1, 9)]), x, y).graph, [x, y]
    )[0]
    for first in (0.0, -0.0):
        assert found.difference(np.array([[first], [0.0]])) is None


def test_products_that_vanish_are_rounded():
    x, y, zero = (np.array([value]) for value in (5e-324, -0.5, 0.0))
    found = estimate(lambda x, y, z: x * y + z, x, y, zero)
    assert found.difference(-zero) is None and found.difference(zero) is None
    assert estimate(lambda x, y, z: x * y + z, zero, y, zero).difference(-zero) is not None


@pytest.mark.parametrize(
    "function",
    [lambda x: x[:2] @ x[2:], lambda x: np.prod(x[:3]), lambda x: x[0] * x[2], lambda x: x[0] ** 0.99],
)
def test_what_underflows_is_rounded_in_units_of_its_own(function):
    found = estimate(function, np.array([1.5e-320, 0.3, 0.4, 1e-312]))
    assert 0 < found.value < 1e-300 and found.difference(found.value + 5e-324) is None
    assert found.difference(found.value + 1e-318) is not None


def test_a_mean_of_subnormal_numbers_is_rounded_or_not():
    """Half of the least number is all there is; beside ordinary numbers it is nothing."""
    least = np.finfo(np.float32).smallest_subnormal
    x = np.array([[-least, -0.0], [1.0, least], [1.0, 0.0]], np.float32)
    found = estimate(lambda x: pb.numpy.standardise(x, axis=1), x)
    assert found.difference(np.concatenate([[[-0.0, 0.0]], found.value[1:]]).astype(np.float32)) is None
    assert found.tolerance[1:].max() < 1e-4
    off = found.value * np.array([[1.0], [1.001], [1.0]], np.float32)
    assert "at (1, 0)" in found.difference(off)


def test_sums_of_products_are_as_exact_as_numpy_s_own():
    x, y, angle = np.array([[2.5, -4.0, 1.5]]), np.array([-0.5]), np.array([-0.5])
    text = "np.einsum('ab,a,a->a', {0}, {1}, np.arctan2({2}, {2}))"
    assert difference(of(text, x, y, angle)) is None


def test_the_sign_of_a_zero_maximum_is_left_open_to_all_that_follows():
    steps = Step("v0", "np.clip({0}, 0, 6)", ("x0",)), Step("v1", "np.arctan2({0}, {0})", ("v0",))
    program = Program((Input("x0", np.array([-1.2, -0.0])),), steps, ("v1",))
    assert difference(program) is None


def test_values_are_repeated_for_the_places_that_numpy_forgets():
    places = np.array([[1, 4], [3, 4]])
    assert At(np.zeros(5))[places].add(np.ones(2)).tolist() == [0, 1, 0, 1, 2]


def test_a_number_is_added_to_unsigned_ones_as_one_of_them():
    most = np.array([1, 2**64 - 1], np.uint64)
    assert At(most)[1:].add(0).tolist() == most.tolist()


def test_errors_must_agree():
    refused = Asked(fails=True)
    program = of("{0} @ {0}", np.ones((2, 3)))
    assert "ShapeError" in str(difference(program))
    assert difference(Program(program.inputs, program.steps, program.outputs, refused)) is None
    fine = of("{0} @ {0}", np.ones((2, 2)))
    assert difference(Program(fine.inputs, fine.steps, fine.outputs, refused)).compared == "NumPy"


def test_a_wrong_stage_is_named(wrong):
    program = of("np.sinh({0})", X)
    assert difference(program, stages=True) is None and wrong_stage(program) is None
    wrong("sinh", lower=lambda node, operands, index: operands[0](index))
    assert difference(program, stages=True).compared == "stages against interpreted"
    assert "lower" in wrong_stage(program)


def test_the_smallest_program_is_found(wrong):
    wrong("sinh", lower=lambda node, operands, index: operands[0](index))
    steps = (
        Step("v0", "np.exp({0})", ("x0",)),
        Step("v1", "np.sinh({0})", ("v0",)),
        Step("v2", "{0} + {1}", ("v1", "x1")),
        Step("v3", "np.sum({0}, axis=0)", ("v2",)),
    )
    inputs = Input("x0", np.full((4, 5), 0.31), "backwards"), Input("x1", np.ones(5))
    program = Program(inputs, steps, ("v0", "v3"), Asked("both"))
    smallest, what = shrunk(program, difference(program))
    assert [step.text for step in smallest.steps] == ["np.sinh({0})"]
    assert [x.values.tolist() for x in smallest.inputs] == [[[1.0]]]
    assert smallest.asked.form == "value" and smallest.inputs[0].layout == "plain"
    assert what.compared == "compiled against interpreted"


def test_shrinking_stays_with_its_difference():
    program = of("np.exp({0}) + {0}", X)
    smallest, what = shrunk(program, Difference("a", "b"), lambda candidate: Difference("other", ""))
    assert smallest is program and what.compared == "a"


def test_the_command(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pullback.testing.programs",
        "--count",
        "3",
        "--seed",
        "command",
        "--start",
        "1",
    ]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "3 programs of seed 'command', from number 1" in run.stdout
    assert run.stdout.endswith("differences: none\n") == (run.returncode == 0)


def test_threads_are_put_back():
    from pullback import get_num_threads

    before = get_num_threads()
    difference(of("np.exp({0})", X))
    assert get_num_threads() == before and compare.THREADS[0] == 1


@pytest.mark.parametrize(
    "f", [lambda x, y: np.sum(x * y), lambda x, y: x @ y, lambda x, y: x[0] * y[0] + x[1] * y[1]]
)
def test_a_product_that_is_added_without_being_rounded_does_not_overflow(f):
    arrays = np.array([1, 1e30], np.float32), np.array([-np.inf, 1e30], np.float32)
    (result,) = expected(trace(f, *arrays).graph, arrays)
    assert np.isnan(result.value)  # -inf and a product that has overflowed
    assert result.difference(np.float32(-np.inf)) is None
    (fits,) = expected(trace(f, *arrays).graph, [np.array([1, 2], np.float32), arrays[1]])
    assert fits.difference(np.float32(np.nan)) is not None


def test_a_product_of_arrays_that_is_added_without_being_rounded_does_not_overflow():
    a, b, c = (np.array([[x]], np.float32) for x in (-np.inf, 1e30, 1e30))
    (result,) = expected(trace(lambda a, b, c: a + np.einsum("ij,jk->kij", b, c), a, b, c).graph, [a, b, c])
    assert np.isnan(result.value).all()
    assert result.difference(np.full((1, 1, 1), -np.inf, np.float32)) is None


@pytest.mark.parametrize(
    ("f", "large"),
    [(lambda x, y: x @ y, [2.0, -4.0]), (lambda x, y: np.sum(np.concatenate([x, -x])), [0.0, 0.0])],
)
def test_terms_that_overflow_in_one_order_may_do_so(f, large):
    x, y = np.array([2e38, 2e38], np.float32) / 2, np.array(large, np.float32)
    (result,) = expected(trace(f, 2 * x, y).graph, [2 * x, y])
    assert result.difference(np.float32(-np.inf)) is None
    (small,) = expected(trace(f, x, y / 4).graph, [x / 4, y / 4])
    assert np.isfinite(small.value)
    assert small.difference(np.float32(-np.inf)) is not None


def test_the_sign_of_what_is_no_number_is_left_open():
    x = np.array([np.nan, -2.0, 3.0])
    (negative,) = expected(trace(np.signbit, x).graph, [x])
    assert negative.difference(np.array([True, True, False])) is None
    assert negative.difference(np.array([False, True, False])) is None
    assert negative.difference(np.array([False, False, False])) is not None


def test_what_solvers_make_of_infinite_numbers_is_left_open():
    x, b = np.array([[2.0, 0], [1, 3]]), np.array([1.0, np.inf])
    solve = trace(np.linalg.solve, x, b).graph
    for right, left_open in ((b, True), (np.array([1.0, 4.0]), False)):
        (found,) = expected(solve, [x, right])
        assert (found.difference(np.array([0.5, 7.0])) is None) == left_open


NONE = "np.where(np.eye(2) > 0, ({0} - {1}) / ({0} - {1}), {2})"


@pytest.mark.parametrize(
    ("text", "undecided"), [(NONE.format("np.sin({0})", -1, "{0}"), True), (NONE.format(*3 * ["{0}"]), False)]
)
def test_a_matrix_is_refused_or_not_where_rounding_decides_whether_it_is_finite(text, undecided):
    x = Input("x0", np.full((2, 2), -np.pi / 2, np.float32))
    steps = (Step("v0", text, ("x0",)), Step("v1", "np.linalg.norm({0}, 'nuc')", ("v0",)))
    program = Program((x,), steps, ("v1",), Asked())
    assert (difference(program) is None) == undecided


def test_what_a_transform_and_its_inverse_make_of_zeros_may_be_zero():
    x = np.array([0.3, 0.0, -1.7, 0.0, 0.9, 0.0, 2.1], np.float32)

    def function(x):
        v = np.fft.ifft(np.fft.fft(x + 1j * x) * 1j).imag
        return v % -v

    assert estimate(function, x).decided.tolist() == (x != 0).tolist()


def test_the_sign_of_a_zero_that_a_transform_gives_is_left_open():
    x = np.array([[1.0], [-2.0]])
    graph = pb.trace(lambda x: np.fft.rfft(x, 8, axis=1).imag, x).graph
    (result,) = expected(graph, [x])
    assert (result.value == 0).any()
    assert result.difference(np.where(result.value == 0, -result.value, result.value)) is None


def test_zeros_that_a_transform_gives_are_as_exact_as_the_rest_of_the_row():
    g = np.array([[1.0, -2.0, 0.5]], np.float32)
    graph = pb.trace(lambda g: pb.grad(lambda x: (np.fft.rfft(x, 4).imag * g).sum())(g[:, :1]), g).graph
    (result,) = expected(graph, [g])
    assert result.value.dtype == np.float32 and (result.value == 0).all()
    assert result.difference(np.full_like(result.value, 6e-8)) is None
    assert result.difference(np.full_like(result.value, 6e-5)) is not None


def test_a_sum_may_be_rounded_to_another_dtype_term_by_term():
    x = np.array([1 / 3, 2 / 3])
    (result,) = expected(pb.trace(lambda x: (x[0] - x[1] / 2.0000003).astype(np.float32), x).graph, [x])
    apart = np.float32(x[0]) - np.float32(x[1] / 2.0000003)
    assert abs(apart - result.value) > 0.1 * result.value
    assert result.difference(apart) is None
    assert result.difference(np.float32(2 * result.value + 1e-5)) is not None


@pytest.mark.parametrize("f", [lambda x, w: x.sum() * w, lambda x, w: x.sum(0, keepdims=True) @ w[None]])
def test_a_sum_may_be_multiplied_term_by_term(f):
    """A pool's windows that overlap are added up before the weights are met, or after: 0, or 3 w + 4 w - 7 w."""
    x, w = np.array([3, 4, -7], np.float32), np.array([0.7], np.float32)
    (result,) = expected(pb.trace(f, x, w).graph, [x, w])
    apart = (x[0] * w + x[1] * w + x[2] * w).reshape(result.value.shape)
    assert result.value == 0 and apart != 0
    assert result.difference(apart) is None
    assert result.difference(1000 * apart) is not None


def test_an_exponent_that_is_computed_is_known_to_what_is_evaluated_as_it_goes():
    """There the slope of a cube is ``3 * (x * x)``, and in the graph ``3 * power(x, 2.0)``: a unit apart at 1.92."""
    x = Input("x0", np.linspace(0.5, 2.0, 143)), Input("x1", np.array(-4))
    steps = Step("v0", "np.invert({0})", ("x1",)), Step("v1", "np.power({0}, {1})", ("x0", "v0"))
    assert difference(Program(x, steps, ("v1",), Asked("gradient", "sum"))) is None


def test_a_matrix_that_is_refused_for_what_rounding_leaves_is_left_open():
    """The second element of v0 is 0, 1e-16 or any number between: of its logarithm everything may become."""
    x = Input("x0", np.array([[3.0], [0.0]])), Input("x1", np.array([[1.0]]))
    steps = (
        Step("v0", "np.imag(np.sqrt({0} + 1.5j) * np.conj({1} + 1j))", ("x0", "x1")),
        Step("v1", "np.where(({0} > 0), np.log10({0}), {0})", ("v0",)),
        Step("v2", "np.swapaxes({0}, -1, -2) @ {0} + 1 * np.eye(6, dtype=np.float64)", ("v1",)),
        Step("v3", "np.linalg.cholesky({0})", ("v2",)),
    )
    assert difference(Program(x, steps, ("v3",), Asked("value"))) is None


def test_the_reference_of_gammaln_is_exact_next_to_its_zeros():
    mpmath = pytest.importorskip("mpmath")
    x = np.array([0.3, 0.999, 1.0706424252497293, 1.46, 1.0, 1 + 2**-52, 2.0, 2.0001, 3.9])
    with mpmath.workprec(200):
        wanted = [float(mpmath.loggamma(mpmath.mpf(float(each)))) for each in x]
    np.testing.assert_array_max_ulp(reference.scipy.special.gammaln(x), np.array(wanted), 1)


def test_what_is_chosen_by_what_rounding_leaves_may_be_of_any_size():
    def sized(x):
        left = np.sum(x - np.mean(x))
        return np.where(left > 0, 1 / np.where(left > 0, left, 1), 0.0)

    x = np.random.default_rng(0).standard_normal(5)
    (result,) = expected(trace(sized, x).graph, [x])
    assert result.chooses()
    most = max(float(np.abs(run).max()) for run in result.moved)
    assert most > 0 and result.difference(np.float64(100 * most)) is None
    assert result.difference(np.float64(1e9 * most)) is not None
    (result,) = expected(trace(lambda x: np.where(x > 0, np.exp(x), 0.0), x).graph, [x])
    assert not result.chooses() and result.difference(1.0001 * result.value) is not None


def test_determinants_of_infinite_matrices_are_left_open():
    a = np.eye(5) + np.arange(25.0).reshape(5, 5)
    a[0, 0] = np.inf
    (result,) = expected(trace(np.linalg.det, a).graph, [a])
    assert result.difference(np.float64(np.nan)) is None and result.difference(np.float64(np.inf)) is None
