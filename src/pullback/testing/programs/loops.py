"""Loops and branches: states that go through the steps of a sequence, choices, what is computed a second time or
called out of the program."""

from __future__ import annotations

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker, Rejected

__all__: list[str] = []

UPDATES = (
    *("np.tanh({c} + {x})", "{c} * 0.5 + {x}", "np.maximum({c}, {x})", "np.where({c} > {x}, {c}, {x} * 0.5)"),
    *(
        "np.sin({c}) * {x}",
        "pb.sigmoid({c}) + {x} * {x}",
        "{c} - {x}",
        "{x}",
        "{c}",
        "np.exp(-{c} * {c}) + {x}",
    ),
)
"""The next state, from the state and a step's input of the same shape."""

OF_ROWS = (
    *("pb.softmax({c} + {x})", "{c} - np.mean({c}) + {x}", "{c}[::-1] + {x}", "np.roll({c}, 1, 0) * {x}"),
    *("({c} + {x}) / np.sqrt(np.mean({c} * {c}, axis=-1, keepdims=True) + 1.0)", "{c} + np.max({x}, axis=0)"),
    "np.logaddexp({c}, np.concatenate([{x}[:1], {c}[:-1]])) - {x}",
    *("pb.numpy.at({c})[1:].add({c}[:-1] * {x}[1:])", "pb.numpy.at({c})[:-1].set({c}[1:] + {x}[:-1])"),
    *("pb.numpy.at({c})[::2].multiply({x}[::2])", "pb.numpy.at({c} + {x})[:1].set({x}[-1:])"),
)
"""The same, where they have an axis at least."""

KEPT = ("{c}", "{x} * {c}", "np.sum({c})", "{c} + 1", "{x}", "np.cos({x})", "np.sum({c} * {x}) - {c}")
"""What is kept of a step."""


def _sequence(m: Maker) -> str:
    """A value whose first axis is short: the steps."""
    if m.chance(0.6):
        try:
            return m.any(lambda n: m.dtype(n) == m.float and m.rank(n) >= 1 and 1 <= m.shape(n)[0] <= 9)
        except Rejected:
            pass
    return m.input((m.pick((1, 2, 3, 5)), *m.some_shape(2)))


def _state(m: Maker, shape: tuple[int, ...]) -> str:
    if m.chance(0.4):
        try:
            return m.any(lambda n: m.dtype(n) == m.float and m.shape(n) == shape)
        except Rejected:
            pass
    return m.input(shape)


def _update(m: Maker, shape: tuple[int, ...], operands: list[str], c: str = "c", x: str = "x") -> str:
    """An expression for the next state; what it uses of the values around is added to ``operands``."""
    if shape and m.chance(0.3):
        return m.pick(OF_ROWS).format(c=c, x=x)
    if shape and 1 <= shape[-1] <= 16 and m.chance(0.3):
        operands += [_state(m, (shape[-1], shape[-1])), _state(m, (shape[-1],))]
        first = len(operands) - 2
        return f"np.tanh({x} @ {{{first}}} + {c} @ {{{first}}} + {{{first + 1}}})"
    text = m.pick(UPDATES).format(c=c, x=x)
    if m.chance(0.4):
        operands.append(_state(m, shape if m.chance() else ()))
        text = f"({text}) * {{{len(operands) - 1}}}"
    return text


CHECKPOINTS = ("'sqrt'", "'recursive'", "2", "(2,)", "(3, 1)")


def _options(m: Maker) -> str:
    """Which way a loop goes, and which steps its pullback runs again."""
    text = ", reverse=True" if m.chance(0.3) else ""
    return f"{text}, checkpoint={m.pick(CHECKPOINTS)}" if m.chance(0.3) else text


@family(3)
def one_state(m: Maker) -> str:
    """The last state, or what is kept of all steps."""
    xs = _sequence(m)
    shape = m.shape(xs)[1:]
    operands = [_state(m, shape), xs]
    text = f"pb.scan(lambda c, x: ({_update(m, shape, operands)}, {m.pick(KEPT).format(c='c', x='x')}), {{0}}, {{1}}"
    return m.step(f"{text}{_options(m)})[{m.below(2)}]", *operands)


