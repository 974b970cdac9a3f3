"""Every expression of ``docs/expressions``, in every way that the page ticks; and what the page does not tick."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import PullbackError, TracingError

DOCS = Path(__file__).parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("numpy_table", DOCS / "numpy_table.py")
table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(table)

PAGE = (DOCS / "numpy.md").read_text()
SAME_NUMPY = f"NumPy {'.'.join(np.__version__.split('.')[:2])}'s" in PAGE
TOGETHER = 40
"""Expressions that are compiled as one program."""

WORKING = [expression for expression in table.expressions() if expression.mark != "x"]
SMOOTH = [expression for expression in WORKING if expression.mark == "d"]
REFUSED = [expression for expression in table.expressions() if expression.mark == "x"]
Expression = Any

pytestmark = pytest.mark.filterwarnings("ignore")


def text(expression: Expression) -> str:
    return expression.text


def groups(expressions: Sequence[Expression]) -> list[Sequence[Expression]]:
    return [expressions[k : k + TOGETHER] for k in range(0, len(expressions), TOGETHER)]


def of_numpy(expression: Expression, example: int = 0) -> list[np.ndarray]:
    """The arrays that NumPy gives."""
    return table.parts(table.traced(expression)(*map(np.copy, expression.arguments(example))))


def assert_equal(found: Any, expected: Sequence[np.ndarray], where: str) -> None:
    ours = table.parts(found)
    assert len(ours) == len(expected), where
    for a, b in zip(ours, expected):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=where)


def floats(expression: Expression) -> list[str]:
    """The arrays that the expression has derivatives by."""
    return [name for name in expression.names if table.ARRAYS[name].dtype.kind == "f"]


def weighed(expression: Expression) -> Callable[..., Any]:
    """A number made of all results, with a weight of its own for each element; a function of the floats by name."""
    function = table.traced(expression)

    def loss(own: dict[str, Any], arrays: dict[str, Any]) -> Any:
        made = function(*[own.get(name, arrays[name]) for name in expression.names])
        several = list(made) if isinstance(made, (list, tuple)) else [made]
        return sum(np.sum(np.sin(1.0 + np.arange(part.size)).reshape(part.shape) * part) for part in several)

    return loss


@pytest.mark.parametrize("expression", WORKING, ids=text)
def test_the_value_is_numpys(expression: Expression) -> None:
    found = pb.trace(table.traced(expression), *expression.arguments()).evaluate(expression.arguments())
    assert_equal(found, of_numpy(expression), expression.text)


def _whole(kind: type) -> Callable[[np.ndarray], np.ndarray]:
    """Floats that are numbers, as integers or bools of ``kind``."""

    def made(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "f" or not np.isfinite(x).all():
            return x
        return (
            x > 0
            if kind is np.bool_
            else (abs if kind is np.uint8 else np.array)(np.round(x * 3)).astype(kind)
        )

    return made


OTHER_KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float32": lambda x: x.astype(np.float32) if x.dtype.kind == "f" else x,
    "int64": _whole(np.int64),
    "int8": _whole(np.int8),
    "uint8": _whole(np.uint8),
    "bool": _whole(np.bool_),
    "complex128": lambda x: x + 0.7j * x[::-1] if x.dtype.kind == "f" and x.ndim else x,
    "empty": lambda x: x[:0] if x.ndim else x,
}
OTHERWISE = {
    "np.polydiv(v, c)[1]": "NumPy leaves out zeros in front, which depend on values",
    "np.bincount(h, weights=v, minlength=4)": "of nothing NumPy gives integers for weights that are floats",
    'np.pad(v, (2, 3), mode="linear_ramp", end_values=(1.0, -1.0))': "-1 is no uint8",
    "np.spacing(x)": "the last place is that of float32",
    "np.nextafter(i, j)": "the last place is that of float32",
    "x.conj()": "bools",
    "x.conjugate()": "bools",
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_values_of_other_kinds_are_numpys_or_refused(kind: str) -> None:
    for expression in WORKING:
        if expression.text in OTHERWISE:
            continue
        arguments = [OTHER_KINDS[kind](x) for x in expression.arguments()]
        function = table.traced(expression)
        try:
            expected = table.parts(function(*map(np.copy, arguments)))
        except Exception:  # whatever NumPy raises: it does not take these
            expected = None
        try:
            found = table.parts(pb.trace(function, *arguments).evaluate(arguments))
        except (PullbackError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            assert isinstance(error, PullbackError) or expected is None, f"{expression.text}: {error!r}"
            continue
        if expected is not None:
            # Functions of small integers are computed in float32 here, in float16 by NumPy: docs/precision.md.
            ours, tolerance = np.dtype(np.float32), 1e-4 if kind == "float32" else 1e-9
            dtypes = [ours if part.dtype == np.float16 else part.dtype for part in expected]
            assert [part.shape for part in found] == [part.shape for part in expected], expression.text
            assert [part.dtype for part in found] == dtypes, expression.text
            for a, b, dtype in zip(found, expected, dtypes):
                exact = tolerance if b.dtype == dtype else 2e-3
                np.testing.assert_allclose(a, b, rtol=exact, atol=exact, err_msg=expression.text)


CLOSED = {
    "np.interp(q, z, v, left=-3.0, right=s)": "s",
    "np.insert(v, [1, 3], [s, 2.0])": "s",
    "np.take(v, k)": "k",
    "np.full_like(x, s)": "s",
    "o.choose([i, j, i])": "ij",
    "x.dot(m)": "m",
    "x.mean(where=b)": "b",
    "z.searchsorted(q)": "q",
    "v.take(k)": "k",
}
"""Arrays that NumPy does not ask whether they answer for its function, where the others are its own."""


@pytest.mark.parametrize("expression", [each for each in WORKING if len(each.names) > 1], ids=text)
def test_any_one_of_the_arrays_may_be_traced(expression: Expression) -> None:
    function, arguments = table.traced(expression), expression.arguments()
    for place, name in enumerate(expression.names):

        def call(x: Any, place: int = place) -> Any:
            return function(*arguments[:place], x, *arguments[place + 1 :])

        if name in CLOSED.get(expression.text, ""):
            with pytest.raises(TracingError, match="traced value"):
                pb.trace(call, arguments[place])
        else:
            found = pb.trace(call, arguments[place]).evaluate([arguments[place]])
            assert_equal(found, of_numpy(expression), f"{expression.text} of {name}")


@pytest.mark.parametrize("expression", SMOOTH, ids=text)
def test_both_modes_give_the_difference_quotient(expression: Expression) -> None:
    loss = weighed(expression)
    own = {name: table.ARRAYS[name] for name in floats(expression)}
    random = np.random.default_rng(5)
    directions = {name: np.where(np.isnan(x), 0.0, random.normal(size=x.shape)) for name, x in own.items()}
    step = 1e-6
    ahead, behind = (
        loss({name: x + sign * step * directions[name] for name, x in own.items()}, table.ARRAYS)
        for sign in (1, -1)
    )
    gradient = pb.grad(lambda own: loss(own, table.ARRAYS))(own)
    reverse = sum(np.sum(gradient[name] * directions[name]) for name in own)
    forward = pb.jvp(lambda own: loss(own, table.ARRAYS), (own,), (directions,))[1]
    np.testing.assert_allclose([reverse, forward], (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("expression", WORKING, ids=text)
def test_a_batch_is_one_example_after_another(expression: Expression) -> None:
    names = expression.names
    examples = [expression.arguments(k) for k in (0, 1)]
    if not names or any(part.dtype == object for part in of_numpy(expression)):
        return
    made = pb.vmap(table.traced(expression))(*[np.stack(pair) for pair in zip(*examples)])
    ones = [of_numpy(expression, k) for k in (0, 1)]
    several = list(made) if isinstance(made, (list, tuple)) else [made]
    for found, *expected in zip(several, *ones):
        np.testing.assert_allclose(found, np.stack(expected), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("group", groups(WORKING), ids=lambda group: group[0].function)
def test_compiled_values_are_numpys(group: Sequence[Expression]) -> None:
    functions = [table.traced(expression) for expression in group]

    def program(arrays: dict[str, Any]) -> list[Any]:
        return [f(*[arrays[name] for name in expression.names]) for f, expression in zip(functions, group)]

    arrays = {name: table.ARRAYS[name] for expression in group for name in expression.names}
    for found, expression in zip(pb.jit(program)(arrays), group):
        assert_equal(found, of_numpy(expression), expression.text)


@pytest.mark.parametrize("group", groups(SMOOTH), ids=lambda group: group[0].function)
def test_compiled_gradients_are_those_of_the_interpreter(group: Sequence[Expression]) -> None:
    arrays = {name: table.ARRAYS[name] for expression in group for name in expression.names}
    losses = [weighed(expression) for expression in group]

    def gradients(arrays: dict[str, Any]) -> list[Any]:
        made = []
        for loss, expression in zip(losses, group):
            own = {name: arrays[name] for name in floats(expression)}
            made.append(pb.grad(lambda own, loss=loss: loss(own, arrays))(own))
        return made

    for found, expected, expression in zip(pb.jit(gradients)(arrays), gradients(arrays), group):
        for name, bar in expected.items():
            np.testing.assert_allclose(found[name], bar, rtol=1e-8, atol=1e-10, err_msg=expression.text)


@pytest.mark.parametrize("expression", REFUSED, ids=text)
def test_what_depends_on_values_is_refused_by_its_name(expression: Expression) -> None:
    with pytest.raises(TracingError, match=expression.function.rpartition(".")[2]) as caught:
        pb.trace(table.traced(expression), *expression.arguments())
    assert "use" in str(caught.value) or "slice" in str(caught.value) or "return" in str(caught.value)


def named(name: str) -> Callable[..., Any]:
    """NumPy's function, or a method as a function."""
    prefix, _, own = name.rpartition(".")
    if prefix == "ndarray":
        return lambda x, *arguments: getattr(x, own)(*arguments)
    module = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft}[prefix]
    return getattr(module, own)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", list(table.unlisted()))
