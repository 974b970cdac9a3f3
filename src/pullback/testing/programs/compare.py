"""All that is compared for one program: NumPy, the interpreter, compiled code, differences, numbers of threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

import pullback
from pullback.compiler.jit import Compiled
from pullback.compiler.stages import Comparison, Same, check_stages
from pullback.errors import IndexRangeError, MatrixError
from pullback.graph import OPERATORS, Graph, Node, Operation, Variable, evaluating, force, regions
from pullback.graph.named import LEAST_SIZE
from pullback.interpreter import evaluate
from pullback.operators.elementwise import constant_value
from pullback.testing.fences import fence, fenced_programs
from pullback.testing.programs.processors import compiled_for
from pullback.testing.programs.program import LOSSES, SIGNLESS, Asked, Program, Step, step_value
from pullback.testing.programs.rounding import SIGNS, expected
from pullback.testing.programs.tolerance import Expected
from pullback.tracing.trace import known_value, leaf_type, output_nodes, tracing
from pullback.tracing.trees import flatten

__all__ = ["Difference", "difference", "donated", "plain", "same_as", "wrong_stage"]

THREADS = 1, 3


@dataclass(frozen=True)
class Difference:
    """What was compared with what, and how they differ."""

    compared: str
    what: str

    def __str__(self) -> str:
        return f"{self.compared}: {self.what}"


class Found(Exception):
    """Ends the comparisons at the first difference."""


def difference(program: Program, stages: bool = False, brief: bool = False) -> Difference | None:
    """The first difference between the ways to run ``program``, or ``None``.

    ``stages`` asks for the program after each stage of the compiler as well, run by the interpreter of loops; ``brief``
    leaves out what is compiled for any size of an axis, and inside transformations.
    """
    try:
        with warnings.catch_warnings(), compiled_for(program.asked.processor()), fenced_programs():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what is called on other threads
            if program.asked.fails:
                _refused(program)
                return None
            wanted = _compare(program, stages)
            if not brief:
                _for_any_size(program, wanted)
                _inside(program, wanted)
    except Found as found:
        if not (isinstance(found.__cause__, MatrixError) and _matrix_is_undecided(program)):
            return Difference(*found.args)
    return None


def _matrix_is_undecided(program: Program) -> bool:
    """Whether rounding decides if what comes before the matrix that is refused is finite."""
    for k, step in enumerate(program.steps):
        part = replace(program, steps=program.steps[: k + 1], outputs=(step.name,), asked=Asked())
        try:
            graph = pullback.trace(part.function(), *part.arguments()).graph
            found = expected(graph, part.arguments())
        except MatrixError:
            return False
        if not all(each.decided.all() for each in found):
            return True
    return False


def _refused(program: Program) -> None:
    """What NumPy refuses is refused when it is traced, or when it runs."""
    refused = _error(program.numpy)
    if refused is None:
        raise Found("NumPy", "was to refuse the program and does not")
    for name, run in (
        ("traced", _interpreted),
        ("evaluated as it goes", _evaluated),
        ("compiled", _compiled),
    ):
        error = _error(lambda run=run: run(program))  # type: ignore[misc]
        if error is None:
            raise Found(f"{name} against NumPy", f"no error; NumPy has {type(refused).__name__}: {refused}")
        if not isinstance(error, pullback.errors.PullbackError):
            raise Found(f"{name} against NumPy", f"{type(error).__name__}: {error}; NumPy has {refused}")


def _error(run: Callable[[], Any]) -> Exception | None:
    try:
        run()
    except Exception as error:
        return error
    return None


def _interpreted(program: Program) -> Any:
    arguments = program.arguments()
    return pullback.trace(program.function(), *arguments).evaluate(arguments)


def _evaluated(program: Program) -> list[Any]:
    """The results of a trace on known values."""
    leaves, structure = flatten(tuple(program.arguments()))
    types = [leaf_type(leaf) for leaf in leaves]
    variables = [Variable(t, "known", known_value(leaf, t)) for leaf, t in zip(leaves, types)]
    made = structure.unflatten(variables)
    with tracing(variables, made), evaluating(True):
        outputs, _ = output_nodes(program.function()(*made))
    with np.errstate(all="ignore"):
        return [force(node) for node in outputs]


def _compiled(program: Program) -> Any:
    return program.compiled()(*program.arguments())


def _compare(program: Program, stages: bool) -> Sequence[Expected]:
    """Compare the program as it is; gives what its results are."""
    arguments = program.arguments()
    traced = _run("traced", lambda: pullback.trace(program.function(), *arguments))
    graph = traced.graph
    wanted: list[Expected] = _run("interpreted", lambda: expected(graph, arguments))
    interpreted = _run("interpreted", lambda: evaluate(graph, arguments))
    _evaluated_alike(program, graph, interpreted, wanted)
    if program.asked.form in ("value", "both"):
        steps = " ".join(step.text for step in program.steps)
        signs = not SIGNLESS.search(steps)
        for k, (name, value) in enumerate(zip(program.outputs, program.numpy())):
            wrong = wanted[k].difference(value, signs, units=2.0)
            if wrong is not None and not signs:
                runs = [program.numpy(np.random.default_rng(seed))[k] for seed in range(SIGNS)]
                wrong = wanted[k].as_rough_as(value, runs).difference(value, signs, units=2.0)
            if wrong is not None:
                raise Found("NumPy against interpreted", f"{name} is {wrong}")
    if program.asked.form in ("gradient", "both"):
        _slopes(program, wanted[-len(program.differentiable()) :])
    if stages:
        named = _stages(program, graph, wanted)
        if named is not None:
            raise Found("stages against interpreted", named)
    compiled = program.compiled()
    assert isinstance(compiled, Compiled)
    runs = [(f"{threads} threads", threads, compiled, program.asked) for threads in THREADS]
    if program.asked.cores > 2:
        runs.append(("code for 2 cores", THREADS[-1], program.compiled(), replace(program.asked, cores=2)))
    first: list[np.ndarray] = []
    before = pullback.get_num_threads()
    try:
        for how, threads, function, asked in runs:
            pullback.set_num_threads(threads)
            given = [_between_fences(x, threads == 1) for x in program.arguments()]
            with compiled_for(asked.processor()):
                results = _run("compiled", lambda f=function, given=given: flatten(f(*given))[0])  # type: ignore[misc]
            results = [np.array(result) for result in results]
            for k, result in enumerate(results):
                _same("compiled against interpreted", _name(program, k), wanted[k], result)
            for k, (one, several) in enumerate(zip(first, results)):
                if one.tobytes() != several.tobytes():
                    raise Found(f"{runs[0][0]} against {how}", f"{one!r} and {several!r} for result {k}")
            first = results
            for k, (x, argument) in enumerate(zip(program.inputs, given)):
                if k not in program.asked.donated and x.values.tobytes() != np.array(argument).tobytes():
                    _unchanged(x.values, argument, x.name)
    finally:
        pullback.set_num_threads(before)
    return wanted


def _inside(program: Program, wanted: Sequence[Expected]) -> None:
    """Steps that are compiled, within the transformations, which are not; of some programs, by their length.

    A derivative is given the cotangents of all results there, zeros among them, which are no numbers where they meet
    infinite slopes, and adds them in an order of its own.
    """
    transformed = program.asked.form != "value" or program.batch is not None
    if program.asked.form == "curvature" and any("float16" in step.text for step in program.steps):
        return  # its derivatives are made in another order, and rounded to 16 bits, or infinite, elsewhere
    if transformed and not len(program.definition()) % 4:
        function = program.function(inside=True)
        for _ in range(2):  # made, and remembered
            results = _run("compiled inside", lambda: flatten(function(*program.arguments()))[0])
            for k, (result, each) in enumerate(zip(results, wanted)):
                found = np.where(np.isnan(result) & ~np.isfinite(each.value), each.value, result)
                wrong = each.difference(found, signs=False)
                if wrong is not None:
                    raise Found("compiled inside against interpreted", f"{_name(program, k)} is {wrong}")


def _for_any_size(program: Program, wanted: Sequence[Expected]) -> None:
    """The program for every size of an axis, that of the examples if there are any, where there is one."""
    given = [x for x in program.inputs if x.values.ndim and (x.batched or program.batch is None)]
    # Any axis, the first ones more often; with it all others that are as long, or none of them.
    random = np.random.default_rng(len(program.definition()))
    extents = [extent for x in given for extent in (*x.values.shape, *x.values.shape[:1] * 2)]
    size = program.batch or (random.choice(extents) if extents else 0)
    only_first = program.batch is not None or random.random() < 0.5
    shapes = {}
    for x in given:
        axes = [extent == size and not (only_first and axis) for axis, extent in enumerate(x.values.shape)]
        if any(axes):
            shapes[x.name] = tuple("rows" if named else None for named in axes)
    if size < LEAST_SIZE or not shapes:
        return
    function = program.function(any_size=True)
    named = pullback.jit(function, donate_argnums=program.asked.donated, shapes=shapes)
    try:
        results = flatten(named(*program.arguments()))[0]
    except Exception as error:
        refused = isinstance(error, pullback.errors.PullbackError)
        ran = isinstance(error, MatrixError) or (
            isinstance(error, IndexRangeError) and error.value is not None
        )
        if refused and not ran:
            return  # it has numbers, or masks, in it that are those of one size, or is refused
        raise Found("compiled for any size against NumPy", f"{type(error).__name__}: {error}") from error
    if program.asked.form != "value":
        wanted = expected(pullback.trace(function, *program.arguments()).graph, program.arguments())
    for k, (result, each) in enumerate(zip(results, wanted)):
        # Sums that go over padding add zeros to it, and -0 + 0 is 0.
        wrong = each.difference(np.asarray(result), signs=False)
        if wrong is not None:
            raise Found("compiled for any size against interpreted", f"{_name(program, k)} is {wrong}")


def _evaluated_alike(
    program: Program, graph: Graph, interpreted: Sequence[np.ndarray], rounded: Sequence[Expected]
) -> None:
    """What is evaluated as it goes has the bits that the interpreter gives its graph.

    Some graphs round in their own way: their results are equal to the ``rounded`` ones but for rounding. And a turn
    whose state nobody uses takes part there, with zeros for a cotangent, which are no numbers where they meet infinite
    slopes.
    """
    name, rounds = "evaluated as it goes", any(map(_rounds_in_its_own_way, graph.nodes()))
    turns = [(interpreted, _run(name, lambda: _evaluated(program)))]
    if program.asked.form in ("gradient", "curvature"):
        function = program.function()
        # Called again, it follows what it remembers of the graph, then of the tape. In C order: a transformation may
        # copy an array, and NumPy's products depend on how their operands lie.
        given = [np.array(x, order="C") if isinstance(x, np.ndarray) else x for x in program.arguments()]
        wanted = _run("interpreted", lambda: evaluate(graph, given))
        for _ in range(5):
            try:
                leaves = flatten(function(*given))[0]
            except Exception as error:
                if program.batch is not None and "NumPy array indexed by it" in str(error):
                    return  # a table that vmap hands on as it is, at places of each example: refused, with the repair
                raise Found(f"{name} against NumPy", f"{type(error).__name__}: {error}") from error
            turns.append((wanted, [np.asarray(leaf) for leaf in leaves]))
    for turn, (wanted, known) in enumerate(turns):
        for k, (value, found) in enumerate(zip(wanted, known)):
            alike = (value.dtype, value.shape) == (found.dtype, found.shape)
            alike = alike and _equal_bits(value, found, signs=not turn)
            wrong = None if alike else f"{found!r} for {value!r}"
            if wrong and rounds:
                other = np.where(np.isnan(value), value, found)
                wrong = rounded[k].difference(other, signs=False)
            if wrong and turn and (wider := _without_bytes(program)) is not None:
                graph, arguments = (
                    pullback.trace(wider.function(), *wider.arguments()).graph,
                    wider.arguments(),
                )
                _evaluated_alike(wider, graph, evaluate(graph, arguments), expected(graph, arguments))
                return
            if wrong:
                raise Found(f"{name} against interpreted", f"{_name(program, k)} is {wrong} in turn {turn}")


def _without_bytes(program: Program) -> Program | None:
    """The program on longer whole numbers, if some have one byte: NumPy's own functions make floats of 16 bits of them.

    Only arrays that are not traced meet these, in a function that is evaluated as it goes. Those of two bytes become
    the floats that traced ones of one byte do, which the rest of the program may go on with.
    """
    inputs = [
        replace(x, values=x.values.astype(np.int16)) if x.values.dtype.name in ("int8", "uint8") else x
        for x in program.inputs
    ]
    changed = any(x is not y for x, y in zip(inputs, program.inputs))
    return replace(program, inputs=type(program.inputs)(inputs)) if changed else None


def _rounds_in_its_own_way(node: Node) -> bool:
    """Whether a graph with this node rounds otherwise than the function evaluated as it goes.

    A loop of Python that the trace has rolled up adds up its derivatives in another order. The product of an array
    with itself, of which NumPy computes one half, may be that of two equal arrays there. And an exponent that is
    computed is known there, as a constant is: its slope is a product of few factors, and here a power.
    """
    if not isinstance(node, Operation):
        return False
    squares = node.operator is OPERATORS["contract"] and node.inputs[0] is node.inputs[1]
    powers = node.operator is OPERATORS["power"] and constant_value(node.inputs[1]) is None
    return squares or powers or bool(regions(node))


def _equal_bits(one: np.ndarray, other: np.ndarray, signs: bool) -> bool:
    """Whether numbers are the same, NaN as well, and zeros of either sign unless ``signs`` count."""
    alike = np.not_equal(one, one) & np.not_equal(other, other)
    if not signs:
        alike |= np.equal(one, 0) & np.equal(other, 0)
    return np.where(alike, 0, one).tobytes() == np.where(alike, 0, other).tobytes()


def _between_fences(argument: Any, front: bool) -> Any:
    """Arrays that are compiled code's as they are at one end of the memory that may be touched."""
    as_it_is = isinstance(argument, np.ndarray) and argument.dtype.isnative and argument.flags.c_contiguous
    return fence(argument, front) if as_it_is and argument.flags.writeable else argument