@family(2)
def two_states(m: Maker) -> str:
    """States that depend on each other; one may change places with the other."""
    xs = _sequence(m)
    shape = m.shape(xs)[1:]
    operands = [_state(m, shape), _state(m, shape), xs]
    first, second = _update(m, shape, operands, "c[0]"), _update(m, shape, operands, "c[1]", "c[0]")
    if m.chance(0.3):
        first, second = second, first
    kept = m.pick(KEPT).format(c=m.pick(("c[0]", "c[1]")), x="x")
    text = f"pb.scan(lambda c, x: (({first}, {second}), {kept}), ({{0}}, {{1}}), {{2}}{_options(m)})"
    return m.step(text + m.pick(("[0][0]", "[0][1]", "[1]")), *operands)


@family(1)
def nested(m: Maker) -> str:
    """A loop in the body of a loop."""
    xs = _sequence(m)
    shape = m.shape(xs)[1:]
    inner = _sequence(m)
    if m.shape(inner)[1:] != shape:
        inner = m.input((m.pick((1, 2, 3)), *shape))
    operands = [_state(m, shape), xs, inner]
    update = _update(m, shape, operands, "d", "y")
    loop = f"pb.scan(lambda d, y: ({update}, d * y), c + x, {{2}}{_options(m)})"
    body = f"lambda c, x: (lambda r: (r[0], {m.pick(('r[1]', 'c', 'np.sum(r[1]) + x'))}))({loop})"
    return m.step(f"pb.scan({body}, {{0}}, {{1}}{_options(m)})[{m.below(2)}]", *operands)


@family(1)
def counted(m: Maker) -> str:
    """So many turns, or each row by itself."""
    x = m.any(lambda n: m.dtype(n) == m.float and m.rank(n) > 0)
    if m.chance() and m.shape(x)[0] <= 9:
        return m.step(f"pb.map(lambda x: {m.pick(KEPT).format(c='np.sin(x)', x='x')}, {{0}})", x)
    operands = [x, x]
    update = _update(m, m.shape(x), operands, "c", "{1}")
    return m.step(f"pb.fori_loop(0, {m.pick((0, 1, 2, 4))}, lambda i, c: {update}, {{0}})", *operands)


LONG = 120
"""Steps of a loop that is rolled up, if each has two operations."""


@family(1)
def written_out(m: Maker) -> str:
    """A loop of Python, long enough to be rolled up; its first step may be another one."""
    xs = m.input((LONG, *m.some_shape(2)))
    shape = m.shape(xs)[1:]
    operands = [_state(m, shape), xs]
    texts = (*UPDATES[:2], *UPDATES[3:6]) if not shape or m.chance(0.7) else OF_ROWS
    update = m.pick(texts).format(c="c", x="{1}[t]")
    steps = m.pick((f"range({LONG})", f"reversed(range({LONG}))", f"range(1, {LONG})"))
    kept = m.pick(("c", "c", "c * {1}[t]", "np.sum(c)")) if shape else "c"
    text = f"(lambda c: [({kept}, c := {update})[0] for t in {steps}] + [c])({{0}})"
    ending = m.pick(("{}[-1]", "np.stack({}[:-1])", "sum({}[1:-1])", "np.stack({}[-3::-1], -1)"))
    return m.step(ending.format(text), *operands)


QUESTIONS = (
    "np.sum({0}) > 0",
    "np.mean({0} * {0}) < 1",
    "np.sum({0} > 0) > np.sum({1} > 0)",
    "np.max({1}) > 0.5",
)


@family(2)
def branched(m: Maker) -> str:
    """One of two or three ways to go on."""
    x = m.any(lambda n: m.dtype(n) == m.float)
    shape = m.shape(x)
    operands = [x, _state(m, shape)]
    ways = [f"lambda c, x: {_update(m, shape, operands)}" for _ in range(m.pick((2, 2, 3)))]
    if len(ways) == 2:
        return m.step(f"pb.cond({m.pick(QUESTIONS)}, {', '.join(ways)}, {{0}}, {{1}})", *operands)
    return m.step(f"pb.switch(np.sum({{1}} > 0) - 1, ({', '.join(ways)}), {{0}}, {{1}})", *operands)


