"""Arguments to differentiate by, named: positional ones and keywords."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, SettingError


def cost(x: Any, rate: Any = 1.0, *, shift: Any = 0.0, name: str = "") -> Any:
    assert not name or isinstance(name, str)
    return np.sum(x * rate**2) + shift * rate


X = np.array([1.0, 2.0])


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_by_name(run: Any):
    assert run(pb.grad(cost, "rate"))(X, 3.0) == 18.0
    assert run(pb.grad(cost, "rate"))(X, rate=3.0) == 18.0
    assert run(pb.grad(cost, "shift"))(X, rate=3.0, shift=1.0) == 3.0
    by_x, by_shift, by_rate = run(pb.grad(cost, (0, "shift", "rate")))(X, rate=3.0, shift=2.0)
    np.testing.assert_array_equal(by_x, [9.0, 9.0])
    assert (by_shift, by_rate) == (3.0, 20.0)
    assert run(pb.grad(cost, ("rate",)))(X, 3.0) == (18.0,)
    assert run(pb.grad(cost, -1))(X, 3.0) == 18.0


def test_other_keywords_pass_through():
    value, slope = pb.value_and_grad(cost, "x")(X, name="text", shift=2)
    assert value == 5.0
    np.testing.assert_array_equal(slope, [1.0, 1.0])
    assert pb.grad(lambda **given: given["a"] * given["b"], "a")(a=2.0, b=5.0) == 5.0


def test_in_every_transformation():
    jacobian = pb.jacobian(lambda x, *, rate: x * rate, "rate")(X, rate=3.0)
    np.testing.assert_array_equal(jacobian, X)
    assert pb.hessian(cost, "rate")(X, rate=3.0) == 6.0
    (one, _), (other, _) = pb.hessian(cost, ("rate", "shift"))(X, rate=3.0, shift=1.0)
    assert (one, other) == (6.0, 1.0)
    assert pb.grad(pb.jit(cost), "rate")(X, rate=3.0) == 18.0
    assert pb.grad(partial(cost, X), "rate")(3.0) == 18.0


def test_what_is_not_there():
    with pytest.raises(
        DerivativeError, match="argnums 'speed', and the call has the arguments x, rate; name one"
    ):
        pb.grad(cost, "speed")(X, 2.0)
    with pytest.raises(DerivativeError, match="'rate', and the call has the arguments x; it has its default"):
        pb.grad(cost, "rate")(X)
    with pytest.raises(DerivativeError, match="names an argument twice"):
        pb.grad(cost, (1, "rate"))(X, 2.0)
    with pytest.raises(DerivativeError, match="argument shift is int64"):
        pb.grad(cost, "shift")(X, shift=np.int64(1))
    with pytest.raises(DerivativeError, match=r"argnums 2 of a function called with 1"):
        pb.grad(cost, 2)(X)


@pytest.mark.parametrize("argnums", [np.int64(1), (np.int64(1),)])
def test_numpys_integers_are_numbers(argnums):
    np.testing.assert_array_equal(pb.grad(lambda x, y: x * y, argnums)(2.0, 3.0), 2.0)


@pytest.mark.parametrize("argnums", [1.5, None, (0, 1.0), [[0]]])
def test_argnums_that_are_none(argnums):
    with pytest.raises(DerivativeError, match=r"grad: argnums=.*the number or the name"):
        pb.grad(lambda x, y: x * y, argnums)(2.0, 3.0)


@pytest.mark.parametrize("given", [np.ones(3), 3, None], ids=["array", "number", "None"])
@pytest.mark.parametrize(
    "name", ["grad", "value_and_grad", "jacobian", "hessian", "vmap", "jit", "vjp", "linearize"]
)
def test_what_is_no_function_is_refused_when_it_is_given(name, given):
    """``pb.grad(f(x))``: the array that ``f`` returned."""
    with pytest.raises(SettingError, match=rf"{name}: it is given .*{name}\(f, …\), not what it returned"):
        getattr(pb, name)(given)


@pytest.mark.parametrize("name", ["jvp", "hvp"])
def test_directions_of_no_function(name):
    with pytest.raises(SettingError, match=rf"{name}: it is given float64\[3\]"):
        getattr(pb, name)(np.ones(3), (1.0,), (1.0,))


def test_a_number_that_no_argument_has():
    with pytest.raises(
        DerivativeError, match=r"argnums 2 of a function called with 2 .*; they are numbered 0 to 1"
    ):
        pb.grad(lambda x, y: x * y, 2)(1.0, 2.0)
