"""Functions of arrays that are called again and again, as data that every library's contender is built from.

A call is a program by its name, written once in each library (``contenders/calls_*.py``), and the sizes of its
arrays. A recurrence gives its last states and the gradients of Σ g·h, over all steps, with respect to its weights
and its input. A simulation gives a loss and its gradients. Only NumPy is used here: the file is read by
interpreters that have one library each. Arrays come from seeds, so that all contenders are given the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CELLS", "CLOTH_STEP", "ODE_STEP", "SIMULATIONS", "Arrays", "Call", "Cell", "arrays_of", "differentiated",
    "flops_per_call", "from_json", "largest_difference", "weights_of",
]  # fmt: skip

Arrays = dict[str, NDArray[np.float32]]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Cell:
    """A recurrence: the shapes of its weights, from inputs and units.

    Weights named ``u…`` meet the state in a product; ``inner`` of these products, counted in units of columns, meet
    a function of it that has the step's own weights in it, so that their input needs a cotangent at the first step
    as well. ``states`` is how many arrays are carried.
    """

    weights: Callable[[int, int], dict[str, Shape]]
    inner: int = 0
    states: int = 1


CELLS = {
    "gru": Cell(lambda i, n: {"w": (i, 3 * n), "u": (n, 3 * n), "b": (3 * n,), "c": (3 * n,)}),
    "gru-before": Cell(lambda i, n: {"w": (i, 3 * n), "u": (n, 3 * n), "b": (3 * n,)}, inner=1),
    "lstm": Cell(lambda i, n: {"w": (i, 4 * n), "u": (n, 4 * n), "b": (4 * n,)}, states=2),
    "minimal-gated": Cell(
        lambda i, n: {"wf": (i, n), "uf": (n, n), "bf": (n,), "wh": (i, n), "uh": (n, n), "bh": (n,)},
        inner=1,
    ),
    "peephole": Cell(lambda i, n: {"w": (i, 4 * n), "u": (n, 4 * n), "b": (4 * n,), "p": (3, n)}, states=2),
    "normalised-gru": Cell(
        lambda i, n: {
            "w": (i, 3 * n),
            "u": (n, 3 * n),
            **dict.fromkeys(("w_gain", "w_bias", "u_gain", "u_bias"), (3 * n,)),
        }
    ),
    "two-products": Cell(lambda i, n: {"w": (i, n), "u": (n, n), "b": (n,), "v": (n, n), "d": (n,)}),
}
"""By the name of the program:

- ``gru``: the reset gate acts after the recurrent product, as PyTorch's does; ``gru-before``: before it, on the state.
- ``lstm``, gates i, f, g, o; ``peephole`` (Gers & Schmidhuber, 2000): the gates see the cell's contents as well.
- ``minimal-gated`` (Zhou et al., 2016): one gate, ``h' = (1 - f)·h + f·tanh(x·Wh + (f·h)·Uh + bh)``.
- ``normalised-gru``: ``gru`` with both products layer-normalised (Ba et al., 2016).
- ``two-products``: ``h' = tanh(relu(x·W + h·U + b)·V + d)``.
"""

SIMULATIONS = {
    "ode": ("rates", "start"),
    "kalman": ("transition", "noise"),
    "solving-kalman": ("transition", "noise"),
    "gaussian-process": ("logarithms",),
    "fixed-point": ("weights", "bias"),
    "cloth": ("stiffness", "velocity"),
}
"""With what each is differentiated by:

- ``ode``: Lotka and Volterra's equations by Runge and Kutta's fourth-order rule, fitted to observations.
- ``kalman``: the likelihood of positions in a plane, of a state of four numbers; ``solving-kalman`` the same with the
  library's own solutions and determinants of matrices.
- ``gaussian-process``: the likelihood of observations at ``units`` points by Cholesky's factor, by three logarithms.
- ``fixed-point``: what ``units`` numbers settle at, differentiated by the implicit function theorem.
- ``cloth``: a net of points and springs that falls from two corners; how far it is from where it should end.
"""
ODE_STEP, CLOTH_STEP = 0.05, 0.01


@dataclass(frozen=True)
class Call:
    """A program and its sizes; ``units`` of the cloth are the points along a side.

    ``checkpoint`` is the number of steps between checkpoints that are placed by hand, 0 for none. ``memory`` is a
    budget, for a library that takes one.
    """

    name: str
    program: str
    steps: int
    batch: int = 0
    inputs: int = 0
    units: int = 0
    layers: int = 1
    checkpoint: int = 0
    memory: str = ""

    what = (
        "A call is forward and backward, with respect to all weights and the input, or of a simulation to its "
        "parameters."
    )

    @property
    def cell(self) -> Cell | None:
        """The recurrence, if it is one."""
        return CELLS.get(self.program)

    @property
    def flops(self) -> int:
        """Those of its products."""
        return flops_per_call(self)

    def describe(self) -> str:
        """The sizes on one line."""
        sizes = [f"{self.steps:,} steps"]
        if self.batch:
            sizes += [f"batch {self.batch}", f"{self.inputs} inputs", f"{self.units} units"]
        sizes += [f"{self.layers} layers"] * (self.layers > 1)
        return ", ".join(sizes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(values: dict[str, Any]) -> Call:
    """What ``as_json`` made."""
    return Call(**values)


def weights_of(call: Call) -> dict[str, Shape]:
    """The shapes of a recurrence's weights, each with the number of its layer before its name."""
    assert call.cell is not None
    found = {}
    for layer in range(call.layers):
        shapes = call.cell.weights(call.units if layer else call.inputs, call.units)
        found.update({f"{layer}.{name}": shape for name, shape in shapes.items()})
    return found


