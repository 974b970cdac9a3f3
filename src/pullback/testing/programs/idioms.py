"""What users write in several lines, and compilers get wrong: chains of row reductions, distances, ties, networks."""

from __future__ import annotations

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import Maker
from pullback.testing.programs.places import indices
from pullback.testing.programs.values import ACTIVATIONS

__all__: list[str] = []

# ---------------------------------------------------------------------- rows


def standardised(m: Maker, x: str, axis: int) -> str:
    """A layer normalisation, written in one of several ways."""
    keep = f"axis={axis}, keepdims=True"
    if m.chance(0.3):
        return m.step(f"({{0}} - {{0}}.mean({keep})) / np.sqrt({{0}}.var({keep}) + 1e-5)", x)
    centred = m.step("{0} - {1}", x, m.step(f"np.mean({{0}}, {keep})", x))
    spread = m.step(m.pick((f"np.mean({{0}} * {{0}}, {keep})", f"np.mean({{0}} ** 2, {keep})")), centred)
    if m.chance(0.3):
        spread = m.step(f"np.var({{0}}, {keep})", x)
    return m.step(m.pick(("{0} / np.sqrt({1} + 1e-5)", "{0} * ({1} + 0.01) ** -0.5")), centred, spread)


def rms(m: Maker, x: str, axis: int) -> str:
    return m.step(f"{{0}} / np.sqrt(np.mean({{0}} * {{0}}, axis={axis}, keepdims=True) + 1e-6)", x)


def softmaxed(m: Maker, x: str, axis: int) -> str:
    """A softmax by hand, its maximum left out or not."""
    keep = f"axis={axis}, keepdims=True"
    shifted = m.step("{0} - {1}", x, m.step(f"np.max({{0}}, {keep})", x))
    if m.chance(0.2):
        return m.step(f"{{0}} - np.log(np.sum(np.exp({{0}}), {keep}))", shifted)
    powers = m.step("np.exp({0})", shifted)
    return m.step("{0} / {1}", powers, m.step(f"np.sum({{0}}, {keep})", powers))


def deviated(m: Maker, x: str, axis: int) -> str:
    keep = f"axis={axis}, keepdims=True"
    name = m.pick(("std", "var", "max", "min", "mean", "sum", "ptp", "prod"))
    reduced = m.step(f"np.{name}({{0}}, {keep})", x)
    return m.step(m.pick(("{0} - {1}", "{0} / (1 + {1} * {1})", "{0} * {1}", "{0} + {1}")), x, reduced)


def unit(m: Maker, x: str, axis: int) -> str:
    return m.step(f"{{0}} / (np.linalg.norm({{0}}, axis={axis}, keepdims=True) + 1e-3)", x)


ROWS = (standardised, standardised, rms, softmaxed, softmaxed, deviated, deviated, unit)


LONG_ROWS = (
    *("np.sum({0}, axis=1)", "np.sum({0} * {1}, axis=1)", "np.max({0} * {0}, axis=1)", "np.min({0}, axis=1)"),
    *("np.sum({0}, axis=1) + {1}[:, 0]", "np.sum(1 - {0} * {0}, axis=1) * 2", "np.mean({0} - {1}, axis=1)"),
    *("{1} * np.sum({0}, axis=1, keepdims=True)", "{0} / (1 + np.sum({0} * {0}, axis=1, keepdims=True))"),
)


@family(2)
def long_rows(m: Maker) -> str:
    """Several sums over rows that registers do not hold, of a costly function that is stored now and then."""
    x = m.input((m.pick((1, 3, 17)), m.pick((129, 200, 300))))
    made = m.step(
        m.pick(("np.tanh({0})", "np.exp(-{0} * {0})", "{0} / (1 + {0} * {0})", "np.arctan({0})")), x
    )
    for line in (m.pick(LONG_ROWS), m.pick(LONG_ROWS), m.pick(LONG_ROWS)):
        last = m.step(line, made, x)
    return made if m.chance(0.3) else last


