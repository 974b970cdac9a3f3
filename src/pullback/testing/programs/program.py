"""A random program as plain data: inputs, steps and what is asked of them; it runs in NumPy and prints as Python.

>>> x = Input("x0", np.array([1.0, 2.0]))
>>> program = Program((x,), (Step("v0", "np.sum({0} * {0})", ("x0",)),), ("v0",), Asked("gradient", "sum"))
>>> float(program.numpy()[0])
5.0
>>> pullback.trace(program.function(), *program.arguments()).evaluate(program.arguments())
(array([2., 4.]),)
"""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any

import numpy as np

import pullback
from pullback.compiler.target import Processor
from pullback.testing.programs import reference
from pullback.testing.programs.processors import with_cores, with_small_caches, with_vectors

__all__ = ["LAYOUTS", "Asked", "Input", "Program", "Step", "step_value"]

LAYOUTS = {
    "plain": "{0}",
    "every second": "np.repeat({0}, 2, -1)[..., ::2]",
    "backwards": "np.flip(np.flip({0}).copy())",
    "column-major": "np.asfortranarray({0})",
    "byte-swapped": "{0}.astype({0}.dtype.newbyteorder())",
    "read-only": "np.broadcast_to({0}, {0}.shape)",
    "unaligned": "np.frombuffer(b'_' + {0}.tobytes(), {0}.dtype, offset=1).reshape({0}.shape)",
    "number": "{0}.item()",
}
"""How an array lies in memory when it is given to a program: the expression that lays it out so."""

LOSSES = {
    "sum": "np.sum({0})",
    "cube": "np.sum({0} ** 3)",
    "weighted": "np.sum({0} * np.cos(np.arange({0}.size, dtype={0}.dtype)).reshape({0}.shape))",
}
"""What a gradient is taken of: each float output made a number, then added."""

SIGNLESS = re.compile(
    "xlogy|linalg|entr|max|min|clip|relu|hard_|ptp|norm|einsum|dot|inner|@|matmul|conv|quantile|percentile|fft|reduceat|[0-9]j"
)
"""What gives zeros of either sign in NumPy, by the lengths of its vectors or by where its sums begin."""

_COUNTED = re.compile(r"np\.cos\(np\.arange\(([^()]*)\)\)")
"""The weights of a loss; for any size they are numbers that NumPy and compiled code have the same bits of."""

HEADER = "import numpy as np\nimport pullback as pb\nfrom numpy import inf, nan\n"


