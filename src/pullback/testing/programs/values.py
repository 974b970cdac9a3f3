"""Random steps that compute: elementwise functions, reductions and products."""

from __future__ import annotations

import string

import numpy as np

from pullback.testing.programs.families import family
from pullback.testing.programs.maker import INTEGERS, Maker, Rejected

__all__ = ["ACTIVATIONS"]

SMOOTH = ("sin", "cos", "tanh", "arctan", "exp", "expm1", "sinh", "cosh", "arcsinh", "square", "cbrt", "exp2")
STEPS = ("sign", "floor", "ceil", "trunc", "rint", "round", "positive", "negative", "absolute", "abs")
BOUNDED = ("tan", "arcsin", "arccos", "arctanh", "log1p")
POSITIVE = ("log", "sqrt", "log2", "log10", "reciprocal", "arccosh")
ANGLES = ("deg2rad", "rad2deg", "nan_to_num")
TESTS = ("isnan", "isinf", "isfinite", "logical_not")
ACTIVATIONS = (
    *(
        "relu",
        "gelu",
        "selu",
        "elu",
        "celu",
        "silu",
        "mish",
        "softplus",
        "softsign",
        "sigmoid",
        "log_sigmoid",
    ),
    *("hard_tanh", "hard_sigmoid", "hard_swish", "relu6", "leaky_relu", "erf", "relu", "gelu"),
)
REDUCTIONS = ("sum", "mean", "max", "min", "var", "std", "prod", "ptp")
DTYPES = (
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)


# ---------------------------------------------------------------------- elementwise


@family(6)
def smooth(m: Maker) -> str:
    return m.step(f"np.{m.pick(SMOOTH)}({{0}})", m.number())


@family(3)
def rounded(m: Maker) -> str:
    return m.step(f"np.{m.pick(STEPS)}({{0}})", m.number())


@family(2)
def of_a_domain(m: Maker) -> str:
    x = m.floats()
    if m.chance():
        inside = m.step(
            m.pick(("np.sin({0})", "np.tanh({0})", "np.clip({0}, -0.9, 0.9)", "0.5 * np.cos({0})")), x
        )
        return m.step(f"np.{m.pick(BOUNDED)}({{0}})", inside)
    inside = m.step(m.pick(("np.abs({0}) + 1.5", "np.exp({0})", "{0} * {0} + 1", "np.maximum({0}, 0.5)")), x)
    return m.step(f"np.{m.pick(POSITIVE)}({{0}})", inside)


@family(2)
def outside_a_domain(m: Maker) -> str:
    """A branch that makes NaN where it is not taken."""
    x = m.floats()
    name = m.pick((*POSITIVE, "arcsin", "arctanh"))
    condition = "({0} > 1)" if name == "arccosh" else "({0} > 0)"
    if name.startswith("arc") and name != "arccosh":
        condition = "(np.abs({0}) < 1)"
    other = m.pick(("0.0", "{0}", "1.0", "-{0}"))
    return m.step(f"np.where({condition}, np.{name}({{0}}), {other})", x)


@family(1)
def angles(m: Maker) -> str:
    return m.step(f"np.{m.pick(ANGLES)}({{0}})", m.number())


@family(1)
def tests(m: Maker) -> str:
    return m.step(f"np.{m.pick(TESTS)}({{0}})", m.number())


@family(5)
def activation(m: Maker) -> str:
    return m.step(f"pb.{m.pick(ACTIVATIONS)}({{0}})", m.floats())


@family(8)
def arithmetic(m: Maker) -> str:
    x = m.number()
    text = m.pick(
        (
            *(
                "{0} + {1}",
                "{0} - {1}",
                "{0} * {1}",
                "{0} * {1}",
                "np.maximum({0}, {1})",
                "np.minimum({0}, {1})",
            ),
            *("np.add({0}, {1})", "np.subtract({0}, {1})", "np.multiply({0}, {1})"),
        )
    )
    return m.step(text, *m.random.sample((x, m.partner(x)), 2))


@family(3)
def with_numbers(m: Maker) -> str:
    x = m.number()
    number = m.pick((0, 1, 2, 0.5, -1, 3, 1.5, 0.1))
    if m.dtype(x).kind in "iu":
        number = m.pick((0, 1, 2, 3))
    text = m.pick(
        (
            "{0} + N",
            "N - {0}",
            "{0} * N",
            "np.maximum({0}, N)",
            "np.minimum(N, {0})",
            "{0} / (N or 2)",
            "np.divide(1, {0} * {0} + 1)",
        )
    )
    return m.step(text.replace("(N or 2)", str(number or 2)).replace("N", str(number)), x)


