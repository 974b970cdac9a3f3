"""PyTorch: the library's own layer where it has one, or a loop over the steps with the inputs' products before it.

``compiled`` is ``torch.compile`` around that loop. Simulations are loops as well, of far more time than anybody else's;
they take no part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from calls import Arrays, Call, differentiated
from torch.nn import functional

from contenders.ways import Way, described, fastest

Values = dict[str, Any]

_OWN_LAYERS = {"gru": torch.gru, "lstm": torch.lstm}
LIBRARY = "the library's layer"
_BEFORE, _ = LOOPS = "a loop, input products before it", "a loop, input products in it"
"""How a recurrence may be written."""


class Contender:
    def __init__(self, call: Call, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        if call.cell is None:
            raise NotImplementedError(f"{call.program}: a loop in Python")
        if call.checkpoint:
            raise NotImplementedError("checkpoints by hand")
        torch.set_flush_denormal(True)  # before any thread begins, which does as this one
        self.call, self.threads = call, threads
        self.given = {name: torch.tensor(value) for name, value in arrays.items()}
        self.varied = {name: self.given[name].requires_grad_() for name in differentiated(call)}
        own = (LIBRARY,) if call.program in _OWN_LAYERS else ()
        ways = (_BEFORE,) if variant == "compiled" else (*own, *LOOPS)
        questions: dict[str, Any] = {"layer": ways}
        if threads > 1 and call.batch < 16:
            questions["threads"] = (f"{threads} threads", "1 thread")
        way = fastest(questions, partial(self._made, variant), tuned)
        self.step = self._made(variant, way)
        how = ["torch.compile around the loop"] if variant == "compiled" else []
        self.choice = ", ".join(filter(None, [*how, described(way, questions)]))

    def _made(self, variant: str, way: Way) -> Callable[[], Values]:
        forward = partial(_layers, self.call, way["layer"])
        if variant == "compiled":
            forward = torch.compile(forward)
        threads = 1 if way.get("threads") == "1 thread" else self.threads

        def step() -> Values:
            torch.set_num_threads(threads)
            states, last = forward(self.given)
            gradients = torch.autograd.grad(states, list(self.varied.values()), self.given["g"])
            return {**last, **dict(zip(self.varied, gradients))}

        return step

    def run(self) -> None:
        self.results = self.step()

    def numbers(self) -> Arrays:
        return {name: value.detach().numpy() for name, value in self.results.items()}


def _layers(call: Call, way: str, given: Values) -> tuple[Any, Values]:
    """The states of the last layer, and the last states of all."""
    assert call.cell is not None
    x, last = given["x"], {}
    for k in range(call.layers):
        p = {name.split(".")[1]: value for name, value in given.items() if name.startswith(f"{k}.")}
        state = tuple(given[f"h{i}"][k] for i in range(call.cell.states))
        x, state = layer_of(call.program, way, p, state, x)
        last.update({f"last {k}.{i}": value for i, value in enumerate(state)})
    return x, last


def layer_of(program: str, way: str, p: Values, state: Any, x: Any) -> tuple[Any, Any]:
    """Outputs at all steps and the last state; ``x`` (steps, batch, inputs)."""
    if way == LIBRARY:
        return _by_library(program, p, state, x)
    project, step = _CELLS[program]
    states = []
    for inputs in (project(p, x) if way == _BEFORE else x).unbind(0):
        state = step(p, state, inputs if way == _BEFORE else project(p, inputs))
        states.append(state[0])
    return torch.stack(states), state


def _by_library(program: str, p: Values, state: Any, x: Any) -> tuple[Any, Any]:
    """``nn.GRU`` or ``nn.LSTM`` by the functions that they call; an LSTM's second bias is zero."""
    c = p.get("c")
    weights = [p["w"].t(), p["u"].t(), p["b"], torch.zeros_like(p["b"]) if c is None else c]
    starts = tuple(part[None] for part in state)
    start = starts if len(starts) > 1 else starts[0]
    found, *ends = _OWN_LAYERS[program](x, start, weights, True, 1, 0.0, True, False, False)
    return found, tuple(end[0] for end in ends)


def _gated(h: Any, inputs: Any, hidden: Any) -> Any:
    """The new state of a GRU whose reset gate acts after the recurrent product."""
    xr, xz, xn = inputs.chunk(3, -1)
    hr, hz, hn = hidden.chunk(3, -1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(torch.addcmul(xn, r, hn))
    return (torch.lerp(n, h, z),)


def _gru(p: Values, state: Any, x: Any) -> Any:
    return _gated(state[0], x, torch.addmm(p["c"], state[0], p["u"]))


def _gru_before(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    units = h.shape[-1]
    both = torch.sigmoid(torch.addmm(x[:, : 2 * units], h, p["u"][:, : 2 * units]))
    r, z = both.chunk(2, -1)
    n = torch.tanh(torch.addmm(x[:, 2 * units :], r * h, p["u"][:, 2 * units :]))
    return (torch.lerp(n, h, z),)


def _lstm(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = torch.addmm(x, h, p["u"]).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _peephole(p: Values, state: Any, x: Any) -> Any:
    h, c = state
    i, f, g, o = torch.addmm(x, h, p["u"]).chunk(4, -1)
    pi, pf, po = p["p"].unbind(0)
    c = torch.sigmoid(f + pf * c) * c + torch.sigmoid(i + pi * c) * torch.tanh(g)
    return torch.sigmoid(o + po * c) * torch.tanh(c), c


def _minimal_gated(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    xf, xh = x.chunk(2, -1)
    f = torch.sigmoid(torch.addmm(xf, h, p["uf"]))
    n = torch.tanh(torch.addmm(xh, f * h, p["uh"]))
    return (torch.lerp(h, n, f),)


def _normalised_gru(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    return _gated(h, x, _normal(h @ p["u"], p["u_gain"], p["u_bias"]))


def _normal(x: Any, gain: Any, bias: Any) -> Any:
    return functional.layer_norm(x, x.shape[-1:], gain, bias, 1e-5)


def _two_products(p: Values, state: Any, x: Any) -> Any:
    (h,) = state
    inner = torch.relu(torch.addmm(x, h, p["u"]))
    return (torch.tanh(torch.addmm(p["d"], inner, p["v"])),)


def _joined(p: Values, x: Any) -> Any:
    """The products of one step, or of all, as one."""
    return functional.linear(x, p["w"].t(), p["b"])


def _both(p: Values, x: Any) -> Any:
    return functional.linear(x, torch.cat([p["wf"], p["wh"]], 1).t(), torch.cat([p["bf"], p["bh"]]))


_CELLS: dict[str, Any] = {
    "gru": (_joined, _gru),
    "gru-before": (_joined, _gru_before),
    "lstm": (_joined, _lstm),
    "peephole": (_joined, _peephole),
    "minimal-gated": (_both, _minimal_gated),
    "normalised-gru": (lambda p, x: _normal(x @ p["w"], p["w_gain"], p["w_bias"]), _normalised_gru),
    "two-products": (_joined, _two_products),
}
"""What an input becomes that no state has to do with, and a step."""