@family(1)
def few_rows(m: Maker) -> str:
    """Products of some rows with a matrix: as it lies or across, of long rows, and one with work to share out."""
    if m.chance(0.2):
        rows, (depth, many) = m.pick((8, 9, 12)), m.pick(((400, 128), (300, 165)))
        x, w = m.input((rows, depth)), m.input((depth, many), most=depth * many)
        return m.step(m.pick(("{0} @ {1}", "np.tanh({0} @ {1})")), x, w)
    rows, (many, depth) = m.pick((3, 9, 12, 16)), m.pick(((20, 290), (33, 170), (36, 160), (64, 90)))
    x, w = m.input((rows, depth)), m.input((many, depth))
    made = m.step(m.pick(("{0} @ {1}.T", "{1} @ {0}.T", "np.tanh({0}) @ {1}.T")), x, w)
    return m.step("np.tanh({0} + {1}[0, 0])", made, w) if m.chance(0.3) else made


@family(8)
def chain_of_rows(m: Maker) -> str:
    """Normalisations, softmaxes and reductions one behind the other, with functions between."""
    x = m.floats(1)
    axis = m.axis(x)
    for _ in range(m.pick((1, 2, 2, 3, 3, 4))):
        if m.chance(0.5):
            x = m.step(f"pb.{m.pick(ACTIVATIONS)}({{0}})", x)
        if m.chance(0.2):
            axis = m.axis(x)
        x = m.pick(ROWS)(m, x, axis)
    if m.chance(0.3):
        return m.step(f"np.{m.pick(('std', 'var', 'sum', 'max', 'mean'))}({{0}}, axis={axis})", x)
    return x


@family(2)
def extremes_of_short_rows(m: Maker) -> str:
    """What is chosen by comparing values with their own row's extreme, where rows are written out."""
    x = m.input((m.pick((8, 17, 40, 90)), m.pick((2, 3, 4, 5))))
    inner = x
    for _ in range(m.pick((1, 1, 2))):
        inner = m.step(f"pb.{m.pick(ACTIVATIONS)}({{0}})", inner) if m.chance(0.7) else inner
        inner = m.pick((deviated, deviated, standardised, softmaxed))(m, inner, 1)
    extreme = m.step(f"np.{m.pick(('max', 'min'))}({{0}}, axis=1, keepdims=True)", inner)
    chosen = m.step(
        "np.sum({0} * {1}[:, 1:2], axis=1, keepdims=True)", m.pick((x, inner)), m.pick((x, inner))
    )
    return m.step("np.where({0} == {1}, {2}, {0})", inner, extreme, chosen)


@family(1.5)
def narrow(m: Maker) -> str:
    """A layer of few units and many rows, whose functions would leave most of a vector empty."""
    rows, width, units = m.pick((40, 70, 90)), m.pick((2, 3, 5)), m.pick((1, 2, 3, 4, 6))
    made = m.step("{0} @ {1}", m.input((rows, width)), m.input((width, units)))
    if m.chance(0.3):
        made = m.step("{0} + {1}", made, m.input((units,)))
    found = m.step(f"pb.{m.pick(ACTIVATIONS)}({{0}})", made)
    return (
        m.step(f"np.{m.pick(('sum', 'max', 'mean'))}({{0}}, axis={m.axis(found)})", found)
        if m.chance(0.3)
        else found
    )


@family(4)
def against_own_reduction(m: Maker) -> str:
    """Ties: where a value equals its maximum, how many do, and the like."""
    x = m.number(1)
    if m.chance(0.4):
        x = m.step(m.pick(("np.exp({0})", "{0} * 0.1", "np.sin({0})", "{0} * {0}", "np.abs({0})")), x)
    name = m.pick(("max", "min", "max", "min", "mean", "sum"))
    reduced = m.step(f"np.{name}({{0}}, axis={m.axis(x)}, keepdims=True)", x)
    found = m.step(f"{{0}} {m.pick(('==', '==', '>=', '<=', '<', '!='))} {{1}}", x, reduced)
    text = m.pick(
        (
            *(
                "np.where({0}, {1}, 0)",
                "np.where({0}, 0, {1})",
                "{0} * {1}",
                "{1} - np.sum({0}, axis=-1, keepdims=True)",
            ),
            "np.sum(np.where({0}, {1}, 0), axis=-1) / np.sum({0}, axis=-1)",
        )
    )
    return m.step(text, found, x)


# ---------------------------------------------------------------------- distances