def _unchanged(values: np.ndarray, argument: Any, name: str) -> None:
    now = np.asarray(argument).astype(values.dtype)
    if now.tobytes() != values.tobytes():
        raise Found("argument after the call against before", f"{name} was written: {now!r} for {values!r}")


def _name(program: Program, k: int) -> str:
    if program.asked.form in ("value", "both") and k < len(program.outputs):
        return program.outputs[k]
    number = program.differentiable()[k - (len(program.outputs) if program.asked.form == "both" else 0)]
    what = "second derivative" if program.asked.form == "curvature" else "gradient"
    return f"the {what} by {program.inputs[number].name}"


def wrong_stage(program: Program) -> str | None:
    """The first stage of the compiler that changes what ``program`` computes, and what it changes, or ``None``."""
    graph = pullback.trace(program.function(), *program.arguments()).graph
    return _stages(program, graph, expected(graph, program.arguments()))


def _stages(program: Program, graph: Graph, wanted: Sequence[Expected]) -> str | None:
    arrays = plain(graph, program.arguments())
    try:
        check_stages(
            graph, arrays, program.asked.processor(), donated(program, graph), same=_comparison(graph, wanted)
        )
    except pullback.errors.StageError as error:
        return str(error)
    return None


def _comparison(graph: Graph, wanted: Sequence[Expected]) -> Comparison:
    """The comparison of the program's results, and of those of its blocks."""

    def comparison(part: Graph, arguments: Sequence[np.ndarray]) -> Same:
        return same_as(wanted if part is graph else expected(part, arguments))

    return comparison


