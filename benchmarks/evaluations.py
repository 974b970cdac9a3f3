"""Numerical programs and their derivatives, each written once for all libraries.

A program is a function of a library's vocabulary ``o`` and of its arrays, and returns its results by name:

    def lse(o, a):
        np = o.np
        return {"gradient": o.grad(lambda x: np.log(np.sum(np.exp(x))))(a["x"])}

``o.np`` is NumPy to Pullback and the library's own namespace to others; what NumPy has no word for are the methods of
``o`` (``contenders/evaluations_*.py``), and what a library has none for raises ``NotImplementedError`` there. All is
computed in double precision. Only NumPy is used here: the file is read by interpreters that have one library each.
Half of them are the evaluations of GradBench (github.com/gradbench/gradbench), whose definitions are followed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PROGRAMS", "WHILE", "Evaluation", "arrays_of", "from_json"]

Arrays = dict[str, NDArray[Any]]
Values = dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """A program of ``PROGRAMS`` and the sizes that it asks for."""

    name: str
    program: str
    sizes: dict[str, int] = field(default_factory=dict)

    what = "A call gives all results of the program, in double precision."
    flops = 0

    def describe(self) -> str:
        """The sizes on one line."""
        return ", ".join(f"{name} {size:,}" for name, size in self.sizes.items()) or "double precision"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(values: dict[str, Any]) -> Evaluation:
    """What ``as_json`` made."""
    return Evaluation(**values)


def arrays_of(evaluation: Evaluation, seed: int = 0) -> Arrays:
    """All arrays that the program is given: floats in double precision, and whole numbers."""
    made = _ARRAYS[evaluation.program](np.random.default_rng(seed), **evaluation.sizes)
    return {name: np.ascontiguousarray(value) for name, value in made.items()}


# What GradBench evaluates.


def _gmm_arrays(random: Any, d: int, k: int, n: int) -> Values:
    return {
        "x": random.standard_normal((n, d)),
        "alpha": random.standard_normal(k),
        "mu": random.uniform(size=(k, d)),
        "q": random.standard_normal((k, d)),
        "l": random.standard_normal((k, d * (d - 1) // 2)),
    }


def gmm(o: Any, a: Values) -> Values:
    """The logarithm of a Gaussian mixture's posterior under a Wishart prior; ``m = 0`` and ``γ = 1``."""
    np, x = o.np, a["x"]
    (n, d), k = x.shape, len(a["alpha"])
    below = _columns_below(d)
    constant = -n * d / 2 * math.log(2 * math.pi)
    of_prior = k * ((d + 1) * d * -0.5 * math.log(2) - _log_multigamma((d + 1) / 2, d))

    def posterior(alpha: Any, mu: Any, q: Any, l: Any) -> Any:  # noqa: E741 - GradBench's name
        diagonal = np.exp(q)
        lower = o.placed(l, (k, d, d), below)
        centred = x[None] - mu[:, None]
        inner = diagonal[:, None] * centred + np.einsum("kij,knj->kni", lower, centred)
        terms = (alpha + np.sum(q, axis=1))[:, None] - 0.5 * np.sum(inner**2, axis=2)
        likelihood = np.sum(_logsumexp(np, terms, 0)) - n * _logsumexp(np, alpha, 0)
        return constant + likelihood + of_prior - 0.5 * (np.sum(diagonal**2) + np.sum(l**2))

    value, gradient = o.value_and_grad(posterior, (0, 1, 2, 3))(a["alpha"], a["mu"], a["q"], a["l"])
    return {"value": value, **dict(zip(("alpha", "mu", "q", "l"), gradient))}