@family(5)
def distances(m: Maker) -> str:
    """A table of distances of points and centres, and what is done with it."""
    features = m.pick((1, 2, 3, 3, 8))
    points, centres = m.pick((2, 5, 9, 17, 33)), m.pick((1, 2, 3, 5, 10))
    if m.chance():
        x = m.input((points, 1, features))
        c = m.input((centres, features))
        difference = m.step("{0} - {1}", x, c)
    else:
        x = m.any(lambda n: m.dtype(n).kind == "f" and m.rank(n) == 2 and m.shape(n)[0] * m.shape(n)[0] < 900)
        c = x if m.chance(0.4) else m.input((centres, m.shape(x)[1]))
        difference = m.step("{0}[:, None, :] - {1}[None, :, :]", x, c)
    table = m.step(
        m.pick(
            (
                "np.sum({0} ** 2, axis=-1)",
                "np.sum(np.abs({0}), axis=-1)",
                "np.einsum('ijk,ijk->ij', {0}, {0})",
            )
        ),
        difference,
    )
    ending = m.below(7)
    if ending == 0:
        return m.step("np.sum(np.min({0}, axis=1))", table)
    if ending == 1:
        return m.step("np.min({0}, axis=1)", table)
    if ending == 2:
        return m.step("pb.numpy.logsumexp(-0.5 * {0}, axis=1)", table)
    if ending == 3:
        return softmaxed(m, m.step("-{0}", table), m.pick((0, 1)))
    if ending == 4:
        return m.step("np.take_along_axis({0}, np.argmin({0}, axis=1)[:, None], axis=1)", table)
    if ending == 5:
        return m.step("np.exp(-{0}) @ {1}", table, m.input((m.shape(table)[1], 2)))
    return m.step("np.sqrt({0} + 1e-3)", table)


@family(2)
def mixture(m: Maker) -> str:
    """A Gaussian mixture's log-likelihood, its log-sum-exp by hand."""
    points, parts, features = m.pick((3, 9, 17)), m.pick((1, 2, 4)), m.pick((1, 2, 3))
    x, means, scales = m.input((points, features)), m.input((parts, features)), m.input((parts, features))
    z = m.step("({0}[:, None] - {1}) * np.exp(-{2})", x, means, scales)
    logs = m.step("-0.5 * np.sum({0} * {0}, axis=-1) - np.sum({1}, axis=-1)", z, scales)
    most = m.step("np.max({0}, axis=1, keepdims=True)", logs)
    total = m.step("np.log(np.sum(np.exp({0} - {1}), axis=1)) + {1}[:, 0]", logs, most)
    return m.step("np.mean({0})", total) if m.chance() else total


@family(2)
def small_matrices(m: Maker) -> str:
    """Many matrices of two or three rows, element by element: their gradients are boxes in zeros."""
    size = m.pick((2, 3, 3))
    x = m.input((m.pick((3, 17, 40, 300)), size, size))
    if size == 2:
        found = m.step("{0}[:, 0, 0] * {0}[:, 1, 1] - {0}[:, 0, 1] * {0}[:, 1, 0]", x)
    elif m.chance():
        found = m.step("np.linalg.det({0})", x)
    else:
        minors = [m.step(f"{{0}}[:, 1, {j}] * {{0}}[:, 2, {k}]", x) for j, k in ((1, 2), (2, 0), (0, 1))]
        found = m.step("{0}[:, 0, 0] * {1} + {0}[:, 0, 1] * {2} - {0}[:, 0, 2] * {3}", x, *minors)
    if m.chance(0.3):
        trace = m.step("{0}[:, 0, 0] + {0}[:, 1, 1]", x)
        return m.step("np.stack([np.stack([{0}, {1}], -1), np.stack([-{1}, {0}], -1)], -2)", found, trace)
    return m.step("np.sum({0} ** 2)", found) if m.chance() else found


# ---------------------------------------------------------------------- networks