def same_as(wanted: Sequence[Expected]) -> Callable[[int, np.ndarray, np.ndarray], bool]:
    """The comparison of results that ``check_stages`` takes."""
    return lambda number, value, _: wanted[number].difference(value) is None


def plain(graph: Graph, arguments: Sequence[Any]) -> list[np.ndarray]:
    """The arguments as arrays that lie in memory as the program has them."""
    return [np.array(a, v.dtype, order="C").reshape(v.shape) for a, v in zip(arguments, graph.inputs)]


def donated(program: Program, graph: Graph) -> dict[int, int]:
    """Which argument each result may take over, by number."""
    offered: dict[int, int] = {}
    for argument in program.asked.donated:
        for k, node in enumerate(graph.outputs):
            if k not in offered and node.type == graph.inputs[argument].type:
                offered[k] = argument
                break
    return offered


def _run(how: str, run: Callable[[], Any]) -> Any:
    """``run()``; an error is a difference, for NumPy computes the program."""
    try:
        return run()
    except Exception as error:
        raise Found(f"{how} against NumPy", f"{type(error).__name__}: {error}") from error


def _same(compared: str, name: str, wanted: Expected, found: Any) -> None:
    wrong = wanted.difference(found)
    if wrong is not None:
        raise Found(compared, f"{name} is {wrong}")


