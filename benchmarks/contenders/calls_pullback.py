"""Pullback: cells as one writes them down, every step with all of its products, and ``pb.scan`` over the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from calls import CLOTH_STEP, ODE_STEP, Arrays, Call, differentiated

import pullback as pb
from pullback.scipy.linalg import solve_triangular

Values = dict[str, Any]


class Contender:
    def __init__(self, call: Call, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        pb.set_num_threads(threads)
        names = differentiated(call)
        self.arguments = (
            {name: arrays[name] for name in names},
            {name: array for name, array in arrays.items() if name not in names},
        )
        options = {"memory": call.memory} if call.memory else {}
        self.compiled = pb.jit(function_of(call), flush_subnormals=True, **options)
        self.choice = "pb.jit, pb.scan"

    def run(self) -> None:
        self.results = self.compiled(*self.arguments)

    def program_bytes(self) -> int:
        """What the program takes for itself, once it is there."""
        return self.compiled.memory_bytes(*self.arguments) if hasattr(self, "results") else -1

    def numbers(self) -> Arrays:
        return {name: np.asarray(value) for name, value in self.results.items()}


def function_of(call: Call) -> Callable[[Values, Values], Values]:
    """From what the call is differentiated by, and its other arrays, to its results by name."""
    if call.cell is None:

        def simulated(varied: Values, fixed: Values) -> Values:
            loss, gradients = pb.value_and_grad(lambda varied: value_of(call, varied, fixed))(varied)
            return {"loss": loss, **gradients}

        return simulated

    def recurrent(varied: Values, fixed: Values) -> Values:
        _, pull, last = pb.vjp(lambda varied: _layers(call, varied, fixed), varied, has_aux=True)
        (gradients,) = pull(fixed["g"])
        return {**last, **gradients}

    return recurrent


def value_of(call: Call, varied: Values, fixed: Values) -> Any:
    """What the gradients are of."""
    if call.cell is None:
        return _SIMULATIONS[call.program]({**varied, **fixed}, call.steps)
    return np.sum(_layers(call, varied, fixed)[0] * fixed["g"])


def _layers(call: Call, varied: Values, fixed: Values) -> tuple[Any, Values]:
    """The states of the last layer, and the last states of all."""
    assert call.cell is not None
    step, x, last = _CELLS[call.program], varied["x"], {}
    for k in range(call.layers):
        p = {name.split(".")[1]: value for name, value in varied.items() if name.startswith(f"{k}.")}
        start = tuple(fixed[f"h{i}"][k] for i in range(call.cell.states))

        def cell(state: Any, x: Any, p: Values = p) -> Any:
            state = step(p, state, x)
            return state, state[0]

        state, x = _steps(cell, start, x, call.checkpoint)
        last.update({f"last {k}.{i}": value for i, value in enumerate(state)})
    return x, last


def _steps(cell: Any, start: Any, x: Any, checkpoint: int) -> Any:
    if not checkpoint:
        return pb.scan(cell, start, x)
    pieces = x.reshape(-1, checkpoint, *x.shape[1:])
    state, outputs = pb.scan(pb.checkpoint(lambda state, x: pb.scan(cell, state, x)), start, pieces)
    return state, outputs.reshape(-1, *outputs.shape[2:])


def _gru(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    xr, xz, xn = np.split(x @ p["w"] + p["b"], 3, axis=-1)
    hr, hz, hn = np.split(h @ p["u"] + p["c"], 3, axis=-1)
    r, z = pb.sigmoid(xr + hr), pb.sigmoid(xz + hz)
    n = np.tanh(xn + r * hn)
    return ((1 - z) * n + z * h,)


def _gru_before(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    (wr, wz, wn), (ur, uz, un) = (np.split(p[name], 3, axis=-1) for name in ("w", "u"))
    br, bz, bn = np.split(p["b"], 3)
    r = pb.sigmoid(x @ wr + h @ ur + br)
    z = pb.sigmoid(x @ wz + h @ uz + bz)
    n = np.tanh(x @ wn + (r * h) @ un + bn)
    return ((1 - z) * n + z * h,)


def _lstm(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = np.split(x @ p["w"] + h @ p["u"] + p["b"], 4, axis=-1)
    c = pb.sigmoid(f) * c + pb.sigmoid(i) * np.tanh(g)
    return pb.sigmoid(o) * np.tanh(c), c


def _peephole(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = np.split(x @ p["w"] + h @ p["u"] + p["b"], 4, axis=-1)
    pi, pf, po = p["p"]
    c = pb.sigmoid(f + pf * c) * c + pb.sigmoid(i + pi * c) * np.tanh(g)
    return pb.sigmoid(o + po * c) * np.tanh(c), c


def _minimal_gated(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    f = pb.sigmoid(x @ p["wf"] + h @ p["uf"] + p["bf"])
    n = np.tanh(x @ p["wh"] + (f * h) @ p["uh"] + p["bh"])
    return ((1 - f) * h + f * n,)


def _normalised_gru(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    xr, xz, xn = np.split(_normal(x @ p["w"]) * p["w_gain"] + p["w_bias"], 3, axis=-1)
    hr, hz, hn = np.split(_normal(h @ p["u"]) * p["u_gain"] + p["u_bias"], 3, axis=-1)
    r, z = pb.sigmoid(xr + hr), pb.sigmoid(xz + hz)
    n = np.tanh(xn + r * hn)
    return ((1 - z) * n + z * h,)


def _normal(x: Any) -> Any:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def _two_products(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    return (np.tanh(pb.relu(x @ p["w"] + h @ p["u"] + p["b"]) @ p["v"] + p["d"]),)


_CELLS = {
    "gru": _gru,
    "gru-before": _gru_before,
    "lstm": _lstm,
    "minimal-gated": _minimal_gated,
    "peephole": _peephole,
    "normalised-gru": _normalised_gru,
    "two-products": _two_products,
}


def _ode(a: Values, steps: int) -> Any:
    def slope(y: Any) -> Any:
        prey, hunters = y
        birth, bite, growth, death = a["rates"]
        return np.stack([birth * prey - bite * prey * hunters, growth * prey * hunters - death * hunters])

    def step(y: Any, observed: Any) -> Any:
        k1 = slope(y)
        k2 = slope(y + ODE_STEP / 2 * k1)
        k3 = slope(y + ODE_STEP / 2 * k2)
        k4 = slope(y + ODE_STEP * k3)
        y = y + ODE_STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, np.sum((y - observed) ** 2)

    return np.mean(pb.scan(step, a["start"], a["observed"])[1])


def _kalman(a: Values, steps: int) -> Any:
    transition, observation = a["transition"], a["observation"]
    process, measurement = np.exp(a["noise"])
    kind = transition.dtype

    def step(state: Any, measured: Any) -> Any:
        mean, covariance = state
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + process * np.eye(4, dtype=kind)
        error = measured - observation @ mean
        across = covariance @ observation.T
        (s, t), (u, v) = observation @ across + measurement * np.eye(2, dtype=kind)
        size = s * v - t * u
        inverse = np.stack([np.stack([v, -t]), np.stack([-u, s])]) / size
        gain = across @ inverse
        cost = 0.5 * (error @ (inverse @ error) + np.log(size))
        covariance = covariance - gain @ across.T
        # What is not symmetric about it, which is rounding, would grow from step to step.
        return (mean + gain @ error, (covariance + covariance.T) / 2), cost

    start = np.zeros(4, kind), np.eye(4, dtype=kind)
    return np.mean(pb.scan(step, start, a["measured"])[1])


def _cloth(a: Values, steps: int) -> Any:
    net, free, stiffness = a["net"], a["free"], a["stiffness"]
    rest = 1 / (net.shape[0] - 1)
    gravity = np.array([0, 0, -1], np.float32)

    def pulls(x: Any, axis: int) -> Any:
        along = np.diff(x, axis=axis)
        length = np.sqrt(np.sum(along**2, axis=-1, keepdims=True))
        force = stiffness * (1 - rest / length) * along
        none = np.zeros_like(x[:1] if axis == 0 else x[:, :1])
        return np.concatenate([force, none], axis) - np.concatenate([none, force], axis)

    def step(state: Any, _: Any) -> Any:
        x, v = state
        v = 0.99 * (v + CLOTH_STEP * (pulls(x, 0) + pulls(x, 1) + gravity)) * free
        return (x + CLOTH_STEP * v, v), None

    (x, _), _ = pb.scan(step, (net, a["velocity"]), None, steps)
    return np.mean((x - a["target"]) ** 2)


def _solving_kalman(a: Values, steps: int) -> Any:
    transition, observation = a["transition"], a["observation"]
    process, measurement = np.exp(a["noise"])
    kind = transition.dtype

    def step(state: Any, measured: Any) -> Any:
        mean, covariance = state
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + process * np.eye(4, dtype=kind)
        error = measured - observation @ mean
        across = observation @ covariance
        spread = across @ observation.T + measurement * np.eye(2, dtype=kind)
        gain = np.linalg.solve(spread, across).T
        cost = 0.5 * (error @ np.linalg.solve(spread, error) + np.linalg.slogdet(spread)[1])
        covariance = covariance - gain @ across
        # What is not symmetric about it, which is rounding, would grow from step to step.
        return (mean + gain @ error, (covariance + covariance.T) / 2), cost

    start = np.zeros(4, dtype=kind), np.eye(4, dtype=kind)
    return np.mean(pb.scan(step, start, a["measured"])[1])


def _gaussian_process(a: Values, steps: int) -> Any:
    height, width, noise = np.exp(a["logarithms"])
    x, y = a["points"], a["observed"]
    covariance = height * np.exp(-0.5 * ((x[:, None] - x) / width) ** 2) + noise * np.eye(
        len(x), dtype=x.dtype
    )
    factor = np.linalg.cholesky(covariance)
    white = solve_triangular(factor, y, lower=True)
    return (0.5 * white @ white + np.sum(np.log(np.diagonal(factor)))) / len(x)


def _settled(weights: Any, bias: Any) -> Any:
    """``z = tanh(W z + b)``, iterated until it stays."""

    def goes_on(state: Any) -> Any:
        return np.max(np.abs(state[1])) > 1e-6

    def again(state: Any) -> Any:
        new = np.tanh(weights @ state[0] + bias)
        return new, new - state[0]

    return pb.while_loop(goes_on, again, (np.zeros_like(bias), np.ones_like(bias)))[0]


def _forward(weights: Any, bias: Any) -> Any:
    z = _settled(weights, bias)
    return z, (weights, z)


def _backward(kept: Any, bar: Any) -> Any:
    weights, z = kept
    slope = 1 - z * z
    adjoint = slope * np.linalg.solve(np.eye(len(z), dtype=z.dtype) - weights.T * slope, bar)
    return np.outer(adjoint, z), adjoint


_equilibrium = pb.custom_pullback(_settled)
_equilibrium.define(_forward, _backward)


def _fixed_point(a: Values, steps: int) -> Any:
    return np.mean((_equilibrium(a["weights"], a["bias"]) - a["target"]) ** 2)


_SIMULATIONS = {
    "ode": _ode,
    "kalman": _kalman,
    "solving-kalman": _solving_kalman,
    "cloth": _cloth,
    "gaussian-process": _gaussian_process,
    "fixed-point": _fixed_point,
}