@family(4)
def layers(m: Maker) -> str:
    """Dense layers one behind the other, normalised or not, with a residual path or not."""
    x = (
        m.any(lambda n: m.dtype(n) == m.float and m.rank(n) == 2)
        if m.chance(0.6)
        else m.input((m.pick(m.extents), m.pick(m.extents)))
    )
    for _ in range(m.pick((1, 2, 2))):
        wide = m.shape(x)[1]
        out = wide if m.chance() else m.pick(m.extents)
        y = m.step("{0} @ {1}", x, m.input((wide, out)))
        if m.chance(0.4):
            y = m.step("{0} + {1}", y, m.input((out,)))
        y = m.step(f"pb.{m.pick(ACTIVATIONS)}({{0}})" if m.chance(0.7) else "np.tanh({0})", y)
        if m.chance(0.3):
            y = m.pick(ROWS)(m, y, m.pick((-1, 0)))
        x = m.step("{0} + {1}", x, y) if out == wide and m.chance(0.4) else y
    return x


@family(1)
def layer_of_sequences(m: Maker) -> str:
    """A dense layer of several sequences, with weights that small caches do not hold, as they lie or turned round."""
    inputs, outputs = m.pick((8, 16, 17)), m.pick((33, 40, 64))
    x = m.input((m.pick((3, 4)), m.pick((7, 8)), inputs))
    turned = m.chance()
    weight = m.input((outputs, inputs) if turned else (inputs, outputs))
    y = m.step("{0} @ {1}.T" if turned else "{0} @ {1}", x, weight)
    return m.step(f"pb.{m.pick(ACTIVATIONS)}({{0}})", y) if m.chance() else y


@family(3)
def attention(m: Maker) -> str:
    """Queries, keys and values; masked or not; of one head or several."""
    tokens, width = m.pick((1, 3, 5, 8, 17)), m.pick((2, 4, 8))
    x = (
        m.input((tokens, width))
        if m.chance(0.5)
        else m.any(lambda n: m.dtype(n).kind == "f" and m.rank(n) == 2)
    )
    width = m.shape(x)[1]
    q = m.step("{0} @ {1}", x, m.input((width, width)))
    k = m.step("{0} @ {1}", x, m.input((width, width))) if m.chance() else x
    scores = m.step(f"{{0}} @ {{1}}.T / {max(1, width) ** 0.5!r}", q, k)
    if m.chance(0.4):
        tokens = m.shape(x)[0]
        scores = m.step(f"np.where(np.tri({tokens}, dtype=bool), {{0}}, {m.pick(('-inf', '-1e9'))})", scores)
    weights = m.step("pb.softmax({0})", scores) if m.chance() else softmaxed(m, scores, -1)
    return m.step("{0} @ {1}", weights, x)


@family(2)
def embedding(m: Maker) -> str:
    """Rows of a table, averaged, normalised or scored."""
    rows, width = m.pick((2, 5, 17, 100)), m.pick((1, 3, 4, 8, 16))
    table = m.input((rows, width))
    shape = tuple(m.pick((1, 2, 5, 9)) for _ in range(m.pick((1, 2, 2))))
    found = m.step("{0}[{1}]", table, indices(m, rows, shape))
    ending = m.below(4)
    if ending == 0:
        return m.step(f"np.mean({{0}}, axis={m.axis(found)})", found)
    if ending == 1:
        return m.pick(ROWS)(m, found, -1)
    if ending == 2:
        return m.step("{0} @ {1}.T", found, table)
    return found


@family(2)
def matched(m: Maker) -> str:
    """Rows of two tables, each pair summed in some way, as a factorisation and a skip-gram do."""
    width, count = m.pick((3, 7, 8, 16, 20, 33)), m.pick((1, 4, 9, 18, 35))
    sides = []
    for rows in (m.pick((2, 9, 70)), m.pick((2, 9, 70))):
        sides.append(m.step("{0}[{1}]", m.input((rows, width)), indices(m, rows, (count,))))
    pair = m.step(m.pick(("{0} * {1}", "{0} * {1}", "np.abs({0} - {1})", "np.maximum({0}, {1})")), *sides)
    return m.step(f"np.{m.pick(('sum', 'sum', 'max', 'mean'))}({{0}}, axis=1)", pair)


