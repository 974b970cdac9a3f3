"""SciPy's own functions on traced values: the error names the user's line, the function and what to use."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import TracingError

special = pytest.importorskip("scipy.special")
from scipy import integrate, interpolate, linalg, stats  # noqa: E402

MATRIX = np.eye(3) + 1.0


@pytest.mark.parametrize("transform", [pb.jit, lambda f: pb.grad(lambda x: np.sum(f(x))), pb.vmap])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: special.logsumexp(x) + 1.0,
            r"scipy\.special\.logsumexp cannot .*use pullback\.scipy\.special\.logsumexp",
        ),
        (
            lambda x: linalg.cholesky(MATRIX * x[0]),
            r"scipy\.linalg\.cholesky cannot .*pullback\.scipy\.linalg\.chol",
        ),
        (
            lambda x: linalg.expm(MATRIX * x[0]),
            r"scipy\.linalg\.expm cannot .*use pullback\.scipy\.linalg\.expm",
        ),
        (
            lambda x: integrate.odeint(lambda y, t: x[0] * y, 1.0, [0.0, 1.0]),
            r"use pullback\.scipy\.integrate\.odeint",
        ),
        (
            lambda x: integrate.quad(lambda t: x[0] * t, 0, 1)[0],
            r"scipy\.integrate\.quad cannot .*pure_callback",
        ),
        (
            lambda x: stats.norm.logpdf(x[0]),
            r"a function of scipy\.stats cannot .*those of pullback\.scipy\.stats",
        ),
        (
            lambda x: interpolate.interp1d(x, [0.0, 1.0, 2.0])(1.5),
            r"of scipy\.interpolate cannot .*NumPy's functions",
        ),
    ],
)
def test_the_line_is_the_users_and_the_repair_fits(transform, function, message):
    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(TracingError, match=message) as caught:
        transform(function)(np.stack([x, x]) if transform is pb.vmap else x)
    assert f"(at {__file__}" in str(caught.value)