@family(3)
def quotient(m: Maker) -> str:
    x = m.floats()
    other = m.partner(x)
    shape = m.pick(("np.abs({0}) + 0.5", "{0} * {0} + 1", "np.exp({0})", "{0}"))
    return m.step("{0} / {1}", x, m.step(shape, other) if shape != "{0}" else other)


@family(3)
def two_arguments(m: Maker) -> str:
    x = m.floats()
    name = m.pick(("arctan2", "hypot", "logaddexp", "logaddexp2", "fmax", "fmin"))
    return m.step(f"np.{name}({{0}}, {{1}})", x, m.partner(x))


@family(2)
def powers(m: Maker) -> str:
    x = m.number()
    if m.chance(0.6):
        return m.step(f"{{0}} ** {m.pick((0, 1, 2, 3, 4))}", x)
    if m.dtype(x).kind == "f":
        base = m.step("np.abs({0}) + 0.1", x)
        if m.chance():
            return m.step(f"{{0}} ** {m.pick((0.5, -1, -2, 1.5, -0.5))}", base)
        return m.step(m.pick(("np.power({0}, {1})", "np.float_power({0}, {1})")), base, m.partner(x))
    return m.step(f"np.power({{0}}, {m.pick((0, 1, 2, 3))})", x)


@family(2)
def divided(m: Maker) -> str:
    x = m.number()
    text = m.pick(
        ("np.floor_divide({0}, {1})", "np.remainder({0}, {1})", "np.mod({0}, {1})", "{0} % {1}", "{0} // {1}")
    )
    if m.chance(0.4):
        return m.step(text.replace("{1}", m.pick(("2", "3", "7"))), x)
    return m.step(text, x, m.partner(x))


@family(2)
def clipped(m: Maker) -> str:
    x = m.number()
    return m.step(
        m.pick(("np.clip({0}, -1, 1)", "np.clip({0}, 0, None)", "np.clip({0}, None, 2)", "{0}.clip(0, 3)")), x
    )


@family(3)
def chosen(m: Maker) -> str:
    x = m.number()
    mask = m.mask(x)
    if m.chance(0.3):
        number = m.pick((0, 1, 0.0, -0.0, 2.5)) if m.dtype(x).kind == "f" else m.pick((0, 1, 2))
        return m.step(
            m.pick((f"np.where({{0}}, {{1}}, {number})", f"np.where({{0}}, {number}, {{1}})")), mask, x
        )
    return m.step("np.where({0}, {1}, {2})", mask, x, m.partner(x))


@family(2)
def compared(m: Maker) -> str:
    x = m.number()
    signs = {
        "less": "<",
        "less_equal": "<=",
        "greater": ">",
        "greater_equal": ">=",
        "equal": "==",
        "not_equal": "!=",
    }
    name, sign = m.pick(tuple(signs.items()))
    found = m.step(m.pick((f"{{0}} {sign} {{1}}", f"np.{name}({{0}}, {{1}})")), x, m.partner(x))
    if m.chance(0.4):
        words = (
            "{0} & {1}",
            "{0} | {1}",
            *(f"np.logical_{word}({{0}}, {{1}})" for word in ("and", "or", "xor")),
        )
        return m.step(m.pick(words), found, m.mask(x))
    if m.chance():
        return m.step(m.pick(("{0} * {1}", "{1} * ~{0}", "np.where({0}, {1}, -{1})")), found, x)
    return found


@family(1.5)
def bits(m: Maker) -> str:
    x = m.integers()
    if m.chance(0.4):
        shifts = ("{0} << 2", "{0} >> 1", "np.left_shift({0}, 1)", "np.right_shift({0}, 2)")
        return m.step(m.pick(("~{0}", "np.invert({0})", "np.bitwise_not({0})", "{0} & 3", *shifts)), x)
    words = (f"np.bitwise_{word}({{0}}, {{1}})" for word in ("and", "or", "xor"))
    return m.step(m.pick(("{0} & {1}", "{0} | {1}", "{0} ^ {1}", *words)), x, m.partner(x, m.dtype(x)))


