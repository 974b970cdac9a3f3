"""TensorFlow: a ``while_loop`` over the steps, compiled by XLA or as TensorFlow's own graph.

Simulations are not written in it; they take no part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from calls import Arrays, Call, differentiated

from contenders.ways import Way, described, fastest

Values = dict[str, Any]

_BEFORE, _ = INPUTS = "input products before the loop", "input products in the loop"
"""How a recurrence may be written."""


class Contender:
    def __init__(self, call: Call, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        if call.cell is None or call.checkpoint:
            raise NotImplementedError(f"{call.name} is not written in TensorFlow")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        names = differentiated(call)
        given = {name: tf.constant(value) for name, value in arrays.items()}
        self.arguments = {name: given.pop(name) for name in names}, given
        questions = {"compiler": ("XLA", "TensorFlow's graph"), "inputs": INPUTS}
        way = fastest(questions, partial(self._made, call), tuned)
        self.step = self._made(call, way)
        self.choice = f"while_loop, {described(way, questions)}"

    def _made(self, call: Call, way: Way) -> Callable[[], Any]:
        def recurrent(varied: Values, fixed: Values) -> Values:
            with tf.GradientTape() as tape:
                tape.watch(varied)
                states, last = _layers(call, way["inputs"], varied, fixed)
            return {**last, **tape.gradient(states, varied, fixed["g"])}

        compiled = tf.function(recurrent, jit_compile=way["compiler"] == "XLA")
        return lambda: compiled(*self.arguments)

    def run(self) -> None:
        self.results = self.step()

    def numbers(self) -> Arrays:
        return {name: value.numpy() for name, value in self.results.items()}


def _layers(call: Call, way: str, varied: Values, fixed: Values) -> tuple[Any, Values]:
    """The states of the last layer, and the last states of all."""
    assert call.cell is not None
    x, last = varied["x"], {}
    for k in range(call.layers):
        p = {name.split(".")[1]: value for name, value in varied.items() if name.startswith(f"{k}.")}
        start = tuple(fixed[f"h{i}"][k] for i in range(call.cell.states))
        x, state = looped(CELLS[call.program], way, p, start, x)
        last.update({f"last {k}.{i}": value for i, value in enumerate(state)})
    return x, last


def looped(cell: Any, way: str, p: Values, start: Any, x: Any) -> tuple[Any, Any]:
    """Outputs of a cell of ``CELLS`` at all steps, and the last state; ``x`` (steps, batch, inputs)."""
    (project, step), count = cell, x.shape[0]
    if way == _BEFORE:
        x = project(p, x)

    def body(time: Any, outputs: Any, *state: Any) -> Any:
        given = tf.nest.map_structure(lambda x: x[time], x)
        state = step(p, state, given if way == _BEFORE else project(p, given))
        return time + 1, outputs.write(time, state[0]), *state

    outputs = tf.TensorArray(tf.float32, count, element_shape=start[0].shape)
    begin = (tf.constant(0), outputs, *start)
    _, outputs, *state = tf.while_loop(lambda time, *_: time < count, body, begin, maximum_iterations=count)
    return outputs.stack(), tuple(state)


def _gated(h: Any, inputs: Any, hidden: Any) -> Any:
    """The new state of a GRU whose reset gate acts after the recurrent product."""
    xr, xz, xn = tf.split(inputs, 3, axis=-1)
    hr, hz, hn = tf.split(hidden, 3, axis=-1)
    r, z = tf.sigmoid(xr + hr), tf.sigmoid(xz + hz)
    n = tf.tanh(xn + r * hn)
    return ((1 - z) * n + z * h,)


def _gru(p: Values, state: Any, x: Any) -> Any:
    return _gated(state[0], x, state[0] @ p["u"] + p["c"])


def _gru_before(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    units = h.shape[-1]
    both = tf.sigmoid(x[..., : 2 * units] + h @ p["u"][:, : 2 * units])
    r, z = tf.split(both, 2, axis=-1)
    n = tf.tanh(x[..., 2 * units :] + (r * h) @ p["u"][:, 2 * units :])
    return ((1 - z) * n + z * h,)


def _lstm(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = tf.split(x + h @ p["u"], 4, axis=-1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def _peephole(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = tf.split(x + h @ p["u"], 4, axis=-1)
    pi, pf, po = tf.unstack(p["p"])
    c = tf.sigmoid(f + pf * c) * c + tf.sigmoid(i + pi * c) * tf.tanh(g)
    return tf.sigmoid(o + po * c) * tf.tanh(c), c


def _minimal_gated(p: Values, state: Any, x: Any) -> Any:
    (h,), (xf, xh) = state, x
    f = tf.sigmoid(xf + h @ p["uf"])
    n = tf.tanh(xh + (f * h) @ p["uh"])
    return ((1 - f) * h + f * n,)


def _normalised_gru(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    return _gated(h, x, _normal(h @ p["u"]) * p["u_gain"] + p["u_bias"])


def _normal(x: Any) -> Any:
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def _two_products(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    return (tf.tanh(tf.nn.relu(x + h @ p["u"]) @ p["v"] + p["d"]),)


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
