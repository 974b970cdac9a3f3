"""Random steps that move elements: shapes, indices, updates; and those that NumPy refuses."""

from __future__ import annotations

import contextlib

import numpy as np

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import INT64, Maker, Rejected

__all__ = ["indices", "refused"]

# ---------------------------------------------------------------------- shapes


@family(3)
def reshaped(m: Maker) -> str:
    x = m.any()
    if m.chance(0.3):
        return m.step(m.pick(("{0}.reshape(-1)", "np.ravel({0})", "{0}.flatten()", "np.reshape({0}, -1)")), x)
    extents: list[int] = []
    left = int(np.size(m.value(x)))
    while left > 1 and len(extents) < 3:
        extents.append(m.pick([d for d in range(1, left + 1) if left % d == 0]))
        left //= extents[-1]
    return m.step(f"{{0}}.reshape({(*extents, left)})", x)


@family(3)
def transposed(m: Maker) -> str:
    x = m.any(lambda name: m.rank(name) > 1)
    axes = list(range(m.rank(x)))
    m.random.shuffle(axes)
    a, b = m.axis(x), m.axis(x)
    texts = (
        "{0}.T",
        f"np.transpose({{0}}, {tuple(axes)})",
        f"np.swapaxes({{0}}, {a}, {b})",
        f"np.moveaxis({{0}}, {a}, {b})",
    )
    return m.step(m.pick(texts), x)


@family(2)
def unit_axes(m: Maker) -> str:
    x = m.any()
    texts = [
        "np.expand_dims({0}, 0)",
        "{0}[..., None]",
        "np.atleast_1d({0})",
        "np.atleast_2d({0})",
        "np.squeeze({0})",
    ]
    if m.rank(x):
        texts += ["{0}[:, None]", f"np.expand_dims({{0}}, {m.below(m.rank(x))})"]
    return m.step(m.pick(texts), x)


@family(3)
def turned(m: Maker) -> str:
    x = m.any(lambda name: m.rank(name) > 0)
    axis = m.axis(x)
    texts = [
        f"np.flip({{0}}, {axis})",
        "np.flip({0})",
        f"np.roll({{0}}, {m.pick((1, -1, 2, 5))}, {axis})",
        f"np.roll({{0}}, {m.pick((1, -3))})",
        "np.flipud({0})",
        f"np.diff({{0}}, axis={axis})",
        f"np.repeat({{0}}, {m.pick((2, 3))}, {axis})",
        f"np.tile({{0}}, {m.pick((2, (2, 1), 3))})",
    ]
    if m.rank(x) > 1:
        k = m.pick((-1, 0, 1))
        texts += [
            f"np.tril({{0}}, {k})",
            f"np.triu({{0}}, {k})",
            f"np.diagonal({{0}}, {k})",
            "np.fliplr({0})",
        ]
        texts += [f"np.trace({{0}}, {k})"]
    if m.rank(x) == 1:
        texts += ["np.diag({0})", "np.diag({0}, 1)"]
    return m.step(m.pick(texts), x)


@family(2)
def padded(m: Maker) -> str:
    x = m.any(lambda name: m.rank(name) > 0)
    widths = tuple((m.below(3), m.below(3)) for _ in range(m.rank(x)))
    value = m.pick(("", "", ", constant_values=1"))
    return m.step(f"np.pad({{0}}, {m.pick((1, widths, widths))}{value})", x)


@family(4)
def joined(m: Maker) -> str:
    x = m.any(lambda name: m.rank(name) > 0)
    if m.chance(0.5):
        others = [m.any(lambda name: m.shape(name) == m.shape(x)) for _ in range(1 + m.below(2))]
        text = m.pick(
            (
                "np.stack([{}], axis=A)",
                "np.concatenate([{}], axis=A)",
                "np.vstack([{}])",
                "np.hstack([{}])",
                "np.column_stack([{}])",
            )
        )
    else:
        axis = m.axis(x) % m.rank(x)

        def alike(name: str) -> bool:
            return all(a == b for k, (a, b) in enumerate(zip(m.shape(name), m.shape(x))) if k != axis)

        others = [m.any(lambda name: m.rank(name) == m.rank(x) and alike(name))]
        return m.step(f"np.concatenate([{{0}}, {{1}}], axis={axis})", *m.random.sample((x, *others), 2))
    operands = m.random.sample((x, *others), 1 + len(others))
    listed = ", ".join(f"{{{k}}}" for k in range(len(operands)))
    return m.step(text.replace("{}", listed).replace("A", str(m.axis(x))), *operands)