def test_what_is_not_listed_gives_numpys_result_or_an_error_that_names_it(name: str) -> None:
    function = named(name)
    for call in table.CALLS:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                expected = table.parts(call(function, table.X.copy()))
            except Exception:  # whatever NumPy raises: it does not take this call
                continue
        try:
            found = pb.trace(lambda x, call=call: call(function, x), table.X).evaluate([table.X])
        except (PullbackError, AttributeError) as error:
            known = {name.rpartition(".")[2], getattr(function, "__name__", ""), "traced value"}
            assert any(each and each in str(error) for each in known), str(error)
        except ValueError as error:  # NumPy's, where it fills an array: the cause says what is wrong
            assert isinstance(error.__cause__, TracingError)
        else:
            for a, b in zip(table.parts(found), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.skipif(not SAME_NUMPY, reason="the page is about another NumPy")
def test_the_page_is_that_of_the_expressions() -> None:
    assert table.page() == PAGE, "write the page anew: python docs/numpy_table.py > docs/numpy.md"


CHANGES = {
    "copyto": lambda x: np.copyto(x, 1.0),
    "put": lambda x: np.put(x, [0], 1.0),
    "putmask": lambda x: np.putmask(x, x > 0, 1.0),
    "place": lambda x: np.place(x, x > 0, 1.0),
    "fill_diagonal": lambda x: np.fill_diagonal(x, 1.0),
    "put_along_axis": lambda x: np.put_along_axis(x, np.array([[0]]), 1.0, 0),
    "add with out": lambda x: np.add(x, 1.0, out=x),
    "out of concrete": lambda x: np.add(x, 1.0, out=np.zeros((3, 3))),
    "concrete in place": lambda x: np.zeros((3, 3)).__iadd__(x),
    "sum with out": lambda x: np.sum(x, axis=0, out=np.zeros(3)),
    "add.at": lambda x: np.add.at(x, [0], 1.0),
    "item": lambda x: x.__setitem__(0, 1.0),
    "deleted": lambda x: x.__delitem__(0),
    "into concrete": lambda x: np.zeros(3).__setitem__(slice(None), x[0]),
    "fill": lambda x: x.fill(0.0),
    "sort": lambda x: x.sort(),
    "method put": lambda x: x.put([0], 1.0),
    "resize": lambda x: x.resize((9,)),
    "partition": lambda x: x.partition(1),
    "shape": lambda x: setattr(x, "shape", (9,)),
    "dtype": lambda x: setattr(x, "dtype", np.float32),
    "shuffle": lambda x: np.random.default_rng(0).shuffle(x),
}


@pytest.mark.filterwarnings("ignore:you are shuffling")
@pytest.mark.parametrize("name", CHANGES)
def test_nothing_changes_a_traced_value(name: str) -> None:
    with pytest.raises((TracingError, AttributeError), match=r"traced value|takes no out="):
        pb.trace(CHANGES[name], table.X)