@family(2.5)
def integer_arithmetic(m: Maker) -> str:
    x = m.integers()
    text = m.pick(("{0} + {1}", "{0} * {1}", "{0} - {1}", "np.maximum({0}, {1})", "{0} < {1}", "{0} == {1}"))
    other = m.pick(INTEGERS) if m.chance(0.4) else m.dtype(x)
    return m.step(text, x, m.partner(x, other))


@family(3)
def converted(m: Maker) -> str:
    x = m.any()
    dtype = m.pick(DTYPES)
    if m.dtype(x).kind == "f" and dtype.lstrip("u").startswith("int"):
        # A cast of what an integer cannot hold is whatever the processor does.
        low, high = (0, 100) if dtype.startswith("u") else (-100, 100)
        x = m.step(f"np.nan_to_num(np.clip({{0}}, {low}, {high}))", x)
    return m.step(m.pick((f"{{0}}.astype(np.{dtype})", f"{{0}}.astype(np.{m.float.name})")), x)


@family(0.5)
def stopped(m: Maker) -> str:
    return m.step("pb.stop_gradient({0})", m.floats())


# ---------------------------------------------------------------------- reductions


def keeping(m: Maker) -> str:
    return m.pick(("", "", ", keepdims=True", ", keepdims=True"))


@family(9)
def reduction(m: Maker) -> str:
    x, name = m.number(), m.pick((*REDUCTIONS, "sum", "mean", "max"))
    how = ""
    if name in ("var", "std") and m.chance(0.2):
        how = ", ddof=1"
    if m.chance(0.15) and name in ("max", "min"):
        how = f", initial={m.pick((0, 1, -1))}"
    if m.chance(0.1) and name in ("sum", "mean", "prod"):
        how = f", where={{0}} > {m.pick((0, -1))}"
    if m.chance(0.1) and m.dtype(x).kind == "f" and name in ("sum", "mean"):
        how = ", dtype=np.float64"
    method = m.chance(0.2) and name != "ptp" and "where" not in how
    start = f"{{0}}.{name}(" if method else f"np.{name}({{0}}, "
    return m.step(f"{start}axis={m.axes(x)}{how}{keeping(m)})", x)


@family(2)
def truth(m: Maker) -> str:
    x = m.any()
    return m.step(f"np.{m.pick(('all', 'any', 'count_nonzero'))}({{0}}, axis={m.axes(x)}{keeping(m)})", x)


@family(1.5)
def position(m: Maker) -> str:
    x = m.number(1)
    axis = None if m.chance(0.2) else m.axis(x)
    return m.step(f"np.{m.pick(('argmax', 'argmin'))}({{0}}, axis={axis}{keeping(m)})", x)


@family(2)
def norms(m: Maker) -> str:
    x = m.floats(1)
    if m.chance(0.3):
        return m.step(f"np.average({{0}}, axis={m.axes(x)})", x)
    order = m.pick(("", "", "ord=1, ", "ord=np.inf, ", "ord=3, "))
    return m.step(f"np.linalg.norm({{0}}, {order}axis={m.axis(x)}{keeping(m)})", x)


@family(5)
def normalised(m: Maker) -> str:
    x = m.floats(1)
    axis = m.axis(x)
    names = ("pb.softmax", "pb.log_softmax", "pb.numpy.standardise", "pb.numpy.logsumexp", "pb.softmax")
    return m.step(f"{m.pick(names)}({{0}}, axis={axis})", x)


@family(0.7)
def gated(m: Maker) -> str:
    x = m.any(lambda n: m.dtype(n).kind == "f" and m.rank(n) > 0 and m.shape(n)[-1] % 2 == 0)
    return m.step("pb.glu({0}, axis=-1)", x)


# ---------------------------------------------------------------------- products


@family(6)
def product(m: Maker) -> str:
    x = m.number(1)
    if m.chance(0.6):
        try:
            last = m.shape(x)[-1]
            y = m.any(
                lambda name: (
                    m.rank(name) > 0 and m.shape(name)[-2:][0] == last and m.dtype(name) == m.dtype(x)
                )
            )
        except Rejected:
            y = m.input((m.shape(x)[-1], m.pick(m.extents)), m.dtype(x))
    else:
        y = m.input((m.shape(x)[-1], m.pick(m.extents)), m.dtype(x))
    return m.step(m.pick(("{0} @ {1}", "{0} @ {1}", "np.matmul({0}, {1})", "np.dot({0}, {1})")), x, y)