@family(2.5)
def parted(m: Maker) -> str:
    """A part of an array that is split, or a function of several of its parts."""
    x = m.any(lambda name: m.rank(name) > 0 and max(m.shape(name)) > 1)
    axis = int(np.argmax(m.shape(x))) if m.chance(0.3) else m.axis(x)
    count = m.pick((2, 3))
    text = f"np.array_split({{0}}, {count}, {axis})"
    if m.shape(x)[axis] % count == 0 and m.chance():
        text = f"np.split({{0}}, {count}, {axis})"
    elif m.chance(0.3):
        text = f"np.split({{0}}, [{m.below(m.shape(x)[axis] + 1)}], {axis})"
    first, last = m.step(f"{text}[0]", x), m.step(f"{text}[-1]", x)
    if m.shape(first) == m.shape(last) and m.chance(0.6):
        return m.step(m.pick(("{0} * {1}", "{0} - {1}", "np.concatenate([{1}, {0}], axis=0)")), first, last)
    return last


@family(1.5)
def broadcast(m: Maker) -> str:
    x = m.any()
    shape = (m.pick(m.extents), *[m.pick(m.extents) if n == 1 else n for n in m.shape(x)])
    return m.step(f"np.broadcast_to({{0}}, {shape})", x)


@family(1)
def made(m: Maker) -> str:
    """With arrays made on the spot."""
    x = m.number(1)
    n = m.shape(x)[-1]
    texts = (
        *(
            f"{{0}} * np.arange({n})",
            f"{{0}} + np.linspace(0, 1, {n})",
            f"{{0}} + np.eye({n}, dtype={{0}}.dtype)",
        ),
        *(
            "np.ones_like({0}) * 2 - {0}",
            "np.zeros_like({0}) * {0}",
            f"np.tri({n}) * {{0}}",
            "np.full_like({0}, 2) + {0}",
            f"np.full(({n},), 0.5, {{0}}.dtype) * {{0}}",
            "np.broadcast_arrays({0}, {0}[:1])[1] + {0}",
        ),
        "np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)[:, :, None] * {0}",
    )
    return m.step(m.pick(texts), x)


# ---------------------------------------------------------------------- indices


def indices(m: Maker, extent: int, shape: tuple[int, ...]) -> str:
    """A traced array of positions on an axis, counted from its end at times, often the same twice."""
    if not extent:
        raise Rejected("no position")
    dtype = m.pick((np.int64, np.int64, np.int32, np.uint8)) if extent < 100 else np.int64
    if m.chance(0.5):
        low = -extent if m.chance(0.4) and dtype != np.uint8 else 0
        return m.input(shape, dtype, low, extent)
    value = m.any(lambda name: m.dtype(name).kind in "iu" and m.rank(name) < 3 and m.dtype(name) != np.uint64)
    found = m.step(f"np.remainder({{0}}, {extent})", value)
    if m.dtype(found) == INT64 and m.chance(0.3):
        return m.step(f"{{0}} - {extent}", found)
    return found