@dataclass(frozen=True)
class Input:
    """An argument: its name, its values, how they lie in memory, and whether it has an example in each row."""

    name: str
    values: np.ndarray
    layout: str = "plain"
    batched: bool = False

    def given(self) -> Any:
        """The values laid out as they are given to the program, anew for each call."""
        return eval(LAYOUTS[self.layout].format("x"), {"np": np, "x": self.values.copy()})

    def example(self, number: int) -> Any:
        """The values of one example, or the only ones there are."""
        value = self.values[number] if self.batched else self.values
        return value.item() if self.layout == "number" else value

    def source(self) -> str:
        """The statements that make it."""
        values, dtype = self.values, f"np.{self.values.dtype.name}"
        made = (
            f"np.array({values.tolist()}, {dtype})" if values.size else f"np.zeros({values.shape}, {dtype})"
        )
        lines = [f"{self.name} = {made}"]
        if self.layout != "plain":
            lines.append(f"{self.name} = {LAYOUTS[self.layout].format(self.name)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Step:
    """One assignment: ``name = text`` with the names of the operands in the places ``{0}``, ``{1}``, …"""

    name: str
    text: str
    operands: tuple[str, ...]

    @property
    def expression(self) -> str:
        """The right-hand side."""
        return self.text.format(*self.operands)


@dataclass(frozen=True)
class Asked:
    """What is computed of a program."""

    form: str = "value"
    """``value``, ``gradient``, ``both`` or ``curvature``: the gradient's derivative along a direction."""
    loss: str = "weighted"
    donated: tuple[int, ...] = ()
    """Arguments that give their memory to the results."""
    fails: bool = False
    """Whether NumPy refuses the program: so must we."""
    small: bool = False
    """Whether it is compiled as if caches held next to nothing."""
    vectors: int = 64
    """The bytes of the vectors that it is compiled for, at most."""
    cores: int = 2
    """The cores among which work is dealt out, which shows in no result."""

    def processor(self) -> Processor:
        """What it is compiled for."""
        processor = with_cores(with_vectors(Processor.host(), self.vectors), self.cores)
        return with_small_caches(processor) if self.small else processor

    def __str__(self) -> str:
        return (
            self.form
            + (", donated" if self.donated else "")
            + (", refused" if self.fails else "")
            + (", small caches" if self.small else "")
            + (f", vectors of {self.vectors} bytes" if self.vectors < 64 else "")
            + (f", {self.cores} cores" if self.cores > 2 else "")
        )


@dataclass(frozen=True)
class Program:
    """Inputs, steps, and the names of what is returned."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    asked: Asked = field(default_factory=Asked)

    @property
    def batch(self) -> int | None:
        """How many examples there are, or ``None`` without a batch."""
        return next((len(x.values) for x in self.inputs if x.batched), None)

    @property
    def kind(self) -> str:
        """What is asked, in words."""
        return ("vmap of " if self.batch is not None else "") + str(self.asked)

    def arguments(self) -> list[Any]:
        """The inputs as they are given, laid out anew."""
        return [x.given() for x in self.inputs]

    def examples(self) -> Iterator[dict[str, Any]]:
        """The inputs of each example, by name."""
        for number in range(1 if self.batch is None else self.batch):
            yield {x.name: x.example(number) for x in self.inputs}

    def numpy(self, random: np.random.Generator | None = None) -> list[Any]:
        """The outputs by NumPy, those of a batch stacked; ``random`` chooses what NumPy leaves open."""
        found = [self.outputs_of(given, random) for given in self.examples()]
        return found[0] if self.batch is None else [np.stack(each) for each in zip(*found)]

    def outputs_of(self, given: Mapping[str, Any], random: np.random.Generator | None = None) -> list[Any]:
        """The outputs by NumPy for these inputs."""
        values = self.values_of(given, random=random)
        return [values[name] for name in self.outputs]

    def values_of(
        self,
        given: Mapping[str, Any],
        kept: dict[str, Any] | None = None,
        random: np.random.Generator | None = None,
    ) -> dict[str, Any]:
        """All values by NumPy for these inputs, by name.

        ``kept`` holds what passes through ``stop_gradient``: filled when first run, and used from then on.
        """
        values = dict(given)
        for step in self.steps:
            if kept is not None and "stop_gradient" in step.text:
                values[step.name] = kept.setdefault(step.name, values[step.operands[0]])
            else:
                values[step.name] = step_value(step, values, random)
        return values

    def differentiable(self) -> list[int]:
        """The inputs with derivatives, by number."""
        return [k for k, x in enumerate(self.inputs) if x.values.dtype.kind == "f"]

    def floats(self) -> list[str]:
        """The outputs with derivatives."""
        first = self.outputs_of(next(self.examples()))
        return [name for name, value in zip(self.outputs, first) if np.asarray(value).dtype.kind == "f"]

    def function(self, any_size: bool = False, inside: bool = False) -> Callable[..., Any]:
        """What is asked, as a function of the inputs; with ranges that may have ``any_size``.

        The steps are a compiled function ``inside`` of the transformations that are asked for.
        """
        # The lines stand where tracebacks and errors look for them.
        text = HEADER + self.definition(inside)
        if any_size:
            text = _COUNTED.sub(r"(pb.numpy.arange(\1) % 5 - 2)", text).replace(
                " np.arange(", " pb.numpy.arange("
            )
        name = f"<program {hash(text):x}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {}
        exec(compile(text, name, "exec"), namespace)
        return namespace["asked"]  # type: ignore[no-any-return]

    def compiled(self) -> Callable[..., Any]:
        """The function compiled."""
        return pullback.jit(self.function(), donate_argnums=self.asked.donated)  # type: ignore[no-any-return]

    def definition(self, inside: bool = False) -> str:
        """The function as Python."""
        names = ", ".join(x.name for x in self.inputs)
        lines = [f"def program({names}):"]
        lines += [f"    {step.name} = {step.expression}" for step in self.steps]
        lines += [f"    return {', '.join(self.outputs)},", ""]
        if inside:
            lines += ["program = pb.jit(program)", ""]
        if self.asked.form != "value":
            lines += self._gradient(names)
        asked = {
            "value": "program",
            "gradient": "gradient",
            "both": f"lambda {names}: (program({names}), gradient({names}))",
            "curvature": f"pb.grad(slope, {tuple(self.differentiable())})",
        }[self.asked.form]
        lines.append(f"asked = {asked}")
        if self.batch is not None:
            lines.append(f"asked = pb.vmap(asked, {tuple(0 if x.batched else None for x in self.inputs)})")
        return "\n".join(lines) + "\n"

    def _gradient(self, names: str) -> list[str]:
        terms = [LOSSES[self.asked.loss].format(name) for name in self.floats()]
        lines = [f"def loss({names}):", f"    {', '.join(self.outputs)}, = program({names})"]
        lines += [f"    return {' + '.join(terms)}", ""]
        lines += [f"gradient = pb.grad(loss, {tuple(self.differentiable())})", ""]
        if self.asked.form == "curvature":
            slope = LOSSES["weighted"].format("g")
            lines += [f"def slope({names}):", f"    return sum({slope} for g in gradient({names}))", ""]
        return lines

    def source(self) -> str:
        """The whole program as Python that shows what it computes uncompiled and compiled."""
        names = ", ".join(x.name for x in self.inputs)
        donated = f", donate_argnums={self.asked.donated}" if self.asked.donated else ""
        made = "\n".join(x.source() for x in self.inputs)
        shown = f"print(asked({names}))\nprint(pb.jit(asked{donated})({names}))\n"
        if self.asked.form in ("gradient", "curvature") or self.batch is not None:
            shown = f"print(pb.trace(asked, {names}).evaluate([{names}]))\n" + shown.split("\n")[1] + "\n"
        if (self.asked.small, self.asked.vectors, self.asked.cores) != (False, 64, 2):
            imported = "from pullback.testing.programs.processors import compiled_for\n"
            imported += "from pullback.testing.programs.program import Asked\n\n"
            chosen = f"small={self.asked.small}, vectors={self.asked.vectors}, cores={self.asked.cores}"
            processor = f"Asked({chosen}).processor()"
            shown = f"{imported}with compiled_for({processor}):\n{indent(shown, '    ')}"
        return f"{HEADER}\n{made}\n\n{self.definition()}\n{shown}"

    def without_unused(self) -> Program:
        """The program without steps and inputs that no output needs."""
        needed = set(self.outputs)
        steps = []
        for step in reversed(self.steps):
            if step.name in needed:
                steps.append(step)
                needed.update(step.operands)
        kept = [k for k, x in enumerate(self.inputs) if x.name in needed]
        donated = tuple(kept.index(k) for k in self.asked.donated if k in kept)
        return replace(
            self,
            inputs=tuple(self.inputs[k] for k in kept),
            steps=tuple(reversed(steps)),
            asked=replace(self.asked, donated=donated),
        )


def step_value(step: Step, values: Mapping[str, Any], random: np.random.Generator | None = None) -> Any:
    """A step by NumPy.

    With ``random`` what NumPy leaves open is chosen: the signs of some zeros (``SIGNLESS``), and how rough an
    ``einsum`` is, whose factors are all multiplied before the terms are added: they are moved by some units in the last
    place.

    What NumPy computes in ``float16`` for 8-bit integers and booleans is computed in ``float32``, as everywhere in
    the library.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operands = [values[name] for name in step.operands]
        if random is not None and "einsum" in step.text:
            operands = [
                np.asarray(x * (1 + np.finfo(x.dtype).eps * random.integers(-4, 5, x.shape)), x.dtype)
                for x in operands
            ]
        value = _value(step, operands)
        if getattr(value, "dtype", None) == np.float16:
            value = _value(step, [_as_float32(values[name]) for name in step.operands])
        if random is not None and SIGNLESS.search(step.text) and np.asarray(value).dtype.kind == "f":
            signs = random.choice((1, -1), np.shape(value))
            value = np.where(value == 0, np.asarray(signs * 0.0, value.dtype), value)
    return value


def _value(step: Step, operands: Sequence[Any]) -> Any:
    names = [f"operand{k}" for k in range(len(operands))]
    namespace = {"np": reference.np_as_it_says, "pb": reference, "nan": np.nan, "inf": np.inf}
    return eval(step.text.format(*names), {**namespace, **dict(zip(names, operands))})


def _as_float32(value: Any) -> Any:
    small = isinstance(value, (np.ndarray, np.generic)) and value.dtype.itemsize == 1
    return value.astype(np.float32) if small else value