def _columns_below(d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns below the diagonal, one column after the other."""
    columns, rows = np.triu_indices(d, 1)
    return rows, columns


def _log_multigamma(x: float, d: int) -> float:
    return d * (d - 1) / 4 * math.log(math.pi) + sum(math.lgamma(x - j / 2) for j in range(d))


def _logsumexp(np: Any, x: Any, axis: int) -> Any:
    top = np.amax(x, axis)
    return top + np.log(np.sum(np.exp(x - top), axis))


def _kmeans_arrays(random: Any, k: int, n: int, d: int) -> Values:
    points = random.uniform(size=(n, d))
    return {"points": points, "centroids": points[-k:] + 0.0}


def kmeans(o: Any, a: Values) -> Values:
    """Newton's direction for the sum of squared distances to the nearest centroid; its Hessian is diagonal."""
    np = o.np

    def cost(centroids: Any) -> Any:
        distances = np.sum((a["points"][:, None] - centroids[None]) ** 2, axis=2)
        return np.sum(np.amin(distances, 1))

    gradient, curvature = o.hvp(cost, a["centroids"], np.ones_like(a["centroids"]))
    return {"direction": gradient / curvature}


def _lse_arrays(random: Any, n: int) -> Values:
    return {"x": random.uniform(size=n)}


def lse(o: Any, a: Values) -> Values:
    """The logarithm of a sum of exponentials."""
    value, gradient = o.value_and_grad(lambda x: _logsumexp(o.np, x, 0))(a["x"])
    return {"value": value, "gradient": gradient}


def _llsq_arrays(random: Any, n: int, m: int) -> Values:
    return {"x": random.uniform(size=m), "t": -1 + np.arange(n) * 2 / (n - 1)}


def llsq(o: Any, a: Values) -> Values:
    """A polynomial fitted to the signs of ``t``, its powers computed on the way."""
    np, t = o.np, a["t"]

    def objective(x: Any) -> Any:
        powers = np.cumprod(o.constant_rows(t, len(x)), 1)
        return 0.5 * np.sum((np.sign(t) - powers @ x) ** 2)

    value, gradient = o.value_and_grad(objective)(a["x"])
    return {"value": value, "gradient": gradient}


def _ode_arrays(random: Any, n: int, steps: int) -> Values:
    return {"x": random.uniform(size=n), "steps": np.zeros(steps)}


def ode(o: Any, a: Values) -> Values:
    """Runge and Kutta's rule for ``y_0' = x_0``, ``y_i' = x_i y_{i-1}``; the gradient of the last element."""
    np, steps = o.np, len(a["steps"])
    h = 2 / steps

    def last(x: Any) -> Any:
        def slope(y: Any) -> Any:
            return np.concatenate([x[:1], x[1:] * y[:-1]])

        def step(y: Any, _: Any) -> Any:
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), ()

        return o.scan(step, np.zeros_like(x), (), steps)[0][-1]

    value, gradient = o.value_and_grad(last)(a["x"])
    return {"value": value, "gradient": gradient}


def _det_arrays(random: Any, n: int) -> Values:
    return {"matrix": random.uniform(size=(n, n))}


def det(o: Any, a: Values) -> Values:
    """A determinant by minors: those of the last rows from those of one row less, each computed once."""
    np = o.np

    def determinant(matrix: Any) -> Any:
        n = len(matrix)
        minors = np.ones_like(matrix[0, :1])
        for row in reversed(range(n)):
            columns, rest, signs = _minors(n, n - row)
            minors = np.sum(
                o.constant(signs) * matrix[row][o.constant(columns)] * minors[o.constant(rest)], 1
            )
        return minors[0]

    value, gradient = o.value_and_grad(determinant)(a["matrix"])
    return {"value": value, "gradient": gradient}