def index(m: Maker, x: str, traced: bool = True) -> tuple[str, tuple[str, ...]]:
    """An index of ``x`` as text, with further operands from ``{1}`` on."""
    parts: list[str] = []
    operands: list[str] = []
    arrays = m.pick((0, 0, 1, 1, 2))
    shape = tuple(m.pick((1, 2, 3, 5)) for _ in range(m.pick((1, 1, 2))))
    for extent in m.shape(x):
        if m.chance(0.08):
            parts.append("None")
        if arrays and extent and m.chance(0.6):
            arrays -= 1
            own = tuple(1 if m.chance(0.2) else n for n in shape[m.below(len(shape)) :])
            if traced and m.chance(0.5) and len(operands) < 2:
                operands.append(indices(m, extent, own))
                parts.append(f"{{{len(operands)}}}")
            elif m.chance(0.2):
                parts.append(repr((m.numbers.random(extent) < 0.5).tolist()))
            else:
                parts.append(repr(m.numbers.integers(-extent, extent, own).tolist()))
        elif m.chance(0.45):
            parts.append(":")
        elif m.chance(0.3) and extent:
            parts.append(str(m.below(extent) - (extent if m.chance(0.3) else 0)))
        else:
            step = m.pick((1, 1, 2, 2, 3, -1, -2))
            ends = sorted(m.below(extent + 1) for _ in range(2))
            start, stop = ends if step > 0 else ends[::-1]
            whole = m.chance(0.4)
            parts.append(f"::{step}" if whole else f"{start}:{stop}:{step}")
    if m.chance(0.2):
        parts[m.below(len(parts)) :] = ["..."]
    if not parts:
        parts = ["..."]
    return ", ".join(parts), tuple(
        name for k, name in enumerate(operands, 1) if f"{{{k}}}" in ", ".join(parts)
    )


def _renumbered(text: str, count: int) -> str:
    """Operand 2 is 1 where the ellipsis has swallowed operand 1."""
    return text if "{1}" in text or "{2}" not in text else text.replace("{2}", "{1}")


@family(6)
def indexed(m: Maker) -> str:
    x = m.any(lambda name: m.rank(name) > 0)
    text, operands = index(m, x)
    return m.step(f"{{0}}[{_renumbered(text, 1)}]", x, *operands)


@family(2)
def taken(m: Maker) -> str:
    x = m.any(lambda name: m.rank(name) > 0)
    axis = m.axis(x)
    places = indices(m, m.shape(x)[axis], tuple(m.pick((1, 2, 3, 7)) for _ in range(m.pick((1, 1, 2)))))
    if m.chance(0.25):
        # NumPy takes the extent off until what is left is in range: for minutes from an unsigned -2.
        beyond = "{1}.astype(np.int64) * 3 - 2"
        return m.step(f"np.take({{0}}, {beyond}, {axis}, mode={m.pick(('clip', 'wrap'))!r})", x, places)
    return m.step(f"np.take({{0}}, {{1}}, {axis})", x, places)


@family(1.5)
def taken_by_turns(m: Maker) -> str:
    """Each element named equally often, or nearly, at places that are known."""
    x = m.number(1)
    axis = m.axis(x)
    extent = m.shape(x)[axis]
    turns, times = m.numbers.permutation(extent * m.pick((1, 2, 3, 9))), m.pick((1, 1, 2))
    kept = turns[: max(1, len(turns) - m.pick((0, 0, 1, 3)))] % max(1, extent)
    shape = (times, -1) if len(kept) % times == 0 else (-1, 1)
    places = kept.reshape(shape if m.chance(0.5) else (-1,))
    return m.step(f"np.take({{0}}, np.array({places.tolist()}, np.int64), {axis})", x)


@family(1.5)
def taken_along(m: Maker) -> str:
    x = m.number(1)
    axis = m.axis(x)
    if m.chance():
        places = m.step(f"np.argmax({{0}}, axis={axis}, keepdims=True)", x)
    else:
        shape = list(m.shape(x))
        extent, shape[axis] = shape[axis], m.pick((1, 2, 3))
        places = m.input(shape, np.int64, 0, max(1, extent))
    return m.step(f"np.take_along_axis({{0}}, {{1}}, {axis})", x, places)


