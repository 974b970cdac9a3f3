"""Arguments that results take over: in place where that is right, and right where it is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.kernels.donate import arrange
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS, Graph, Type, Variable
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Literal, Load, Store

check_index, gather, scatter_add = (OPERATORS[name] for name in ("check_index", "gather", "scatter_add"))
FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-3, 4, shape).astype(np.float32)


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


SQUARE = [(17, 17)] * 3
CASES: dict[str, tuple[Callable[..., object], list[tuple[int, ...]], Mapping[int, int]]] = {
    "the argument itself": (lambda a: (a,), [(40, 17)], {0: 0}),
    "the argument twice": (lambda a: (a, a), [(40, 17)], {1: 0}),
    "two change places": (lambda a, b: (b, a), [(40, 17)] * 2, {0: 0, 1: 1}),
    "scalars change places": (lambda a, b: (b, a + b), [(), ()], {0: 0, 1: 1}),
    "three in a circle": (lambda a, b, c: (b, c, a), [(40, 17)] * 3, {0: 0, 1: 1, 2: 2}),
    "changed and changing places": (lambda a, b: (b + 1, a * 2), [(40, 17)] * 2, {0: 0, 1: 1}),
    "sums of each other": (lambda a, b: (a + b.sum(0), b + a.sum(0)), [(40, 17)] * 2, {0: 0, 1: 1}),
    "parts side by side": (
        lambda a: (np.concatenate([a[:, :8] * np.maximum(a[:, 8:], 0), a[:, 8:] - a[:, :8]], 1),),
        [(40, 16)],
        {0: 0},
    ),
    "parts that move": (
        lambda a: (np.concatenate([a[:, 4:8], a[:, 8:] * a[:, :8], a[:, :4]], 1),),
        [(40, 16)],
        {0: 0},
    ),
    "parts of a gated unit": (
        lambda a: (pb.grad(lambda a: np.sum(np.sum(pb.relu(a[:, :32] * a[:, 32:]), 1) ** 2))(a),),
        [(8, 64)],
        {0: 0},
    ),
    "products of each other": (lambda a, b, c: (b @ c, c @ a, a @ b), SQUARE, {0: 0, 1: 1, 2: 2}),
    "products turned around": (lambda a, b: (a @ b + b, b @ a + a), SQUARE[:2], {1: 0, 0: 1}),
    "an update that depends on another": (
        lambda a, b: (a + b.sum(0), (a + b.sum(0)).sum(0) * b + a.sum(0)),
        [(90, 90)] * 2,
        {0: 0, 1: 1},
    ),
    "the old value in a product": (lambda p: (p, p @ p), SQUARE[:1], {1: 0}),
    "the old value beside": (lambda p: (p + 1, p @ p), SQUARE[:1], {0: 0}),
    "an update by its own product": (lambda p: (p - p @ p,), SQUARE[:1], {0: 0}),
    "an operand of a product that is cut": (lambda p, x: (x @ p,), [(200, 300), (200, 200)], {0: 0}),
    "an operand's columns in a product that is cut": (
        lambda p, x: (p @ x,),
        [(300, 200), (200, 200)],
        {0: 0},
    ),
    "an update and a gradient": (lambda p, x: (p - x @ p, x.T @ p), SQUARE[:2], {0: 0}),
    "a transposed argument": (lambda p: (p.T,), SQUARE[:1], {0: 0}),
    "a transposed argument added": (lambda p: (p.T + p,), SQUARE[:1], {0: 0}),
    "a reversed argument": (lambda p: (p[::-1],), [(100,)], {0: 0}),
    "a rotated argument": (lambda p: (np.concatenate([p[1:], p[:1]]) + p, p.sum()), [(100, 3)], {0: 0}),
    "a row by its own extremes": (lambda z: (z - z.max(1, keepdims=True), z.max(1)), [(40, 500)], {0: 0}),
    "a long row by its own extremes": (lambda z: (z - z.max(1, keepdims=True),), [(4, 5000)], {0: 0}),
    "a column by its own sums": (lambda z: (z * 2 - z.sum(0), z.sum(0)), [(40, 65)], {0: 0}),
    "everything by its own sum": (lambda z: (z - z.sum(),), [(40, 50)], {0: 0}),
    "a result read later": (lambda a, b: (a + b, (a + b) @ a.T), [(40, 17)] * 2, {0: 0}),
    "a result and the argument read later": (
        lambda a, b: (a * b, (a * b).sum(0) * a),
        [(40, 17)] * 2,
        {0: 0},
    ),
    "a gather of itself": (lambda a, i: (a + a[i.astype(np.int64) % 40],), [(40, 17), (40,)], {0: 0}),
    "a row by its own product": (lambda w, z: (w - (w @ z)[:, None] * z, w @ z), [(300, 84), (84,)], {0: 0}),
    "a row beside its own product": (
        lambda w, x, z: (w - x[:, None] * z, w @ z, (w * w).sum(1)),
        [(300, 84), (300,), (84,)],
        {0: 0},
    ),
    "rows of rows beside their own product": (
        lambda w, x, z: (w - x[:, :, None] * z, (w * z).sum(2)),
        [(8, 40, 33), (8, 40), (33,)],
        {0: 0},
    ),
    "a row beside the product of its neighbour": (
        lambda w, x, z: (w - x[:, None] * z, w[::-1] @ z),
        [(300, 84), (300,), (84,)],
        {0: 0},
    ),
    "long rows beside their products": (
        lambda w, x, z: (w - x[:, None] * z, w @ z),
        [(7, 5000), (7,), (5000,)],
        {0: 0},
    ),
    "the empty array": (lambda a: (a + 1,), [(0, 3)], {0: 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_results_in_place_of_arguments(name, compiler, traced, processor):
    function, shapes, donated = CASES[name]
    arrays = [integers(*shape, seed=k) for k, shape in enumerate(shapes)]
    compiler.assert_same(traced(function, *arrays), arrays, donated, processor)


@pytest.mark.parametrize("name", CASES)
def test_results_in_place_after_every_stage(name, traced):
    """Chunks of a region run in either order, and no turn reads what another one overwrites."""
    function, shapes, donated = CASES[name]
    arrays = [integers(*shape, seed=k) for k, shape in enumerate(shapes)]
    some = Processor("znver3", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16)
    check_stages(traced(function, *arrays), arrays, some, donated)


def scatters(compiler, function, shapes, donated):
    table, others = integers(*shapes[0]), [integers(*shape, seed=1) for shape in shapes[1:]]
    index = np.array([3, 0, 3, 5])
    arrays = [table, *others, index]
    variables = tuple(Variable(Type(array.dtype, array.shape)) for array in arrays)
    graph = Graph(variables, tuple(function(*variables)))
    compiler.assert_same(graph, arrays, donated)
    return compiler.program(graph, donated)


def test_updates_of_a_table_are_added_in_place(compiler):
    def update(table, rows, index):
        return (scatter_add(table, rows, index, axes=(0,)),)

    program = scatters(compiler, update, [(6, 5), (4, 5)], {0: 0})
    assert program.arena_bytes == 0


def test_a_table_that_its_own_updates_are_read_from(compiler):
    def own(table, rows, index):
        checked = check_index(index, extent=6, what="index")
        gathered = gather(table, checked, axes=(0,))
        return scatter_add(table, gathered, checked, axes=(0,)), rows * 2, table + 1

    def chained(table, rows, index):
        first = scatter_add(table, rows, index, axes=(0,))
        return (
            first,
            scatter_add(rows, gather(first, index, axes=(0,)), index % 4, axes=(0,)),
            table * rows[0],
        )

    scatters(compiler, own, [(6, 5), (4, 5)], {0: 0, 1: 1})
    scatters(compiler, own, [(6, 5), (4, 5)], {2: 0, 1: 1})
    scatters(compiler, chained, [(6, 5), (4, 5)], {0: 0, 1: 1})
    scatters(compiler, chained, [(6, 5), (4, 5)], {2: 0, 1: 1})


def test_indices_read_from_a_result_that_is_copied(compiler):
    """The result is an index of an index, and of a scatter that may fail."""

    def function(x, index):
        turned = index[::-1]
        inner = check_index(gather(turned, turned % 4, axes=(0,)), extent=6, what="index")
        return turned, scatter_add(x, x[:4], inner, axes=(0,)), gather(x, inner, axes=(0,))

    scatters(compiler, function, [(6, 5)], {0: 1})


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_way_to_hand_arguments_on(order, compiler, traced):
    """Each result is given each argument, whichever of them it reads."""

    def function(a, b, c):
        return a + b, b * c - 1, c @ a

    arrays = [integers(9, 9, seed=k) for k in range(3)]
    compiler.assert_same(traced(function, *arrays), arrays, dict(enumerate(order)))


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(64, 30, 7), (640, 300, 70), (3, 5, 1)])
def test_a_training_step(rows, inputs, outputs, compiler, traced):
    def step(w, b, speed, x, y):
        hidden = np.maximum(x @ w + b, 0)
        error = hidden - y
        gradient = x.T @ (error * (hidden > 0))
        speed = speed // 2 + gradient
        return w - speed, b - error.sum(0), speed, np.abs(error).max()

    shapes = [(inputs, outputs), (outputs,), (inputs, outputs), (rows, inputs), (rows, outputs)]
    arrays = [integers(*shape, seed=k) for k, shape in enumerate(shapes)]
    compiler.assert_same(traced(step, *arrays), arrays, {0: 0, 1: 1, 2: 2})


def test_updates_are_made_in_place(compiler, traced):
    """No result passes through memory of its own where nothing else reads the argument."""

    def adam(w, m, v, g):
        m, v = m * 0.5 + g, v * 0.75 + g * g
        return w - m / (np.sqrt(v) + 1), m, v

    arrays = [integers(40, 17, seed=k) for k in range(4)]
    program = compiler.program(traced(adam, *arrays), {0: 0, 1: 1, 2: 2})
    assert program.arena_bytes == 0
    results = program(*arrays)
    assert all(result is array for result, array in zip(results, arrays))


# -- the stage itself

I = Axis("i", 4)  # noqa: E741
A, B, R, S = (Buffer(name, FLOAT, (4,)) for name in "abrs")


def read(buffer: Buffer, offset: Affine | None = None) -> Load:
    return Load(buffer, Affine.of(I) if offset is None else offset)


def kernel(target: Buffer, value) -> Kernel:
    return Kernel((I,), (Store(target, Affine.of(I), value),))


def twice(value) -> Apply:
    return Apply("add", (value, value), FLOAT)


def test_readers_of_the_argument_come_first():
    update, reader = kernel(R, twice(read(A))), kernel(S, read(A))
    program, before = arrange([update, reader], {R: A})
    assert program == [reader, update]
    assert before == {update: [reader]}


def test_a_reader_of_the_new_and_the_old_value_asks_for_a_copy():
    update, reader = kernel(R, twice(read(A))), kernel(S, Apply("add", (read(R), read(A)), FLOAT))
    program, _ = arrange([update, reader], {R: A})
    assert [repr(k.stores[0].buffer) for k in program] == [
        "new_r: float64[4]",
        "s: float64[4]",
        "r: float64[4]",
    ]
    assert program[-1].reads()[0].name == "new_r"


def test_another_place_of_the_argument_asks_for_a_copy():
    backwards = Affine.of(I) * -1 + 3
    program, _ = arrange([kernel(R, Apply("add", (read(A), read(A, backwards)), FLOAT))], {R: A})
    assert len(program) == 2


def test_a_circle_is_opened_by_one_copy():
    program, before = arrange([kernel(R, read(B)), kernel(S, read(A))], {R: A, S: B})
    assert [kernel.writes()[0].name for kernel in program] == ["new_r", "s", "r"]
    assert before[program[1]] == [program[0]]
    assert before[program[2]] == [program[1]]


def test_what_only_comes_after_a_circle_is_in_place():
    C = Buffer("c", FLOAT, (4,))
    T, U = Buffer("t", FLOAT, (4,)), Buffer("u", FLOAT, (4,))
    behind = kernel(U, Apply("add", (read(R), read(C)), FLOAT))
    update = kernel(T, Apply("add", (read(C), read(U)), FLOAT))
    circle = [kernel(R, read(B)), kernel(S, read(A))]
    program, before = arrange([behind, update, *circle], {T: C, R: A, S: B})
    assert [k.writes()[0].name for k in program] == ["new_r", "u", "t", "s", "r"]
    assert before[update] == [program[1]]


def test_checks_come_before_everything_that_is_overwritten():
    attributes = (("extent", 4), ("what", "index"), ("wrap", True))
    index = Apply("check_index", (Literal(2, INT),), INT, attributes)
    update, gather = kernel(R, twice(read(A))), kernel(S, Load(B, Affine(), ((index, 1),)))
    assert gather.has_checks
    program, before = arrange([update, gather], {R: A})
    assert program == [gather, update]
    assert before == {update: [gather]}
