"""Lowerings: each operator's loop form, evaluated in NumPy at every index, against its reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pullback.control.compiled import compiled
from pullback.graph import OPERATORS, is_complex, is_half
from pullback.testing import operator_cases

ROUTINES = {"argsort", "cumargmax", "cumargmin", "cumprod", "cumsum", "distinct", "recurrence"}
LOOPS = {"call", compiled.name, "custom", "host_call", "scan", "switch", "while"}
MATRICES = {
    *(
        "cholesky",
        "cholesky_cotangent",
        "cofactor",
        "det",
        "eig",
        "eigh",
        "eigvalsh",
        "expm",
        "expm_along",
        "independent",
        "inv",
        "matrix_root",
        "pinv",
        "qr",
        "slogdet",
    ),
    *(name for name in OPERATORS if name.startswith("lapack_")),
    *("solve", "svd", "svdvals", "sylvester", "triangular_solve"),
}
COLLECTIVES = {"all_gather", "pmax", "pmin", "psum", "psum_scatter"}
PARTS = {"complex_of", "conjugate", "imag", "modulus", "real"}
TRANSFORMS = {"fft", "irfft", "rfft"}
HOSTED = {"betainc", "gammainc", "gammainc_slope", "gammaincc", "iv", "ive", "jv", "kv", "kve", "stdtr", "yv"}


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if operator.lower])
def test_lowering_agrees_with_reference(name: str, loop_value: Callable[..., np.ndarray]) -> None:
    for case in operator_cases(name):
        kinds = (*case.dtypes, case.graph().outputs[0].dtype)
        if any(map(is_complex, kinds)) or any(map(is_half, kinds)):
            continue  # taken apart before
        graph = case.graph()
        with np.errstate(all="ignore"):
            expected = np.asarray(case.operator.reference(*case.arguments(), **case.attributes))
        found = loop_value(graph.outputs[0], dict(zip(graph.inputs, case.arguments())))
        assert found.dtype == expected.dtype, case
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(case))
        else:
            np.testing.assert_array_equal(found, expected, err_msg=str(case))


def test_what_has_no_lowering_is_listed() -> None:
    scatters = {name for name, operator in OPERATORS.items() if operator.accumulates}
    without = {name for name, operator in OPERATORS.items() if operator.lower is None}
    assert without == {
        "links",
        "result",
        *COLLECTIVES,
        *LOOPS,
        *MATRICES,
        *PARTS,
        *ROUTINES,
        *TRANSFORMS,
        *HOSTED,
        *scatters,
    }