@family(2)
def words(m: Maker) -> str:
    """Rows of a table that are named many times, times a matrix, each alone or in windows along a text."""
    rows, width, columns = m.pick((2, 9, 70, 200)), m.pick((8, 17, 20)), m.pick((1, 3, 8))
    texts, length = m.pick((1, 2, 4)), m.pick((9, 12, 20))
    table = m.input((rows, width))
    places = m.input((texts, length), m.pick(("int64", "int32", "uint8")), 0, m.pick((2, rows)))
    found = m.step("{0}[{1}]", table, places)
    if m.chance():
        turned = m.step("{0}.transpose(1, 0, 2)", found) if m.chance(0.3) else found
        made = m.step("{0} @ {1}", turned, m.input((width, columns)))
    else:
        window = m.input((columns, width, m.pick((1, 2, 3))))
        made = m.step('pb.nn.conv({0}, {1}, channels="last")', found, window)
    made = m.step(f"pb.{m.pick(ACTIVATIONS)}({{0}})", made) if m.chance(0.7) else made
    if m.chance(0.4):
        return m.step(f"pb.nn.max_pool({{0}}, {m.pick((2, 3))}, channels='last')", made)
    return m.step(f"np.{m.pick(('max', 'mean', 'sum'))}({{0}}, axis=1)", made) if m.chance() else made


@family(1)
def stepped(m: Maker) -> str:
    """Products with every other element of an array, from each of the first ones: a transposed convolution's."""
    rows, columns = m.pick((1, 3, 17)), m.pick((2, 5, 16, 20))
    high, wide = m.pick((1, 2, 5)), m.pick((2, 4, 9))
    down, across = m.pick(((2, 2), (1, 2), (1, 3), (2, 1)))
    x, y = m.input((rows, high, wide)), m.input((columns, high * down, wide * across))
    parts = [
        m.step(f"np.einsum('ihw,jhw->ij', {{0}}, {{1}}[:, {u}::{down}, {v}::{across}])", x, y)
        for u in range(down)
        for v in range(across)
    ]
    made = m.step(m.pick((" + ", " * ")).join(f"{{{k}}}" for k in range(len(parts))), *parts)
    if m.chance():
        return made
    other = m.step(f"np.einsum('ihw,jhw->ij', {{0}}, {{1}}[::2, ::{down}, ::{across}])", x, y)
    return m.step("np.concatenate([{0}, {1}], axis=1)", made, other)


@family(2)
def classified(m: Maker) -> str:
    """Cross-entropies of logits and labels."""
    x = m.any(lambda n: m.dtype(n).kind == "f" and m.rank(n) == 2 and 0 not in m.shape(n))
    if m.chance(0.3):
        x = m.input((m.pick((1, 5, 18)), m.pick((64, 70, 130))))
    rows, classes = m.shape(x)
    if m.chance(0.2):
        label = m.input((rows,), m.pick(("int64", "int32")), -1, classes + 1)
        return m.step(f"np.sum(np.where({{1}}[:, None] == np.arange({classes}), {{0}}, 0), axis=1)", x, label)
    labels = m.input((rows,), m.pick(("int64", "int32", "uint8")), 0, min(classes, 255))
    logs = (
        m.step("pb.log_softmax({0})", x)
        if m.chance()
        else m.step("{0} - {1}", x, m.step("pb.numpy.logsumexp({0}, axis=-1, keepdims=True)", x))
    )
    if m.chance(0.4):
        return m.step(f"-np.mean(np.sum(pb.one_hot({{1}}, {classes}) * {{0}}, axis=-1))", logs, labels)
    return m.step(
        m.pick(
            (
                f"-np.mean({{0}}[np.arange({rows}), {{1}}])",
                "np.take_along_axis({0}, {1}[:, None].astype(np.int64), axis=1)",
                f"np.sum(np.where({{1}}[:, None] == np.arange({classes}), {{0}}, 0), axis=1)",
            )
        ),
        logs,
        labels,
    )


@family(2)
def histogram(m: Maker) -> str:
    """Sums by segment, and what each element makes of its segment's."""
    x = m.any(lambda n: m.dtype(n).kind == "f" and m.rank(n) in (1, 2) and 0 not in m.shape(n))
    count = m.pick((1, 2, 3, 8))
    places = indices(m, count, (m.shape(x)[0],))
    zeros = m.step(f"np.zeros_like({{0}}, shape=({count},) + {{0}}.shape[1:])", x)
    sums = m.step(f"pb.numpy.at({{0}})[{{1}}].{m.pick(('add', 'add', 'max'))}({{2}})", zeros, places, x)
    if m.chance():
        return m.step(m.pick(("{0} / ({1}[{2}] ** 2 + 1)", "{0} - {1}[{2}]")), x, sums, places)
    return sums