@family(2)
def pairs(m: Maker) -> str:
    x = m.number(1)
    y = m.any(lambda name: m.dtype(name) == m.dtype(x) and m.rank(name) > 0)
    texts = ["np.outer({0}, {1})", "np.multiply.outer({0}, {1})"]
    if m.shape(x)[-1] == m.shape(y)[-1]:
        texts += ["np.inner({0}, {1})"] * 2
    if m.shape(x)[-1] == m.shape(y)[0]:
        texts += ["np.tensordot({0}, {1}, 1)"] * 2
    if np.size(m.value(x)) == np.size(m.value(y)):
        texts += ["np.vdot({0}, {1})"] * 2
    return m.step(m.pick(texts), x, y)


@family(4)
def einsum(m: Maker) -> str:
    operands: list[str] = []
    labels: list[str] = []
    extents: dict[str, int] = {}
    for _ in range(m.pick((1, 2, 2, 2, 3))):
        x = m.any(lambda name: m.dtype(name) == m.float and m.rank(name) > 0) if not operands else m.floats(1)
        own = ""
        for extent in m.shape(x):
            known = [c for c, n in extents.items() if n == extent and (c not in own or m.chance(0.1))]
            letter = m.pick(known) if known and m.chance(0.8) else string.ascii_lowercase[len(extents)]
            extents[letter] = extent
            own += letter
        operands.append(x)
        labels.append(own)
    result = [letter for letter in extents if m.chance(0.6)]
    m.random.shuffle(result)
    listed = ", ".join(f"{{{k}}}" for k in range(len(operands)))
    return m.step(f"np.einsum('{','.join(labels)}->{''.join(result)}', {listed})", *operands)