@family(1)
def branched_in_a_loop(m: Maker) -> str:
    """A choice in each step."""
    xs = _sequence(m)
    shape = m.shape(xs)[1:]
    operands = [_state(m, shape), xs]
    ways = ", ".join(f"lambda c, x: {_update(m, shape, operands)}" for _ in range(2))
    choice = f"pb.cond({m.pick(QUESTIONS).format('c', 'x')}, {ways}, c, x)"
    return m.step(f"pb.scan(lambda c, x: ({choice}, c), {{0}}, {{1}}{_options(m)})[{m.below(2)}]", *operands)


@family(1)
def until(m: Maker) -> str:
    """Turns as long as something holds."""
    x = m.any(lambda n: m.dtype(n) == m.float)
    body = m.pick(("c * 1.5 + 0.25", "np.sin(c) + c", "c - np.mean(c) * 0.5 + 1"))
    text = f"pb.while_loop(lambda c: np.sum(c * c) < 20.0, lambda c: {body}, {{0}}, max_steps={m.pick((1, 3, 5))}"
    text += f", checkpoint={m.pick(CHECKPOINTS)})" if m.chance(0.3) else ")"
    return m.step(text, x)


ALONE = (
    "np.sin(c) + c",
    "c * 1.5 + 0.25",
    "c - np.mean(c) * 0.5",
    "np.maximum(c, 0.5) - 1",
    "c[::-1] * c",
    "c @ c + c",
)
"""The next state of a loop of one vector."""


@family(1)
def until_without_a_bound(m: Maker) -> str:
    """A few numbers, a count and a choice in each turn, perhaps with a loop in it; no derivative goes through."""
    x = m.step("pb.stop_gradient({0})", m.input((m.pick((1, 2, 3, 7)),)))
    ways = ", ".join(f"lambda c: {m.pick(ALONE)}" for _ in range(2))
    question = m.pick(("s[1] % 2 == 0", "np.sum(s[0]) > 1", "s[0][0] > s[0][-1]"))
    turn = f"pb.cond({question}, {ways}, s[0])"
    if m.chance(0.3):
        turn = (
            f"pb.fori_loop(0, {m.pick((1, 2, 3))}, lambda i, c: np.where(i > 0, {m.pick(ALONE)}, c), {turn})"
        )
    ends = f"(s[1] < {m.pick((1, 2, 5, 8))}) & (np.sum(s[0] * s[0]) < 50.0)"
    text = f"pb.while_loop(lambda s: {ends}, lambda s: (np.clip({turn}, -9, 9), s[1] + 1), ({{0}}, 0))"
    return m.step(text + m.pick(("[0]", "[0]", "[1]")), x)


@family(1)
def computed_again(m: Maker) -> str:
    """A function whose values the backward pass computes a second time."""
    x = m.any(lambda n: m.dtype(n) == m.float)
    operands = [x, _state(m, m.shape(x))]
    return m.step(f"pb.checkpoint(lambda c, x: {_update(m, m.shape(x), operands)})({{0}}, {{1}})", *operands)


FUNCTIONS = ("np.sort", "lambda a: np.cumsum(a, -1)", "lambda a: a[..., ::-1] * 2", "np.square")
"""What is called out of the program; all leave axes in front alone."""


def _called(m: Maker, x: str) -> str:
    method = m.pick(("sequential", "expand_dims", "broadcast_all"))
    return f"pb.pure_callback({m.pick(FUNCTIONS)}, {x}, {x}, vmap_method={method!r})"


@family(1)
def called(m: Maker) -> str:
    """A function that nobody looks into, in a loop or a branch or by itself."""
    x = m.any(lambda n: m.dtype(n) == m.float and m.rank(n) >= 1)
    still = m.step("pb.stop_gradient({0})", x)
    shape, way = m.shape(x), m.below(3)
    if way == 0:
        return m.step(_called(m, "{0}"), still)
    operands = [_state(m, shape), still]
    update = _update(m, shape, operands)
    if way == 1:
        choice = f"lambda c, x: {update}, lambda c, x: {_called(m, 'x')}"
        return m.step(f"pb.cond({m.pick(QUESTIONS)}, {choice}, {{0}}, {{1}})", *operands)
    if len(shape) < 2 or not 1 <= shape[0] <= 9:
        raise Rejected("no steps")
    operands = [_state(m, shape[1:]), still]
    update = _update(m, shape[1:], operands)
    body = f"(lambda x: ({update}, c))({_called(m, 'x')})"
    return m.step(f"pb.scan(lambda c, x: {body}, {{0}}, {{1}}{_options(m)})[{m.below(2)}]", *operands)