@family(2)
def segments(m: Maker) -> str:
    """Sums of the rows of each group, written as a comparison with its number or with the nearest centre."""
    rows, groups, width = m.pick((5, 17, 40, 79)), m.pick((2, 3, 5, 9)), m.pick((1, 2, 3, 8))
    x = m.input((rows, width))
    if m.chance():
        labels = m.input((rows,), m.pick(("int64", "int32", "uint8")), 0, groups)
        chosen = m.step(f"{{0}}[:, None] == np.arange({groups})", labels)
    else:
        table = m.step("np.sum(({0}[:, None] - {1}) ** 2, axis=-1)", x, m.input((groups, width)))
        chosen = m.step("{0} == np.min({0}, axis=1, keepdims=True)", table)
    term = m.step(m.pick(("{0} * {0}", "np.exp(-{0})", "{0} / (1 + {0} ** 2)")), x) if m.chance(0.7) else x
    sums = m.step("np.sum(np.where({0}[..., None], {1}[:, None], 0), axis=0)", chosen, term)
    return m.step("{0} / (1 + np.sum({1}, axis=0))[:, None]", sums, chosen) if m.chance() else sums


STEPS_OF_SERIES = (
    *("y * {0} + (k % 3 - 1)", "0.5 * (y + {0} / (1 + y * y))", "np.tanh(y) * {0} - 0.25 * y"),
    *("y + {0} * (y - 0.5) / (k + 1)", "y * {0} + {1}", "np.where(y > {1}, y * {0}, y - 0.1)"),
)


@family(2)
def series(m: Maker) -> str:
    """Elementwise steps in a long loop of Python, and now and then sums of what they have in common."""
    x = m.any(lambda n: m.dtype(n).kind == "f" and m.rank(n) < 3)
    bounded = m.step("np.clip({0}, -1, 1)", x)
    turn, count = m.pick(STEPS_OF_SERIES), m.pick((3, 20, 55, 130))
    shape = m.shape(x)
    y = m.step(f"(lambda y: [y := {turn} for k in range({count})][-1])({{0}})", bounded, m.input(shape[-1:]))
    return m.step(m.pick(("np.sum({0} * {1})", "np.mean(({0} - {1}) ** 2)")), y, x) if m.chance(0.3) else y


NEIGHBOURS = (
    *("{0}[..., 1:] - {0}[..., :-1]", "{0}[..., 1:] - {0}[..., :-1] ** 2", "{0}[..., 1:] * {0}[..., :-1]"),
    *("{0}[..., 2:] - 2 * {0}[..., 1:-1] + {0}[..., :-2]", "(1 - {0}[..., 1:]) * {0}[..., :-1]"),
)


@family(2)
def stencil(m: Maker) -> str:
    """What neighbours along the last axis have to do with each other, and what they have in common."""
    x = m.input((*m.pick(((), (), (), (2,))), m.pick((3, 8, 17, 40, 129, 300))))
    made = m.step(m.pick(NEIGHBOURS), x)
    made = m.step(m.pick(("{0} ** 2", "3 * {0} * {0}", "{0} * (2 - {0})", "{0}")), made)
    if m.rank(x) > 1 or m.chance():
        return m.step(f"np.sum({{0}}, axis={m.pick((-1, None))})", made)
    low, high = m.pick(((1, 0), (2, 1), (0, 3)))
    return m.step(f"np.pad({{0}}, ({low}, {high})) - np.pad({{0}}, ({high}, {low})) * 2", made)


@family(2)
def recurrence(m: Maker) -> str:
    """A few steps through time."""
    width = m.pick((1, 2, 4, 8))
    x = m.input((m.pick((2, 3)), width))
    w, h = m.input((width, width)), m.input((width,))
    for t in range(m.shape(x)[0]):
        h = m.step(f"np.tanh({{0}} @ {{1}} + {{2}}[{t}])", h, w, x)
    return h
