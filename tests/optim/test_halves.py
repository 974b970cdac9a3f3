"""Optimisers of parameters that are stored in 16 bits: steps are computed in 32, and rounded once."""

import numpy as np
import pytest

import pullback as pb
from pullback import optim
from pullback.tracing import flatten

OPTIMISERS = [
    optim.SGD(0.1),
    optim.SGD(0.1, momentum=0.9, weight_decay=0.01),
    optim.Adam(0.1),
    optim.AdamW(0.1),
    optim.NAdam(0.1),
    optim.RMSProp(0.1, centred=True, momentum=0.5),
    optim.Adagrad(0.1),
    optim.Adadelta(1.0),
    optim.Lion(0.1),
    optim.Accumulate(optim.Adam(0.1), 2),
    optim.Averaged(optim.Adam(0.1), 0.5),
]


def half(name):
    return np.dtype(np.float16 if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda each: type(each).__name__)
def test_a_step_is_that_of_float32(optimiser, name):
    kind = half(name)
    random = np.random.default_rng(0)
    # A gradient that is zero, or so small that its square is nothing in 16 bits, moves nothing to NaN.
    gradient = np.concatenate([random.standard_normal(6), [0.0, 2.0**-14]]).astype(kind)
    parameters = random.standard_normal(8).astype(kind)
    update = pb.jit(optimiser.update)
    state, wide_state = optimiser.init(parameters), optimiser.init(parameters.astype(np.float32))
    assert [x.dtype for x in flatten(state)[0]] == [x.dtype for x in flatten(wide_state)[0]]
    for _ in range(3):
        wide, wide_state = update(gradient.astype(np.float32), wide_state, parameters.astype(np.float32))
        parameters, state = update(gradient, state, parameters)
        assert parameters.dtype == kind
        # Weight decay makes a gradient, or parameters, of 16 bits first.
        spacing = 2.0**-10 if kind == np.float16 else 2.0**-7
        np.testing.assert_allclose(parameters.astype(np.float32), wide, rtol=spacing, atol=spacing)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_clipping_by_a_norm_beyond_the_largest_half(name):
    gradients = [np.full(1000, 3e4).astype(half(name))]
    (clipped,) = pb.jit(lambda g: optim.clip_by_norm(g, 1.0))(gradients)
    assert clipped.dtype == gradients[0].dtype
    np.testing.assert_allclose(clipped.astype(np.float64), 1000**-0.5, rtol=2.0**-7)