def differentiated(call: Call) -> tuple[str, ...]:
    """The names of the arrays with respect to which there are gradients."""
    return (*weights_of(call), "x") if call.cell is not None else SIMULATIONS[call.program]


def arrays_of(call: Call, seed: int = 0) -> Arrays:
    """All arrays that the program is given.

    Of a recurrence the input ``x`` (steps, batch, inputs), ``g`` (steps, batch, units), and the first states
    ``h0``, ``h1``, … (layers, batch, units), which are given so that nobody knows that they are zero.
    """
    random = np.random.default_rng(seed)
    if call.cell is None:
        made = _SIMULATION_ARRAYS[call.program](call, random)
    else:
        limit = call.units**-0.5
        made = {name: random.uniform(-limit, limit, shape) for name, shape in weights_of(call).items()}
        made.update({name: 1 + value for name, value in made.items() if name.endswith("gain")})
        made["x"] = random.standard_normal((call.steps, call.batch, call.inputs), np.float32)
        made["g"] = random.standard_normal((call.steps, call.batch, call.units), np.float32) / call.batch
        for k in range(call.cell.states):
            made[f"h{k}"] = np.zeros((call.layers, call.batch, call.units))
    return {name: np.asarray(value, np.float32) for name, value in made.items()}


def _ode(call: Call, random: np.random.Generator) -> dict[str, Any]:
    return {
        "rates": np.array([1.0, 0.5, 0.5, 1.0]),
        "start": np.array([1.0, 0.8]),
        "observed": 1 + 0.3 * random.standard_normal((call.steps, 2)),
    }


def _kalman(call: Call, random: np.random.Generator) -> dict[str, Any]:
    transition = np.eye(4)
    transition[:2, 2:] = 0.1 * np.eye(2)
    path = np.cumsum(0.1 * random.standard_normal((call.steps, 2)), axis=0)
    return {
        "transition": transition,
        "noise": np.log([0.02, 0.1]),
        "observation": np.eye(2, 4),
        "measured": path + 0.1 * random.standard_normal(path.shape),
    }


def _cloth(call: Call, random: np.random.Generator) -> dict[str, Any]:
    side = np.linspace(0, 1, call.units)
    net = np.stack([*np.meshgrid(side, side, indexing="ij"), np.zeros((call.units, call.units))], axis=-1)
    free = np.ones((call.units, call.units, 1))
    free[0, 0] = free[0, -1] = 0
    return {
        "stiffness": np.array(20.0),
        "velocity": 0.01 * random.standard_normal(net.shape),
        "net": net,
        "free": free,
        "target": net - np.array([0, 0, 0.5]),
    }


def _gaussian_process(call: Call, random: np.random.Generator) -> dict[str, Any]:
    points = np.sort(random.uniform(0, 10, call.units))
    return {
        "logarithms": np.log([1.0, 0.7, 0.3]),
        "points": points,
        "observed": np.sin(points) + 0.3 * random.standard_normal(call.units),
    }


def _fixed_point(call: Call, random: np.random.Generator) -> dict[str, Any]:
    return {
        "weights": 0.4 * random.standard_normal((call.units, call.units)) / call.units**0.5,
        "bias": random.standard_normal(call.units),
        "target": random.standard_normal(call.units),
    }


_SIMULATION_ARRAYS = {
    "ode": _ode,
    "kalman": _kalman,
    "solving-kalman": _kalman,
    "cloth": _cloth,
    "gaussian-process": _gaussian_process,
    "fixed-point": _fixed_point,
}


def flops_per_call(call: Call) -> int:
    """Multiplications and additions in the products of a recurrence, forward and backward; 0 of a simulation.

    A product is three: itself, the gradient of its weight, the cotangent of its input. Only the first states, with
    respect to which nobody differentiates, need no cotangent.
    """
    if call.cell is None:
        return 0
    shapes = weights_of(call)
    products = sum(rows * columns for rows, columns in _matrices(shapes))
    recurrent = {name: shape for name, shape in shapes.items() if name.split(".")[1].startswith("u")}
    spared = sum(rows * columns for rows, columns in _matrices(recurrent))
    spared -= call.layers * call.cell.inner * call.units**2
    return 2 * call.batch * (3 * call.steps * products - spared)


def _matrices(shapes: Mapping[str, Shape]) -> list[Shape]:
    return [shape for name, shape in shapes.items() if len(shape) == 2 and not name.endswith(".p")]


def largest_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Of all arrays the largest ‖found - expected‖ / ‖expected‖.

    Raises ``ValueError`` when the names or shapes are not the same.
    """
    if {name: a.shape for name, a in found.items()} != {name: a.shape for name, a in expected.items()}:
        raise ValueError(f"results {sorted(found)} are not those of {sorted(expected)}")
    return max(
        float(
            np.linalg.norm(np.subtract(found[name], array, dtype=np.float64)) / (np.linalg.norm(array) or 1)
        )
        for name, array in expected.items()
    )