# ---------------------------------------------------------------------- slopes


@np.errstate(all="ignore")
def _slopes(program: Program, gradients: Sequence[Expected]) -> None:
    """Gradients in float64 against differences by NumPy, along a random direction.

    The differences on both sides and for three steps must agree to within a bound that then is the tolerance; where
    they do not, there is a kink, a jump or too much rounding, and nothing is known. Nor is anything where they do,
    but one step of the program has a kink: slopes are products of those of the steps, by ``docs/kinks.md``.
    """
    inputs = [program.inputs[k] for k in program.differentiable()]
    if any("float16" in step.text for step in program.steps):
        return  # a staircase: its slope is said to be that of what is rounded
    if any(x.values.dtype != np.float64 or not _keeps_steps(x.values) for x in inputs):
        return
    random = np.random.default_rng(0)
    directions = {x.name: random.uniform(-1, 1, x.values.shape) for x in inputs}
    slope, tolerance = 0.0, 0.0
    for x, gradient in zip(inputs, gradients):
        direction = directions[x.name]
        if not gradient.decided.all():
            return
        slope += float(np.sum(gradient.value * direction))
        tolerance += float(np.sum(gradient.tolerance * np.abs(direction)))
    kept: dict[int, dict[str, Any]] = {}

    def values_at(step: float) -> list[dict[str, Any]]:
        """The values of each example."""
        found = []
        for number, given in enumerate(program.examples()):
            moved = {}
            for name, value in given.items():
                along = directions.get(name)
                if along is None:
                    moved[name] = value
                else:
                    row = along[number] if next(x for x in inputs if x.name == name).batched else along
                    moved[name] = np.asarray(value) + step * row
            found.append(program.values_of(moved, kept.setdefault(number, {})))
        return found

    def loss(step: float) -> np.ndarray:
        total = 0.0
        try:
            places = values_at(step)
        except np.linalg.LinAlgError:  # of NaN, on one side of a jump
            return np.asarray(np.nan)
        for values in places:
            for value in [values[name] for name in program.outputs]:
                if np.asarray(value).dtype.kind == "f":
                    text = LOSSES[program.asked.loss].format("x")
                    total += float(eval(text, {"np": np, "x": np.asarray(value)}))
        return np.asarray(total)

    centre = loss(0.0)
    if not np.isfinite(centre):
        return
    found = _Sides(loss, centre)
    if not found.smooth:
        return
    allowed = 4 * found.error + 100 * found.noise + tolerance + 1e-9 * abs(centre) / STEPS[-1]
    if abs(slope - found.slope) <= allowed:
        return
    before, at, after = (values_at(step) for step in (-STEPS[-1], 0.0, STEPS[-1]))
    for here, left, right in zip(at, before, after):
        if not all(_is_smooth(step, here, left, right) for step in program.steps):
            return
    raise Found(
        "gradient against differences",
        f"along a random direction the slope is {slope!r}, differences by NumPy give {float(found.slope)!r} "
        f"within {float(allowed):.3g}",
    )