@family(6)
def updated(m: Maker) -> str:
    x = m.number(1)
    text, operands = index(m, x)
    text = _renumbered(text, 1)
    part = m.step(f"{{0}}[{text}]", x, *operands)
    how = m.pick(("add", "add", "add", "set", "set", "multiply", "max", "min"))
    if m.chance(0.2):
        number = m.pick((0, 1, 2))
        return m.step(f"pb.numpy.at({{0}})[{text}].{how}({number})", x, *operands)
    shape = m.shape(part)
    if m.chance(0.3):
        shape = tuple(1 if m.chance(0.5) else n for n in shape)[m.below(len(shape) + 1) if shape else 0 :]
    value = (
        m.any(lambda n: m.shape(n) == shape and m.dtype(n) == m.dtype(x))
        if m.chance(0.4)
        else m.input(shape, m.dtype(x))
    )
    return m.step(f"pb.numpy.at({{0}})[{text}].{how}({{{1 + len(operands)}}})", x, *operands, value)


@family(2)
def inside(m: Maker) -> str:
    """Slices without gaps that name much of an array, which becomes what its neighbours or others are there."""
    x = m.number(1)
    text = ", ".join(m.pick((":", "1:", ":-1", "1:-1", "::-1", "-2::-1")) for _ in m.shape(x))
    part = m.step(f"{{0}}[{text}]", x)
    how = m.pick(("add", "set", "set", "multiply", "max", "min"))
    value = (
        m.step(f"{{0}}{m.pick(('[::-1]', ' * 2', '[:1]'))}", part)
        if m.chance()
        else m.input(m.shape(part), m.dtype(x))
    )
    return m.step(f"pb.numpy.at({{0}})[{text}].{how}({{1}})", x, value)


@family(1)
def labelled(m: Maker) -> str:
    labels = m.any(lambda name: m.dtype(name).kind in "iu" and m.rank(name) < 3)
    return m.step(f"pb.one_hot({{0}}, {m.pick((2, 3, 5))})", labels)


# ---------------------------------------------------------------------- errors


def refused(m: Maker) -> None:
    """A last step that NumPy refuses: shapes that do not fit, axes and places that are not there."""
    m.refused = None
    while m.refused is None:
        far = m.pick((3, 7, 40))
        texts = (
            *(
                "{0} + {1}",
                "{0} @ {1}",
                "np.where({0} > 0, {0}, {1})",
                "np.maximum({1}, {0})",
                "np.inner({0}, {1})",
            ),
            *("np.concatenate([{0}, {1}], axis=1)", "np.stack([{0}, {1}])", "np.vstack([{0}, {1}])"),
            *(
                f"{{0}}.reshape({far}, -1)",
                f"np.sum({{0}}, axis={far})",
                f"np.max({{0}}, axis=-{far})",
                f"{{0}}[{far}]",
            ),
            *(
                "np.transpose({0}, (0, 0))",
                "np.split({0}, 7)",
                "np.einsum('ij,jk', {0}, {1})",
                "np.squeeze({0}, 0)",
            ),
            *(
                f"np.broadcast_to({{0}}, ({far}, 2))",
                "np.max({0}[..., :0])",
                "np.argmin({0}[:0])",
                "{0}[None, 0, 0, 0, 0]",
            ),
            *(
                f"np.take({{0}}, [{far}], axis=0)",
                f"{{0}}[[0, -{far}]]",
                "{0}[[True, False, True]]",
                "np.swapaxes({0}, 0, 4)",
            ),
            *(
                "np.dot({0}, {1})",
                "np.tensordot({0}, {1}, 2)",
                "pb.numpy.at({0})[0].add({1})",
                f"pb.numpy.at({{0}})[{far}].set(1)",
            ),
            *("np.tril({0}[0, 0])", "~{0}", "{0} & {1}", "np.diagonal({0})", "np.moveaxis({0}, 0, 3)"),
            *(
                f"{{0}}[np.clip(np.nan_to_num({{1}}), {far}, {far}).astype(np.int64)]",
                "np.expand_dims({0}, 9)",
                "np.flip({0}, 5)",
            ),
        )
        step = m.pick(texts)
        if m.values and not ("{1}" in step and len(m.values) < 2):
            with contextlib.suppress(Rejected):
                m.step(step, *m.random.sample(list(m.values), 2 if "{1}" in step else 1))
    m.steps.append(m.refused)