@family(2)
def windows(m: Maker) -> str:
    """A convolution or a pool, of an image that is made for it if there is none."""
    try:
        x = m.any(
            lambda name: m.dtype(name).kind == "f" and m.rank(name) in (3, 4) and 0 not in m.shape(name)
        )
    except Rejected:
        x = m.input(
            (m.pick((1, 2)), m.pick((1, 2, 3)), m.pick((4, 5, 8, 9)), m.pick((4, 6, 7)))[: m.pick((3, 4))]
        )
    shape = m.shape(x)
    smallest = min(shape[2:])
    if m.chance(0.4):
        size = m.pick((1, 2, 3))
        stride = m.pick((f"{size}", "1", "2"))
        return m.step(f"pb.nn.{m.pick(('max_pool', 'avg_pool'))}({{0}}, {size}, {stride})", x)
    groups = shape[1] if m.chance(0.2) and shape[1] <= 4 else 1
    window = tuple(m.pick([n for n in (1, 2, 3) if n <= smallest]) for _ in shape[2:])
    weight = m.input((groups * m.pick((1, 2, 4)), shape[1] // groups, *window), m.dtype(x))
    how = f", padding={m.pick((0, 1))}" + (f", groups={groups}" if groups > 1 else "")
    if m.chance(0.15):
        how += ", dilation=2"
    return m.step(f"pb.nn.conv({{0}}, {{1}}, {m.pick((1, 1, 2))}{how})", x, weight)


@family(1)
def shared_products(m: Maker) -> str:
    """Convolutions of so many channels that neighbouring results are made of common products, where they are floats."""
    channels, units = m.pick((8, 9)), m.pick((8, 10))
    extents = m.pick(((12, 9), (9, 14), (13, 13), (40,), (33,)))
    if len(extents) == 1:
        channels, units = 2 * channels, 2 * units
    size = m.pick((2, 3, 3))
    last = m.chance(0.5)
    shape = (*extents, channels) if last else (channels, *extents)
    x = m.input((m.pick((1, 2, 3)), *shape))
    weight = m.input((units, channels, *(size for _ in extents)))
    how = f", padding={m.pick((0, 1))}" + (', channels="last"' if last else "")
    if m.chance(0.3):
        count, odd = int(np.prod(m.shape(x))), m.pick(("np.inf", "-np.inf", "np.nan"))
        places = f"np.arange({count}).reshape({m.shape(x)})"
        x = m.step(f"np.where({places} == {m.below(count)}, {odd}, {{0}})", x)
    made = m.step(f"pb.nn.conv({{0}}, {{1}}{how})", x, weight)
    made = m.step(m.pick(("pb.relu({0})", "np.tanh({0})", "{0} * {0}", "{0}")), made)
    if m.chance(0.4):
        other = m.input((channels, units, *(size for _ in extents)))
        made = m.step(f"pb.nn.conv({{0}}, {{1}}{how})", made, other)
    return made


@family(1)
def columns(m: Maker) -> str:
    """Sums, extremes and moments along axes of what small caches do not hold, and a few rows times a matrix."""
    rows, width = m.pick(((40, 36), (33, 40), (70, 17), (24, 64), (36, 70)))
    flat = m.chance(0.6)
    x = m.input((rows, width) if flat else (m.pick((9, 14)), m.pick((3, 6)), m.pick((45, 60))))
    axis = m.pick((0, 0, 1) if flat else ((0, 2), 1))
    if flat and m.chance(0.3):
        few = m.input(m.pick(((rows,), (1, rows), (3, rows))))
        return m.step("{0} @ {1}", *_with_one_odd_number(m, few, x))
    wanted = (
        "np.sum({0}, axis=@)",
        "np.mean({0}, axis=@)",
        "np.max({0}, axis=@)",
        "np.min({0}, axis=@)",
        "np.var({0}, axis=@)",
        "np.sum(np.cos({0}), axis=@)",
        "np.max({0}, axis=@) - np.sum({0}, axis=@)",
        "np.sum({0} - np.max({0}, axis=@, keepdims=True), axis=@)",
    )
    return m.step(m.pick(wanted).replace("@", str(axis)), x)


@family(1)
def pooled_block(m: Maker) -> str:
    """A convolution, a relu or another mask, and a pool: behind it most of a cotangent is zero, at computed places."""
    rows, columns = m.pick(((9, 9), (12, 36), (20, 20), (20, 36)))
    shape = m.pick((1, 2)), 1, rows, columns
    if m.chance(0.3):  # a picture, finite whatever it holds
        scale = m.pick(("np.float32(1 / 255)", "np.float64(0.25)", "np.float32(1e38)"))
        x = m.step(f"{{0}} * {scale}", m.input(shape, m.pick((np.uint8, np.int16, np.bool_))))
    else:
        x = m.input(shape)
    size = m.pick((2, 3, 3, 5))
    weight = m.input((m.pick((1, 2)), 1, size, size), m.dtype(x))
    masks = (
        "pb.relu({0})",
        "pb.relu({0})",
        "np.maximum({0}, 0)",
        "np.where({0} > 1, {0}, 0)",
        "pb.sigmoid({0})",
    )
    x, weight = _with_one_odd_number(m, x, weight)
    mapped = m.step(m.pick(masks), m.step("pb.nn.conv({0}, {1})", x, weight))
    pooled = m.step(f"pb.nn.max_pool({{0}}, {m.pick(('1', '2', '2', '3', '3, 2'))})", mapped)
    return m.step(m.pick(masks), pooled) if m.chance(0.3) else pooled


@family(1)
def pooled_text(m: Maker) -> str:
    """Channels last, a table of vectors before them or none: gradients of image, table and weight visit winners."""
    length, width = m.pick((19, 24, 34, 43)), m.pick((5, 17, 20))
    if m.chance(0.4):
        rows = m.pick((4, 9))
        places = m.input((m.pick((1, 3)), length), np.int64, 0, rows)
        x = m.step("{0}[{1}]", m.input((rows, width)), places)
    else:
        x = m.input((m.pick((1, 3)), length, width))
    weight = m.input((m.pick((1, 3, 8)), width, m.pick((2, 3))), m.dtype(x))
    x, weight = _with_one_odd_number(m, x, weight)
    mapped = m.step('pb.nn.conv({0}, {1}, channels="last")', x, weight)
    mapped = m.step(m.pick(("pb.relu({0})", "pb.relu({0})", "np.tanh({0})", "{0} * 2")), mapped)
    return m.step(f'pb.nn.max_pool({{0}}, {m.pick(("8", "6", "6, 3"))}, channels="last")', mapped)


def _with_one_odd_number(m: Maker, x: str, weight: str) -> tuple[str, str]:
    """Image and weight, mostly as they are; else one number of the last axis of one of them is not finite."""
    if not m.chance(0.3):
        return x, weight
    chosen = m.pick((0, 1))
    given = [x, weight]
    last = m.shape(given[chosen])[-1]
    odd, place = m.pick(("np.inf", "-np.inf", "np.nan")), m.below(last)
    given[chosen] = m.step(f"np.where(np.arange({last}) == {place}, {odd}, {{0}})", given[chosen])
    return given[0], given[1]