STEPS = 2e-4, 1e-4, 5e-5


def _keeps_steps(x: np.ndarray) -> bool:
    """Whether numbers are finite, so small that no step is lost in them, and not so small that 1 / x is infinite."""
    size = np.abs(x)
    normal = (size == 0) | (size >= np.finfo(x.dtype).smallest_normal)
    return bool(np.all(np.isfinite(x) & normal & (np.spacing(size) < 1e-5 * STEPS[-1])))


class _Sides:
    """Slopes of ``function`` at 0 by differences on both sides, element by element."""

    def __init__(self, function: Callable[[float], np.ndarray], centre: np.ndarray) -> None:
        sides = [((function(step) - centre) / step, (centre - function(-step)) / step) for step in STEPS]
        central = [(right + left) / 2 for right, left in sides]
        gaps = [np.abs(right - left) for right, left in sides]
        self.slope = central[-1]
        self.noise = 1e-10 * (1 + np.abs(centre)) + 1e-7 * (1 + np.abs(self.slope))
        self.error = np.maximum(*(np.abs(each - self.slope) for each in central[:-1]))
        # The one-sided slopes approach each other as the step does, the central ones faster.
        near = [small <= 0.6 * large + self.noise for large, small in pairwise(gaps)]
        self.smooth: np.ndarray = np.logical_and(*near) & (self.error <= 1e-3 * (1 + np.abs(self.slope)))