def _minors(n: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """For each choice of ``size`` of ``n`` columns: these, the numbers of the choices without one of each, signs."""
    numbers = {chosen: k for k, chosen in enumerate(itertools.combinations(range(n), size - 1))}
    columns = list(itertools.combinations(range(n), size))
    rest = [[numbers[chosen[:j] + chosen[j + 1 :]] for j in range(size)] for chosen in columns]
    return np.array(columns), np.array(rest), (-1.0) ** np.arange(size)


def _descent(
    o: Any,
    gradient: Callable[..., Any],
    f: Callable[[Any], Any],
    start: Any,
    sign: float,
    most: int | None = None,
) -> Any:
    """Where ``sign·f`` is least, by gradient descent; the rate doubles after ten good steps, a bad one halves it.

    ``most`` turns are enough, if it is given; it takes that for reverse mode to go through.
    """
    np = o.np
    g = gradient(f)

    def goes_on(state: Any) -> Any:
        return state[5]

    def again(state: Any) -> Any:
        x, fx, gx, rate, good, _ = state

        def move() -> Any:
            moved = x - rate * gx

            def judge() -> Any:
                fm = sign * f(moved)
                return o.cond(
                    fm < fx,
                    lambda: (moved, fm, sign * g(moved), rate, good + 1, o.true),
                    lambda: (x, fx, gx, rate / 2, 0 * good, o.true),
                )

            near = np.sum((moved - x) ** 2) <= 1e-10
            return o.cond(near, lambda: (x, fx, gx, rate, good, o.false), judge)

        def wait() -> Any:
            return o.cond(good == 10, lambda: (x, fx, gx, 2 * rate, 0 * good, o.true), move)

        flat = np.sum(gx**2) <= 1e-10
        return o.cond(flat, lambda: (x, fx, gx, rate, good, o.false), wait)

    begin = (start, sign * f(start), sign * g(start), o.scalar(1e-5), o.whole(0), o.true)
    return o.while_loop(goes_on, again, begin, most)[0]


def _modes(o: Any, solve: Callable[..., Any], reverse: bool) -> Values:
    """``solve`` with outer derivatives by one mode, which it is told, and the inner ones by forward and by reverse."""
    outer = o.grad if reverse else o.forward_grad
    return {
        "forward": solve(outer, o.forward_grad, reverse),
        "reverse": solve(outer, o.grad, reverse),
    }


def _particle_arrays(random: Any) -> Values:
    return {"w": np.zeros(1)}


def particle(o: Any, a: Values, reverse: bool = False) -> Values:
    """The parameter with which a charged particle meets the origin; Euler's steps until it meets the axis."""
    dt = 0.1

    def solve(outer: Any, inner: Any, reverse: bool) -> Any:
        def distance(w: Any) -> Any:
            def potential(x: Any) -> Any:
                first = (x[0] - 10.0) ** 2 + (x[1] - (10.0 - w[0])) ** 2
                return first**-0.5 + ((x[0] - 10.0) ** 2 + x[1] ** 2) ** -0.5

            force = inner(potential)

            def step(state: Any) -> Any:
                x, v, ahead = state
                return ahead, v - dt * force(x), ahead + dt * (v - dt * force(x))

            x, v = o.array([0.0, 8.0]), o.array([0.75, 0.0])
            most = 1000 if reverse else None
            x, v, _ = o.while_loop(lambda state: state[2][1] > 0, step, (x, v, x + dt * v), most)
            return (x[0] - x[1] / v[1] * v[0]) ** 2

        return _descent(o, outer, distance, a["w"], 1.0)

    return _modes(o, solve, reverse)


def particle_reverse(o: Any, a: Values) -> Values:
    """The same with reverse mode through the steps, which takes a bound of their number."""
    return particle(o, a, reverse=True)


def _saddle_arrays(random: Any) -> Values:
    return {"start": np.ones(2)}


def saddle(o: Any, a: Values, reverse: bool = False) -> Values:
    """``min_x max_y (x₁² + y₁²) - (x₂² + y₂²)``: one gradient descent within the other."""
    np = o.np

    def f(x: Any, y: Any) -> Any:
        return np.sum(x**2) - np.sum(y**2)

    def solve(outer: Any, inner: Any, reverse: bool) -> Any:
        def highest(x: Any) -> Any:
            return f(x, _descent(o, inner, lambda y: f(x, y), a["start"], -1.0, 200 if reverse else None))

        x = _descent(o, outer, highest, a["start"], 1.0)
        y = _descent(o, outer, lambda y: f(x, y), a["start"], -1.0)
        return np.concatenate([x, y])

    return _modes(o, solve, reverse)


def saddle_reverse(o: Any, a: Values) -> Values:
    """The same with reverse mode through the inner descent, which takes a bound of its turns."""
    return saddle(o, a, reverse=True)


def _lstm_arrays(random: Any, layers: int, steps: int, bits: int) -> Values:
    return {
        "weights": random.uniform(size=(layers, 2, 4, bits)),
        "extra": random.uniform(size=(3, bits)),
        "state": random.uniform(size=(layers, 2, bits)),
        "sequence": random.integers(0, 2, (steps, bits)).astype(float),
    }


def lstm(o: Any, a: Values) -> Values:
    """Characters from characters by cells whose matrices are diagonal."""
    np, sequence = o.np, a["sequence"]
    layers = len(a["weights"])

    def objective(weights: Any, extra: Any) -> Any:
        def step(state: Any, both: Any) -> Any:
            x, wanted = both
            signal, following = x * extra[0], []
            for layer in range(layers):
                (wf, wi, wo, wc), (bf, bi, bo, bc) = weights[layer]
                hidden, cell = state[layer]
                cell = cell * o.sigmoid(signal * wf + bf) + o.sigmoid(hidden * wi + bi) * np.tanh(
                    hidden * wc + bc
                )
                signal = o.sigmoid(signal * wo + bo) * np.tanh(cell)
                following.append(np.stack([signal, cell]))
            said = signal * extra[1] + extra[2]
            said = said - np.log(np.sum(np.exp(said)) + 2)
            return np.stack(following), np.sum(wanted * said)

        scores = o.scan(step, a["state"], (sequence[:-1], sequence[1:]), len(sequence) - 1)[1]
        return -np.sum(scores) / (len(sequence) - 1) / sequence.shape[1]

    value, gradient = o.value_and_grad(objective, (0, 1))(a["weights"], a["extra"])
    return {"value": value, "weights": gradient[0], "extra": gradient[1]}


_FINGERS, _BONES = 5, 22


def _ht_arrays(random: Any, vertices: int, points: int) -> Values:
    weights = random.uniform(size=(_BONES, vertices)) ** 8
    base = np.tile(np.eye(4), (_BONES, 1, 1))
    base[:, :3] += 0.2 * random.standard_normal((_BONES, 3, 4))
    return {
        "theta": 0.3 * random.standard_normal(26),
        "us": random.uniform(0, 0.5, (points, 2)),
        "base": base,
        "inverse": np.linalg.inv(base),
        "positions": np.concatenate([random.standard_normal((3, vertices)), np.ones((1, vertices))]),
        "weights": weights / np.sum(weights, axis=0),
        "corners": random.integers(0, vertices, (points, 3)),
        "points": random.standard_normal((points, 3)),
    }


def ht(o: Any, a: Values) -> Values:
    """How far points are from those of a hand's skin: all derivatives by the pose, and each point's own two."""
    np = o.np
    parents = [-1, *(0 if bone % 4 == 1 else bone - 1 for bone in range(1, 4 * _FINGERS + 1)), 0]

    def turned(angles: Any) -> Any:
        """Rotations about x, z and y of all bones, (bones, 4, 4)."""
        (sx, sz, sy), (cx, cz, cy) = np.sin(angles), np.cos(angles)
        none, one = np.zeros_like(sx), np.ones_like(sx)
        rows = [
            [cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx, none],
            [sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx, none],
            [-sy, cy * sx, cy * cx, none],
            [none, none, none, one],
        ]
        return np.moveaxis(np.stack([np.stack(row) for row in rows]), 2, 0)

    def rotation(axis: Any) -> Any:
        """The rotation about an axis by its length."""
        angle = np.sqrt(np.sum(axis**2))
        x, y, z = axis / angle
        s, c = np.sin(angle), np.cos(angle)
        rows = [
            [x * x + (1 - x * x) * c, x * y * (1 - c) - z * s, x * z * (1 - c) + y * s],
            [x * y * (1 - c) + z * s, y * y + (1 - y * y) * c, y * z * (1 - c) - x * s],
            [x * z * (1 - c) - y * s, z * y * (1 - c) + x * s, z * z + (1 - z * z) * c],
        ]
        return np.stack([np.stack(row) for row in rows])

    def skin(theta: Any) -> Any:
        bends = theta[6:].reshape(_FINGERS, 4)
        none = np.zeros_like(bends[:, :1])
        spread = np.concatenate([bends[:, 1:2], none, none, none], 1).reshape(-1)
        first = np.concatenate([bends[:, 0:1], bends[:, 2:], none], 1).reshape(-1)
        edge = np.zeros_like(theta[:1])
        first, spread = (np.concatenate([edge, part, edge]) for part in (first, spread))
        relative = a["base"] @ turned(np.stack([first, spread, np.zeros_like(first)]))
        absolute: list[Any] = []
        for bone, parent in enumerate(parents):
            absolute.append(relative[bone] if parent < 0 else absolute[parent] @ relative[bone])
        moved = np.stack(absolute) @ a["inverse"]
        skin = np.einsum("bij,jv,bv->iv", moved[:, :3], a["positions"], a["weights"])
        return rotation(theta[:3]) @ skin + theta[3:6, None]

    def errors(theta: Any, us: Any) -> Any:
        corners = np.moveaxis(skin(theta)[:, a["corners"]], 0, 2)
        u, v = us[:, :1], us[:, 1:]
        return a["points"] - (u * corners[:, 0] + v * corners[:, 1] + (1 - u - v) * corners[:, 2])

    by_theta = o.jacobian(lambda theta: errors(theta, a["us"]))(a["theta"])
    ones, none = np.ones_like(a["us"][:, :1]), np.zeros_like(a["us"][:, :1])
    along = [np.concatenate(pair, 1) for pair in ((ones, none), (none, ones))]
    by_us = [o.jvp(lambda us: errors(a["theta"], us), a["us"], t) for t in along]
    return {"errors": by_us[0][0], "theta": by_theta, "us": np.stack([slope for _, slope in by_us], -1)}


def _ba_arrays(random: Any, cameras: int, points: int, seen: int) -> Values:
    camera = [0.01, -0.02, 0.03, 0.1, 0.2, -5.0, 400.0, 5.0, -8.0, 0.01, 0.003]
    return {
        "cameras": np.array(camera) * random.uniform(0.9, 1.1, (cameras, 11)),
        "points": random.uniform(-1, 1, (points, 3)),
        "weights": random.uniform(0.1, 1, seen),
        "features": random.uniform(-100, 100, (seen, 2)),
        "camera": np.arange(seen) % cameras,
        "point": np.arange(seen) % points,
    }


def ba(o: Any, a: Values) -> Values:
    """Where cameras see points, beside where they saw them: the derivatives that are not zero, a row of 15 each."""
    np = o.np

    def error(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
        turn, rest = camera[:3], point - camera[3:6]
        angle = np.sqrt(np.sum(turn**2))
        axis = turn / angle
        across = np.stack([
            axis[1] * rest[2] - axis[2] * rest[1],
            axis[2] * rest[0] - axis[0] * rest[2],
            axis[0] * rest[1] - axis[1] * rest[0],
        ])  # fmt: skip
        along = np.sum(axis * rest) * (1 - np.cos(angle))
        seen = rest * np.cos(angle) + across * np.sin(angle) + axis * along
        flat = seen[:2] / seen[2]
        square = np.sum(flat**2)
        flat = flat * (1 + camera[9] * square + camera[10] * square**2)
        return weight * (flat * camera[6] + camera[7:9] - feature)

    slopes = o.vmap(o.jacobian(error, (0, 1, 2), by_rows=True))
    cameras, points, w = a["cameras"][a["camera"]], a["points"][a["point"]], a["weights"]
    by_camera, by_point, by_weight = slopes(cameras, points, w, a["features"])
    rows = np.concatenate([by_camera, by_point, by_weight[:, :, None]], 2)
    return {"rows": rows, "weights": o.vmap(o.grad(lambda w: 1 - w**2))(w)}


# Others.


def _vector(random: Any, n: int) -> Values:
    return {"x": random.uniform(0.5, 1.5, n)}


def _rosenbrock(np: Any, x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock(o: Any, a: Values) -> Values:
    """The gradient by reverse mode."""
    return {"gradient": o.grad(lambda x: _rosenbrock(o.np, x))(a["x"])}


def rosenbrock_forward(o: Any, a: Values) -> Values:
    """The gradient by forward mode, sixteen directions at a time."""
    return {"gradient": o.forward_grad(lambda x: _rosenbrock(o.np, x), 16)(a["x"])}


def ackley(o: Any, a: Values) -> Values:
    """Ackley's function."""
    np = o.np

    def f(x: Any) -> Any:
        hills = np.exp(np.mean(np.cos(2 * math.pi * x)))
        return -20 * np.exp(-0.2 * np.sqrt(np.mean(x**2))) - hills + 20 + math.e

    value, gradient = o.value_and_grad(f)(a["x"])
    return {"value": value, "gradient": gradient}


def _examples_arrays(random: Any, n: int) -> Values:
    return {
        "x": random.standard_normal((n, 8)),
        "y": random.standard_normal(n),
        "w": random.standard_normal((8, 4)),
        "v": random.standard_normal(4),
    }


def examples(o: Any, a: Values) -> Values:
    """The gradient of each example's loss by its inputs, in a small network."""
    np = o.np
    slope = o.grad(lambda x, y: (np.tanh(x @ a["w"]) @ a["v"] - y) ** 2)
    return {"gradients": o.vmap(slope)(a["x"], a["y"])}


def _spline_arrays(random: Any, knots: int, n: int) -> Values:
    places = np.linspace(0, 1, knots)
    return {
        "values": random.standard_normal(knots),
        "knots": places,
        "x": random.uniform(0, 1, n),
        "observed": random.standard_normal(n),
    }


def spline(o: Any, a: Values) -> Values:
    """A natural cubic spline fitted to observations, by its values at the knots."""
    np, knots, x = o.np, a["knots"], a["x"]
    count = len(knots)
    width = 1 / (count - 1)
    system = o.constant(_natural(count))

    def loss(values: Any) -> Any:
        none = np.zeros_like(values[:1])
        second = (values[2:] - 2 * values[1:-1] + values[:-2]) * (6 / width**2)
        curvature = np.concatenate([none, np.linalg.solve(system, second), none])
        left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, count - 2)
        u, w = (knots[left + 1] - x) / width, (x - knots[left]) / width
        bent = (u**3 - u) * curvature[left] + (w**3 - w) * curvature[left + 1]
        made = u * values[left] + w * values[left + 1] + bent * (width**2 / 6)
        return np.mean((made - a["observed"]) ** 2)

    value, gradient = o.value_and_grad(loss)(a["values"])
    return {"value": value, "gradient": gradient}


def _natural(count: int) -> NDArray[np.float64]:
    """What a natural spline's second derivatives, times which, are six times the second differences."""
    return 4 * np.eye(count - 2) + np.eye(count - 2, k=1) + np.eye(count - 2, k=-1)


def _deconvolution_arrays(random: Any, n: int) -> Values:
    signal = np.cumsum(random.standard_normal(n) * (random.uniform(size=n) < 0.01))
    kernel = np.exp(-np.arange(n) / 8.0)
    return {"x": signal, "kernel": kernel / kernel.sum(), "y": signal + 0.01 * random.standard_normal(n)}


def deconvolution(o: Any, a: Values) -> Values:
    """A circular convolution by Fourier's transform, fitted to a blurred signal."""
    np, n = o.np, len(a["x"])

    def loss(x: Any) -> Any:
        blurred = np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(a["kernel"]), n)
        return np.sum((blurred - a["y"]) ** 2) + 3e-3 * np.sum((x[1:] - x[:-1]) ** 2)

    value, gradient = o.value_and_grad(loss)(a["x"])
    return {"value": value, "gradient": gradient}


def _sorting_arrays(random: Any, n: int) -> Values:
    return {"x": random.standard_normal(n), "y": np.sort(random.standard_normal(n))}


def sorting(o: Any, a: Values) -> Values:
    """The squared distance of the sorted elements from others: Wasserstein's on a line."""
    value, gradient = o.value_and_grad(lambda x: o.np.mean((o.sorted(x) - a["y"]) ** 2))(a["x"])
    return {"value": value, "gradient": gradient}


def _spectra_arrays(random: Any, n: int, window: int) -> Values:
    frames = np.arange(0, n - window, window // 4)[:, None] + np.arange(window)
    return {"x": random.standard_normal((4, n)), "window": np.hanning(window), "frames": frames}


def spectra(o: Any, a: Values) -> Values:
    """The logarithm of the spectra of frames of a signal that overlap."""
    np = o.np

    def loss(x: Any) -> Any:
        spectrum = np.fft.rfft(x[:, a["frames"]] * a["window"])
        return np.mean(np.log(np.abs(spectrum) ** 2 + 1e-3))

    value, gradient = o.value_and_grad(loss)(a["x"])
    return {"value": value, "gradient": gradient}


def _ranks_arrays(random: Any, n: int) -> Values:
    return {"x": random.standard_normal((8, n)), "y": random.uniform(0, n, (8, n))}


def ranks(o: Any, a: Values) -> Values:
    """Soft ranks, by a logistic function of each difference, against given ones."""
    np = o.np

    def loss(x: Any) -> Any:
        above = 1 / (1 + np.exp((x[:, None, :] - x[:, :, None]) / 0.1))
        return np.mean((np.sum(above, 2) - a["y"]) ** 2)

    value, gradient = o.value_and_grad(loss)(a["x"])
    return {"value": value, "gradient": gradient}


def _densities_arrays(random: Any, n: int) -> Values:
    return {"x": random.standard_normal(n), "y": random.standard_normal(n), "width": np.array([-1.0])}


def densities(o: Any, a: Values) -> Values:
    """The likelihood of points by Gaussian kernels around others, by these points and the kernels' width."""
    np = o.np

    def loss(y: Any, width: Any) -> Any:
        z = (a["x"] - y[:, None]) * np.exp(-width)
        return np.mean(width - _logsumexp(np, -0.5 * z * z, 0))

    value, gradients = o.value_and_grad(loss, (0, 1))(a["y"], a["width"])
    return {"value": value, "points": gradients[0], "width": gradients[1]}


def _determinants_arrays(random: Any, n: int) -> Values:
    return {"x": random.standard_normal((n, 3, 3))}


def determinants(o: Any, a: Values) -> Values:
    """The squares of the determinants of many small matrices."""
    value, gradient = o.value_and_grad(lambda x: o.np.sum(o.np.linalg.det(x) ** 2))(a["x"])
    return {"value": value, "gradient": gradient}


PROGRAMS: dict[str, Callable[[Any, Values], Values]] = {
    program.__name__: program
    for program in (
        gmm, kmeans, lse, llsq, ode, det, particle, particle_reverse, saddle, saddle_reverse, lstm, ht, ba,
        rosenbrock, rosenbrock_forward, ackley, examples, spline, deconvolution, sorting,
        spectra, ranks, densities, determinants,
    )
}  # fmt: skip
"""By name; the first thirteen are GradBench's."""

WHILE = ("particle", "particle_reverse", "saddle", "saddle_reverse")
"""Those with loops whose ends the values decide."""

_ARRAYS: dict[str, Callable[..., Values]] = {
    "gmm": _gmm_arrays,
    "kmeans": _kmeans_arrays,
    "lse": _lse_arrays,
    "llsq": _llsq_arrays,
    "ode": _ode_arrays,
    "det": _det_arrays,
    "particle": _particle_arrays,
    "particle_reverse": _particle_arrays,
    "saddle": _saddle_arrays,
    "saddle_reverse": _saddle_arrays,
    "lstm": _lstm_arrays,
    "ht": _ht_arrays,
    "ba": _ba_arrays,
    "rosenbrock": _vector,
    "rosenbrock_forward": _vector,
    "ackley": _vector,
    "examples": _examples_arrays,
    "spline": _spline_arrays,
    "deconvolution": _deconvolution_arrays,
    "sorting": _sorting_arrays,
    "spectra": _spectra_arrays,
    "ranks": _ranks_arrays,
    "densities": _densities_arrays,
    "determinants": _determinants_arrays,
}
