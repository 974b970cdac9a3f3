"""JAX: ``lax.scan`` over the steps, unrolled or not, the products of the inputs inside of it or all before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from calls import CLOTH_STEP, ODE_STEP, Arrays, Call, differentiated
from jax import lax

from contenders.ways import Way, described, fastest

Values = dict[str, Any]

_BEFORE = "input products before the scan"
QUESTIONS = {
    "inputs": ("input products in the scan", _BEFORE),
    "unrolled": ("unroll 1", "unroll 4", "unroll 16"),
}
"""How a recurrence may be written."""


class Contender:
    def __init__(self, call: Call, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        names = differentiated(call)
        given = {name: jnp.array(value) for name, value in arrays.items()}
        self.arguments = {name: given.pop(name) for name in names}, given
        questions = dict(QUESTIONS)
        if call.cell is None:
            del questions["inputs"]
        way = fastest(questions, partial(self._trial, call), tuned)
        self.compiled = jax.jit(function_of(call, way))
        self.choice = ", ".join(filter(None, ["lax.scan", described(way, questions)]))

    def _trial(self, call: Call, way: Way) -> Callable[[], object]:
        compiled = jax.jit(function_of(call, way))
        return lambda: jax.block_until_ready(compiled(*self.arguments))

    def run(self) -> None:
        self.results = jax.block_until_ready(self.compiled(*self.arguments))

    def numbers(self) -> Arrays:
        return {name: np.asarray(value) for name, value in self.results.items()}


def function_of(call: Call, way: Way) -> Callable[[Values, Values], Values]:
    """From what the call is differentiated by, and its other arrays, to its results by name."""
    if call.cell is None:
        scan = _scan(way)
        simulate = _SIMULATIONS[call.program]

        def simulated(varied: Values, fixed: Values) -> Values:
            loss, gradients = jax.value_and_grad(
                lambda varied: simulate({**varied, **fixed}, call.steps, scan)
            )(varied)
            return {"loss": loss, **gradients}

        return simulated

    def recurrent(varied: Values, fixed: Values) -> Values:
        _, pull, last = jax.vjp(lambda varied: _layers(call, way, varied, fixed), varied, has_aux=True)
        (gradients,) = pull(fixed["g"])
        return {**last, **gradients}

    return recurrent


def _layers(call: Call, way: Way, varied: Values, fixed: Values) -> tuple[Any, Values]:
    """The states of the last layer, and the last states of all."""
    assert call.cell is not None
    x, last = varied["x"], {}
    for k in range(call.layers):
        p = {name.split(".")[1]: value for name, value in varied.items() if name.startswith(f"{k}.")}
        start = tuple(fixed[f"h{i}"][k] for i in range(call.cell.states))
        state, x = scanned(CELLS[call.program], way, p, start, x, call.checkpoint)
        last.update({f"last {k}.{i}": value for i, value in enumerate(state)})
    return x, last


def scanned(cell: Any, way: Way, p: Values, start: Any, x: Any, checkpoint: int = 0) -> tuple[Any, Any]:
    """The last state of a cell of ``CELLS``, and its outputs at all steps; ``x`` (steps, batch, inputs)."""
    (project, step), scan, before = cell, _scan(way), way["inputs"] == _BEFORE

    def body(state: Any, x: Any) -> Any:
        state = step(p, state, x if before else project(p, x))
        return state, state[0]

    x = project(p, x) if before else x
    if not checkpoint:
        return scan(body, start, x)
    pieces = jax.tree.map(lambda x: x.reshape(-1, checkpoint, *x.shape[1:]), x)
    state, outputs = lax.scan(jax.checkpoint(lambda state, x: scan(body, state, x)), start, pieces)
    return state, outputs.reshape(-1, *outputs.shape[2:])


def _scan(way: Way) -> Any:
    return partial(lax.scan, unroll=int(way["unrolled"].split()[1]))


def _gated(h: Any, inputs: Any, hidden: Any) -> Any:
    """The new state of a GRU whose reset gate acts after the recurrent product."""
    xr, xz, xn = jnp.split(inputs, 3, axis=-1)
    hr, hz, hn = jnp.split(hidden, 3, axis=-1)
    r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
    n = jnp.tanh(xn + r * hn)
    return ((1 - z) * n + z * h,)


def _gru(p: Values, state: Any, x: Any) -> Any:
    return _gated(state[0], x, state[0] @ p["u"] + p["c"])


def _gru_before(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    units = h.shape[-1]
    both = jax.nn.sigmoid(x[..., : 2 * units] + h @ p["u"][:, : 2 * units])
    r, z = jnp.split(both, 2, axis=-1)
    n = jnp.tanh(x[..., 2 * units :] + (r * h) @ p["u"][:, 2 * units :])
    return ((1 - z) * n + z * h,)


def _lstm(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = jnp.split(x + h @ p["u"], 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _peephole(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = jnp.split(x + h @ p["u"], 4, axis=-1)
    pi, pf, po = p["p"]
    c = jax.nn.sigmoid(f + pf * c) * c + jax.nn.sigmoid(i + pi * c) * jnp.tanh(g)
    return jax.nn.sigmoid(o + po * c) * jnp.tanh(c), c


def _minimal_gated(p: Values, state: Any, x: Any) -> Any:
    (h,), (xf, xh) = state, x
    f = jax.nn.sigmoid(xf + h @ p["uf"])
    n = jnp.tanh(xh + (f * h) @ p["uh"])
    return ((1 - f) * h + f * n,)


def _normalised_gru(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    return _gated(h, x, _normal(h @ p["u"]) * p["u_gain"] + p["u_bias"])


def _normal(x: Any) -> Any:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def _two_products(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    return (jnp.tanh(jax.nn.relu(x + h @ p["u"]) @ p["v"] + p["d"]),)


def _joined(p: Values, x: Any) -> Any:
    return x @ p["w"] + p["b"]


CELLS: dict[str, Any] = {
    "gru": (_joined, _gru),
    "gru-before": (_joined, _gru_before),
    "lstm": (_joined, _lstm),
    "peephole": (_joined, _peephole),
    "minimal-gated": (lambda p, x: (x @ p["wf"] + p["bf"], x @ p["wh"] + p["bh"]), _minimal_gated),
    "normalised-gru": (lambda p, x: _normal(x @ p["w"]) * p["w_gain"] + p["w_bias"], _normalised_gru),
    "two-products": (_joined, _two_products),
}
"""What an input becomes that no state has to do with, and a step."""


def _ode(a: Values, steps: int, scan: Any) -> Any:
    def slope(y: Any) -> Any:
        prey, hunters = y
        birth, bite, growth, death = a["rates"]
        return jnp.stack([birth * prey - bite * prey * hunters, growth * prey * hunters - death * hunters])

    def step(y: Any, observed: Any) -> Any:
        k1 = slope(y)
        k2 = slope(y + ODE_STEP / 2 * k1)
        k3 = slope(y + ODE_STEP / 2 * k2)
        k4 = slope(y + ODE_STEP * k3)
        y = y + ODE_STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, jnp.sum((y - observed) ** 2)

    return jnp.mean(scan(step, a["start"], a["observed"])[1])


def _kalman(a: Values, steps: int, scan: Any) -> Any:
    transition, observation = a["transition"], a["observation"]
    process, measurement = jnp.exp(a["noise"])

    def step(state: Any, measured: Any) -> Any:
        mean, covariance = state
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + process * jnp.eye(4)
        error = measured - observation @ mean
        across = covariance @ observation.T
        (s, t), (u, v) = observation @ across + measurement * jnp.eye(2)
        size = s * v - t * u
        inverse = jnp.stack([jnp.stack([v, -t]), jnp.stack([-u, s])]) / size
        gain = across @ inverse
        cost = 0.5 * (error @ (inverse @ error) + jnp.log(size))
        covariance = covariance - gain @ across.T
        # What is not symmetric about it, which is rounding, would grow from step to step.
        return (mean + gain @ error, (covariance + covariance.T) / 2), cost

    return jnp.mean(scan(step, (jnp.zeros(4), jnp.eye(4)), a["measured"])[1])


def _cloth(a: Values, steps: int, scan: Any) -> Any:
    net, free, stiffness = a["net"], a["free"], a["stiffness"]
    rest = 1 / (net.shape[0] - 1)
    gravity = jnp.array([0, 0, -1], jnp.float32)

    def pulls(x: Any, axis: int) -> Any:
        along = jnp.diff(x, axis=axis)
        length = jnp.sqrt(jnp.sum(along**2, axis=-1, keepdims=True))
        force = stiffness * (1 - rest / length) * along
        none = jnp.zeros_like(x[:1] if axis == 0 else x[:, :1])
        return jnp.concatenate([force, none], axis) - jnp.concatenate([none, force], axis)

    def step(state: Any, _: Any) -> Any:
        x, v = state
        v = 0.99 * (v + CLOTH_STEP * (pulls(x, 0) + pulls(x, 1) + gravity)) * free
        return (x + CLOTH_STEP * v, v), None

    (x, _), _ = scan(step, (net, a["velocity"]), None, steps)
    return jnp.mean((x - a["target"]) ** 2)


def _solving_kalman(a: Values, steps: int, scan: Any) -> Any:
    transition, observation = a["transition"], a["observation"]
    process, measurement = jnp.exp(a["noise"])

    def step(state: Any, measured: Any) -> Any:
        mean, covariance = state
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + process * jnp.eye(4)
        error = measured - observation @ mean
        across = observation @ covariance
        spread = across @ observation.T + measurement * jnp.eye(2)
        gain = jnp.linalg.solve(spread, across).T
        cost = 0.5 * (error @ jnp.linalg.solve(spread, error) + jnp.linalg.slogdet(spread)[1])
        covariance = covariance - gain @ across
        # What is not symmetric about it, which is rounding, would grow from step to step.
        return (mean + gain @ error, (covariance + covariance.T) / 2), cost

    start = jnp.zeros(4), jnp.eye(4)
    return jnp.mean(scan(step, start, a["measured"])[1])


def _gaussian_process(a: Values, steps: int, scan: Any) -> Any:
    height, width, noise = jnp.exp(a["logarithms"])
    x, y = a["points"], a["observed"]
    covariance = height * jnp.exp(-0.5 * ((x[:, None] - x) / width) ** 2) + noise * jnp.eye(len(x))
    factor = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    return (0.5 * white @ white + jnp.sum(jnp.log(jnp.diagonal(factor)))) / len(x)


def _settled(weights: Any, bias: Any) -> Any:
    """``z = tanh(W z + b)``, iterated until it stays."""

    def goes_on(state: Any) -> Any:
        return jnp.max(jnp.abs(state[1])) > 1e-6

    def again(state: Any) -> Any:
        new = jnp.tanh(weights @ state[0] + bias)
        return new, new - state[0]

    return lax.while_loop(goes_on, again, (jnp.zeros_like(bias), jnp.ones_like(bias)))[0]


def _forward(weights: Any, bias: Any) -> Any:
    z = _settled(weights, bias)
    return z, (weights, z)


def _backward(kept: Any, bar: Any) -> Any:
    weights, z = kept
    slope = 1 - z * z
    adjoint = slope * jnp.linalg.solve(jnp.eye(len(z), dtype=z.dtype) - weights.T * slope, bar)
    return jnp.outer(adjoint, z), adjoint


_equilibrium = jax.custom_vjp(_settled)
_equilibrium.defvjp(_forward, _backward)


def _fixed_point(a: Values, steps: int, scan: Any) -> Any:
    return jnp.mean((_equilibrium(a["weights"], a["bias"]) - a["target"]) ** 2)


_SIMULATIONS = {
    "ode": _ode,
    "kalman": _kalman,
    "solving-kalman": _solving_kalman,
    "cloth": _cloth,
    "gaussian-process": _gaussian_process,
    "fixed-point": _fixed_point,
}