def _is_smooth(step: Step, at: dict[str, Any], left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether a step has no kink where it is: its result moves smoothly as its operands do, and along the sum of two
    directions as the sum of its moves. The median of equal numbers does the one and not the other.

    Results that are no floats must be those of one of the sides: else a branch may be taken here that is taken nowhere
    else, or two that are taken on a side each.
    """
    value = np.asarray(at[step.name])
    if value.dtype.kind != "f":
        return bool(np.array_equal(value, left[step.name]) or np.array_equal(value, right[step.name]))
    random = np.random.default_rng(0)
    floats = [name for name in step.operands if np.asarray(at[name]).dtype.kind == "f"]

    def along(direction: dict[str, Any]) -> _Sides:
        def moved(by: float) -> np.ndarray:
            operands = {name: np.asarray(at[name]) + by * direction[name] for name in floats}
            return np.asarray(step_value(step, {**at, **operands}))

        return _Sides(moved, value)

    # Of some pairs, since the same one of few equal numbers may be the median in three directions.
    for _ in range(6):
        one, other = ({name: random.uniform(-1, 1, np.shape(at[name])) for name in floats} for _ in range(2))
        both = {name: one[name] + other[name] for name in floats}
        first, second, third = sides = [along(direction) for direction in (one, other, both)]
        missing = np.abs(first.slope + second.slope - third.slope)
        linear = missing <= sum(4 * each.error + 100 * each.noise for each in sides)
        if not (all(bool(each.smooth.all()) for each in sides) and bool(np.all(linear))):
            return False
    return True
