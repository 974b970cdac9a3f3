"""Calls with trees of arguments: what compiled code takes by itself, what it leaves to Python, and what it holds."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import gc
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.compiler.jit.calls import made, taken
from pullback.errors import DonationError, IndexRangeError, ShapeError, TreeError
from pullback.tracing.trees import flatten, map_tree


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Layer:
    weight: Any
    name: str = "layer"
    sizes: tuple = (1, 2.5)
    rate: float = pb.static(default=0.5)
    parts: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    weight: Any
    table: Any = pb.buffer(default=None)  # noqa: RUF009


@dataclasses.dataclass(slots=True)
class Slotted:
    weight: Any
    name: str = "slotted"


@dataclasses.dataclass
class Cached:
    weight: Any

    @functools.cached_property
    def twice(self):
        return 2 * self.weight


class Behind:
    """A field behind a property."""

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner):
        return 3.0 if instance is None else instance.__dict__["_hidden"]

    def __set__(self, instance, value):
        instance.__dict__["_hidden"] = value


@dataclasses.dataclass
class Hidden:
    weight: Any = Behind()


class Marked(dict):
    pass


class Two:
    def __init__(self, left, right):
        self.left, self.right = left, right


pb.register_tree(Two, lambda two: ((two.left, two.right), None), lambda _, parts: Two(*parts))


def a():
    return np.arange(3.0)


def network():
    return map_tree(np.ones_like, nn.Chain(nn.Dense(3, 4), np.tanh, nn.Dense(4, 2)))


def with_attribute():
    layer = Layer(a())
    layer.more = a()
    return layer


def cached():
    made = Cached(a())
    assert made.twice is not None
    return made


BY_THE_ENTRY = {
    "array": a,
    "number": lambda: 2.0,
    "scalar": lambda: np.float32(2),
    "tuple": lambda: (a(), 2.0, np.float64(3)),
    "list": lambda: [a(), [a(), ()], []],
    "dict": lambda: {"b": a(), "a": [a()]},
    "dict of numbers": lambda: {2: a(), 1: a(), 3: None},
    "dict of tuples": lambda: {(1, "x"): a(), (0, "y"): a()},
    "none": lambda: [None, a()],
    "named tuple": lambda: Point(a(), {"k": a()}),
    "dataclass": lambda: Layer(a()),
    "dataclass of trees": lambda: Layer({"w": a()}, parts=[Layer(a()), 3, "text", np.tanh, True, 1.5]),
    "dataclass with an attribute": with_attribute,
    "frozen": lambda: Frozen(a(), {"t": a()}),
    "slots": lambda: Slotted(a()),
    "module": network,
}
BY_PYTHON = {
    "ordered dict": lambda: collections.OrderedDict(b=a(), a=a()),
    "default dict": lambda: collections.defaultdict(list, b=a(), a=a()),
    "dict of a class": lambda: Marked(b=a(), a=a()),
    "registered": lambda: Two(a(), [a()]),
    "cached": cached,
    "property": lambda: Hidden(a()),
    "fortran": lambda: [np.asfortranarray(np.ones((3, 2)))],
    "other byte order": lambda: [np.ones(2, ">f8")],
}
TREES = BY_THE_ENTRY | BY_PYTHON


def counted(compiled):
    """How often Python is asked, as a list of one number."""
    asked, inner = [0], compiled._call

    def call(*arguments, **keywords):
        asked[0] += 1
        return inner(*arguments, **keywords)

    compiled._call = call
    compiled._calls = type(compiled._calls)("pullback_entry", call)
    compiled.__call__ = call
    return asked


def doubled(tree):
    return map_tree(lambda x: 2 * x, tree)


def same_tree(found, expected):
    (ours, structure), (theirs, wanted) = flatten(found), flatten(expected)
    assert structure == wanted
    for one, other in zip(ours, theirs):
        np.testing.assert_array_equal(one, other)
        assert (one.dtype, type(one)) == (other.dtype, type(other))


@pytest.mark.parametrize("name", TREES)
def test_trees_come_back_as_they_were(name):
    compiled = pb.jit(doubled)
    asked = counted(compiled)
    for _ in range(4):
        tree = TREES[name]()
        same_tree(compiled(tree), doubled(map_tree(np.asarray, tree)) if name != "number" else np.float64(4))
    same_tree(compiled(tree=TREES[name]()), compiled(TREES[name]()))
    assert asked[0] == (2 if name in BY_THE_ENTRY else 6)


@pytest.mark.parametrize("name", BY_THE_ENTRY)
def test_what_comes_back_is_taken_again(name):
    compiled = pb.jit(doubled)
    tree = compiled(TREES[name]())
    asked = counted(compiled)
    for _ in range(3):
        tree = compiled(tree)
    assert asked[0] <= 1


def test_descriptions_of_trees():
    spec = flatten({"b": (1.0, None), "a": [Point(2.0, 3.0)]})[1].spec
    assert repr(taken(spec)).count("LEAF") == repr(made(spec)).count("LEAF") == 3
    assert taken(flatten(collections.OrderedDict(a=1.0))[1].spec) is None


def told(tree, *rest, **named):
    """What a function can see of its arguments, as a number: a program that is not theirs is found out."""
    return np.float64(hash_of(repr(flatten((tree, rest, named))[1]))) + sum(
        np.sum(leaf) for leaf in flatten((tree, rest, named))[0]
    )


def hash_of(text):
    return sum(ord(letter) * (k % 97 + 1) for k, letter in enumerate(text))


def changed_trees():
    x = np.ones(3)
    yield "class", [x, x], (x, x)
    yield "class of a tuple", Point(x, x), (x, x)
    yield "length", [x, x], [x, x, x]
    yield "shorter", (x, x), (x,)
    yield "keys", {"a": x}, {"b": x}
    yield "more keys", {"a": x}, {"a": x, "b": x}
    yield "order", {"a": x, "b": x}, {"b": x, "a": x}
    yield "none", [x, None], [x, x]
    yield "kind of key", {1: x}, {"1": x}
    yield "static", Layer(x, "one"), Layer(x, "other")
    yield "static float", Layer(x, rate=0.5), Layer(x, rate=0.25)
    yield "sign of zero", Layer(x, rate=0.0), Layer(x, rate=-0.0)
    yield "static kind", Layer(x, sizes=(1, 2.5)), Layer(x, sizes=(True, 2.5))
    yield "static length", Layer(x, sizes=(1, 2.5)), Layer(x, sizes=(1,))
    yield "part", Layer(x, parts=3), Layer(x, parts=4)
    yield "array part", Layer(x, parts=3), Layer(x, parts=x)
    yield "attribute", Layer(x), with_attribute()
    yield "dataclass", Layer(x), Frozen(x)
    yield "dtype", [x], [x.astype(np.float32)]
    yield "shape", [x], [np.ones(4)]
    yield "rank", [x], [np.ones((3, 1))]
    yield "scalar", [np.float64(1)], [np.float32(1)]
    yield "whole", [np.float64(1)], [np.int64(1)]


@pytest.mark.parametrize(("first", "second"), [pytest.param(b, c, id=n) for n, b, c in changed_trees()])
def test_another_structure_has_another_program(first, second):
    compiled = pb.jit(told)
    for tree in (first, second, first, second, first):
        assert compiled(tree) == told(map_tree(np.asarray, tree))
        assert compiled(1.0, tree, z=tree) == told(
            np.asarray(1.0), map_tree(np.asarray, tree), z=map_tree(np.asarray, tree)
        )


def test_keywords():
    compiled = pb.jit(lambda x, *, scale=2.0, shift=None: x * scale + (0 if shift is None else shift))
    asked = counted(compiled)
    x = a()
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x), 2 * x)
        np.testing.assert_array_equal(compiled(x, scale=3.0), 3 * x)
        np.testing.assert_array_equal(compiled(x, scale=3.0, shift=x), 4 * x)
        np.testing.assert_array_equal(compiled(x=x), 2 * x)
        np.testing.assert_array_equal(compiled(*(x,), **{"sca" + "le": 3.0}), 3 * x)
    assert asked[0] == 4
    with pytest.raises(TypeError, match="unexpected"):
        compiled(x, wrong=1.0)


def test_static_arguments():
    compiled = pb.jit(lambda x, count, size: x * count + sum(size), static_argnums=(1, 2))
    asked = counted(compiled)
    for _ in range(3):
        for count, size in ((2, (1, 2)), (3, (1, 2)), (1000, (3,)), (1.5, ())):
            np.testing.assert_array_equal(compiled(a(), int(count * 2) / 2, size), a() * count + sum(size))
    assert asked[0] == 4
    signs = pb.jit(lambda x, zero: x * zero, static_argnums=1)
    for zero in (0.0, -0.0, 0.0, -0.0):
        assert np.signbit(signs(a() + 1, zero)).all() == np.signbit(zero)


def test_more_programs_than_are_tried():
    compiled = pb.jit(lambda tree: tree["x"].sum())
    for _ in range(3):
        for size in range(1, 20):
            assert compiled({"x": np.ones(size)}) == size


def test_python_numbers_are_weak_whatever_came_before():
    x = np.ones(3, np.float32)
    scale = pb.jit(lambda s, x: s * x)
    for value, name in [
        (np.float64(2), "float64"),
        (2.0, "float32"),
        (np.array(2.0), "float64"),
        (2.0, "float32"),
    ] * 2:
        assert scale(value, x).dtype == name
    assert scale(2, x).dtype == "float32" and scale(np.int64(2), x).dtype == "float64"
    assert scale(True, x).dtype == "float32"


def test_scalars_are_numpys_and_are_taken_back():
    compiled = pb.jit(lambda x: (x + 1, x > 1, pb.numpy.astype(x, np.int32)))
    asked = counted(compiled)
    value = np.float32(0)
    for step in range(4):
        value, above, whole = compiled(value)
        assert type(value) is np.float32 and type(above) is np.bool_ and type(whole) is np.int32
        assert (value, above, whole) == (step + 1, step > 1, step)
    assert asked[0] == 1


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int32", "uint64", "float32", "float64"])
def test_scalars_of_every_kind(name):
    compiled = pb.jit(lambda x: (x, np.reshape(x, (1,))))
    value = np.dtype(name).type(1)
    for _ in range(3):
        one, array = compiled(value)
        assert type(one) is type(value) and one == value and array.dtype == name and array[0] == value


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


REFUSED = [
    (lambda w: np.float64(1), r"params\.layers\.0\.x is donated and is a float64.*np\.asarray\(x\)"),
    (lambda w: 1.0, r"params\.layers\.0\.x is donated and is a float, .*np\.asarray\(x\)"),
    (read_only, r"params\.layers\.0\.x is donated and read-only.*x\.copy\(\)"),
    (lambda w: np.ones(6)[::2], r"params\.layers\.0\.x is donated and not C-contiguous"),
]


@pytest.mark.parametrize(("spoilt", "message"), REFUSED)
def test_what_is_refused_is_called_by_its_path(spoilt, message):
    """Before there is a program that has run, and after."""
    compiled = pb.jit(lambda rate, params: map_tree(lambda w: w - rate, params), donate_argnums=1)
    weight = np.ones(3)
    for _ in range(2):
        params = {"layers": [Point(spoilt(weight), np.ones(2))]}
        with pytest.raises(DonationError, match=f"^{message}"):
            compiled(np.ones(()), params)
        with pytest.raises(DonationError, match=f"^{message}"):
            compiled.run_steps((np.ones(()), params), 2)
        compiled(np.ones(()), {"layers": [Point(weight, np.ones(2))]})


def test_what_is_shared_is_called_by_its_paths():
    compiled = pb.jit(lambda state, *xs, rate: {"w": state["w"] + xs[0] * rate}, donate_argnums=0)
    block = np.ones(4)
    with pytest.raises(DonationError, match=r"^state\.w and arg1 share memory"):
        compiled({"w": block[:3]}, block[1:], rate=np.ones(()))
    with pytest.raises(DonationError, match=r"^state\.w and rate share memory"):
        compiled({"w": block[:3]}, np.ones(3), rate=block[2:3].reshape(()))
    sized = pb.jit(lambda state, x: state["w"] + x, donate_argnums=0, shapes={"state.w": ("n",), "x": ("n",)})
    with pytest.raises(DonationError, match=r"^state\.w and x share memory"):
        sized({"w": block[:3]}, block[1:])


def test_donated_trees_are_updated_in_place():
    compiled = pb.jit(lambda tree, x: ({"w": tree["w"] + x, "b": tree["b"] - x}, x), donate_argnums=0)
    tree = {"w": np.zeros(3), "b": np.zeros(3)}
    w = tree["w"]
    asked = counted(compiled)
    for _ in range(4):
        tree, _ = compiled(tree, np.ones(3))
    assert tree["w"] is w and w.tolist() == [4.0] * 3 and list(tree) == ["w", "b"]
    assert asked[0] == 1
    with pytest.raises(DonationError, match="share memory"):
        compiled({"w": w, "b": w}, np.ones(3))
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(DonationError, match="read-only"):
        compiled({"w": w, "b": frozen}, np.ones(3))
    assert w.tolist() == [4.0] * 3


# -- References


def references(objects):
    gc.collect()
    return [sys.getrefcount(one) for one in objects]


def outcome(call):
    with contextlib.suppress(IndexRangeError, ValueError, DonationError, TreeError):
        call()


def test_reference_counts_stay():
    layer = Layer({"w": np.arange(8.0), "n": 2.0}, "text", parts=[np.float32(2), (1, 2)])
    index, step, marker = np.arange(3), np.float64(1), object()

    def look(layer, index, step):
        picked = layer.weight["w"][index] * step
        return layer, {"picked": picked, "sum": picked.sum()}, [Point(picked, None), ()]

    def fail(x):
        raise ValueError(f"no {marker}")

    compiled = pb.jit(look)
    donated = pb.jit(lambda tree, x: ([tree[0] + x, tree[1]], x.sum()), donate_argnums=0)
    raising = pb.jit(lambda tree: pb.pure_callback(fail, np.empty(()), tree["x"]) + tree["x"])
    tree = [np.zeros(3), np.ones(3)]
    outside = np.array([1, 2, 99])
    shape = {"x": np.ones(())}

    def calls():
        compiled(layer, index, step)
        compiled(layer=layer, index=index, step=step)
        outcome(lambda: compiled(layer, outside, step))
        outcome(lambda: compiled(layer, index, [step, "text"]))
        compiled(layer, index[:2], step)
        donated(tree, index[:3] * 1.0)
        outcome(lambda: donated([tree[0], tree[0]], tree[1]))
        outcome(lambda: raising(shape))
        donated.run_steps((tree, xs), 5, 1)
        outcome(lambda: donated.run_steps((tree, tree[1][None]), 1, 1))

    xs = np.ones((5, 3))
    held = [
        layer, layer.weight, layer.weight["w"], layer.parts, layer.parts[0], layer.parts[1], layer.name, index, step,
        outside, tree, tree[0], tree[1], xs, shape["x"], marker, None, Layer, Point, np.dtype(float), "picked",
        NotImplemented, compiled, donated, np.float64, tuple, 2.0, (),
    ]  # fmt: skip
    for _ in range(10):
        calls()
    changed, blocks = set(range(len(held))), []
    for _ in range(
        3
    ):  # what is lost with the calls is lost every time; other threads may let go of something once
        before, allocated = references(held), sys.getallocatedblocks()
        for _ in range(300):
            calls()
        gc.collect()
        changed &= {k for k, (a, b) in enumerate(zip(before, references(held))) if abs(b - a) > 20}
        blocks.append(sys.getallocatedblocks() - allocated)
    assert changed == set()
    assert min(blocks) < 1500


def test_arguments_are_held_while_the_program_runs():
    """Even if a call out of the program empties the containers that they came in."""
    tree = {"list": [np.full(1000, 3.0)], "layer": Layer(np.full(1000, 4.0))}

    def empty(x):
        tree["list"].clear()
        tree["layer"].weight = None
        tree.clear()
        gc.collect()
        np.full(1000, np.nan)
        return x

    @pb.jit
    def function(tree):
        first = pb.pure_callback(empty, np.empty(1000), tree["list"][0] * 1)
        return first + tree["list"][0] + tree["layer"].weight

    def fresh():
        tree.update(list=[np.full(1000, 3.0)], layer=Layer(np.full(1000, 4.0)))
        return tree

    for _ in range(20):
        np.testing.assert_array_equal(function(fresh()), np.full(1000, 10.0))


def test_the_collector_may_run_in_the_middle():
    """What it calls may change the containers, and call the function itself."""
    compiled = pb.jit(lambda tree: map_tree(lambda x: x + 1, tree))
    tree = {"a": [np.zeros(2)] * 5, "b": [Layer(np.zeros(2)) for _ in range(5)]}
    compiled(tree)
    depth, ran = [0], [0]

    def collected(phase, info):
        if phase == "start" and not depth[0]:
            depth[0] += 1
            ran[0] += 1
            tree["b"].append(Layer(np.ones(2), "another"))
            tree["b"].pop(0)
            assert compiled({"a": [np.ones(2)], "b": []})["a"][0].tolist() == [2.0, 2.0]
            depth[0] -= 1

    threshold = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(3)
    try:
        for _ in range(300):
            tree["a"] = [np.zeros(2)] * 5
            tree["b"] = [Layer(np.zeros(2), "layer") for _ in range(5)]
            found = compiled(tree)
            assert [len(found["a"]), len(found["b"])] == [5, 5]
            assert {leaf.tolist()[0] for leaf in found["a"]} == {1.0}
            assert {part.weight.tolist()[0] for part in found["b"]} <= {1.0, 2.0}
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collected)
    assert ran[0] > 10


def test_threads_call_one_function():
    compiled = pb.jit(lambda tree, x: ({"w": np.tanh(tree["w"] @ tree["w"]) + x}, x.sum()))
    wrong = []

    def call(number):
        tree, x = {"w": np.full((60, 60), 0.001 * number)}, np.full((60, 60), float(number))
        expected = np.tanh(tree["w"] @ tree["w"]) + x
        for _ in range(300):
            found, total = compiled(tree, x)
            if not (np.allclose(found["w"], expected) and total == x.sum()):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_calls_it():
    compiled = pb.jit(doubled)
    tree = {"a": [a()], "b": Layer(a())}
    expected = compiled(tree)
    child = os.fork()
    if child == 0:
        found = [compiled(tree) for _ in range(3)][-1]
        os._exit(0 if np.array_equal(found["a"][0], expected["a"][0]) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_function_is_freed_with_what_it_holds():
    compiled = pb.jit(doubled)
    tree = {"a": Layer(a())}
    compiled(tree)
    compiled(tree)
    (special,) = compiled._programs.values()
    gone = weakref.ref(special.executable)
    kept = compiled.__call__
    del compiled, special
    gc.collect()
    assert kept(tree)["a"].weight.tolist() == [0.0, 2.0, 4.0]
    del kept
    gc.collect()
    assert gone() is None


# -- Errors


def test_errors_show_the_users_frames_and_one_of_the_call():
    compiled = pb.jit(lambda tree: tree["x"][tree["i"]])
    x = np.arange(3.0)
    for _ in range(2):
        with pytest.raises(IndexRangeError, match="7 at position") as caught:
            compiled({"x": x, "i": np.array([0, 7])})
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert frames[0].name == "test_errors_show_the_users_frames_and_one_of_the_call"
        assert len([f for f in frames if "/src/pullback/" in f.filename.replace("\\", "/")]) <= 1
        assert len(traceback.extract_tb(caught.value.full_traceback)) >= 1


def test_what_a_call_out_raises():
    def fail(x):
        if x > 1:
            raise ValueError("too large")
        return x

    compiled = pb.jit(lambda tree: pb.pure_callback(fail, np.empty(()), tree[0]) * 2)
    assert compiled([np.array(1.0)]) == 2
    for _ in range(3):
        with pytest.raises(ValueError, match="too large") as caught:
            compiled([np.array(2.0)])
        assert "fail" in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert compiled([np.array(0.5)]) == 1


def test_what_is_no_tree_is_refused_after_calls_too():
    compiled = pb.jit(lambda tree: tree["x"])
    compiled({"x": a()})
    with pytest.raises(TreeError, match="str"):
        compiled({"x": "text"})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TreeError, match="holds itself"):
        compiled(loop)
    deep: Any = a()
    for _ in range(400):
        deep = [deep]
    for _ in range(3):
        assert flatten(pb.jit(doubled)(deep))[0][0].tolist() == [0.0, 2.0, 4.0]


def test_traced_arguments_are_traced():
    inner = pb.jit(lambda tree: (tree["x"] ** 2).sum())
    inner({"x": a()})
    slope = pb.grad(lambda x: inner({"x": x}))(a())
    np.testing.assert_array_equal(slope, 2 * a())


# -- Runs of many steps


def momentum():
    optimiser = optim.SGD(0.1, momentum=0.9)
    model = nn.Chain(nn.Dense(3, 4), np.tanh, nn.Dense(4, 2))

    def step(model, state, x, y, scale):
        loss, gradient = pb.value_and_grad(lambda m: np.mean((m(x) - y) ** 2) * scale)(model)
        return *optimiser.update(gradient, state, model), loss

    return model, optimiser.init(model), step


def copied(tree):
    return map_tree(np.array, tree)


def run_inputs(steps, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(steps, 5, 3)).astype(np.float32), random.normal(size=(steps, 5, 2)).astype(
        np.float32
    )


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_runs_by_the_entry_are_those_by_python(steps):
    model, state, step = momentum()
    compiled, other = (pb.jit(step, donate_argnums=(0, 1), watch=2) for _ in range(2))
    x, y = run_inputs(steps)
    ours, theirs = (copied(model), copied(state)), (copied(model), copied(state))
    for _ in range(3):
        (*ours, losses), done = compiled.run_steps((*ours, x, y, 0.5), steps, (2, 3))
        (*theirs, expected), _ = other._run_steps((*theirs, x, y, 0.5), steps, (2, 3))[0]
        assert done == steps and losses.shape == (steps,) and losses.dtype == np.float32
        np.testing.assert_array_equal(losses, expected)
        same_tree(ours, theirs)
    assert compiled._runs[2, 3].function(*ours, x, y, 0.5, steps) is not NotImplemented


def test_runs_of_other_lengths_and_structures():
    compiled = pb.jit(lambda total, x: ({"t": total["t"] + x}, total["t"]), donate_argnums=0)
    total = {"t": np.zeros(2)}
    for steps in (3, 1, 5, 3, 200):
        (after, before), done = compiled.run_steps([total, np.ones((steps, 2))], steps, 1)
        assert done == steps and before.shape == (steps, 2) and after["t"] is total["t"]
    assert total["t"].tolist() == [212.0, 212.0]
    with pytest.raises(ShapeError, match="one row for each step"):
        compiled.run_steps((total, np.ones((4, 2))), 3, 1)
    (_, before), done = compiled.run_steps((total, np.ones(2)), 3)
    assert before.shape == (3, 2) and done == 3 and total["t"].tolist() == [215.0, 215.0]
    (_, before), done = compiled.run_steps((total, np.ones((0, 2))), 0, 1)
    assert before.shape == (0, 2) and done == 0
    for _ in range(2):
        with pytest.raises(DonationError, match="share memory"):
            compiled.run_steps((total, np.broadcast_to(total["t"], (1, 2))), 1, 1)
    block = np.zeros(8)
    compiled.run_steps(({"t": block[:2]}, block[2:4].reshape(1, 2)), 1, 1)
    with pytest.raises(DonationError, match="share memory"):  # the same addresses, but more of them
        compiled.run_steps(({"t": block[4:6]}, block[2:6].reshape(2, 2)), 2, 1)
    for wrong in (True, 2.0, -1):
        with pytest.raises((TypeError, ValueError, ShapeError, TreeError)):
            compiled.run_steps((total, np.ones((1, 2))), wrong, [1, 1])


def test_a_watched_loss_ends_a_run():
    compiled = pb.jit(lambda w, x: (w + x, np.log(x).sum()), donate_argnums=0, watch=1)
    w = np.zeros(1)
    for start in (0.0, 8.0):
        (w, losses), done = compiled.run_steps((w, np.array([[1.0], [3.0], [0.0], [5.0]])), 4, 1)
        assert done == 3 and w.tolist() == [start / 2 + 4.0] and losses.shape == (4,)


def test_an_index_outside_ends_a_run():
    compiled = pb.jit(lambda w, i: (w.at[i].add(1.0) if hasattr(w, "at") else w + w[i], i), donate_argnums=0)
    w = np.ones(4)
    for bad in (9, 8):
        with pytest.raises(IndexRangeError, match=str(bad)):
            compiled.run_steps((w, np.array([0, bad])), 2, 1)
        compiled.run_steps((w, np.array([0, 1])), 2, 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_ctrl_c_ends_a_run_by_the_entry():
    compiled = pb.jit(lambda total, x: (total + np.tanh(x), x.sum()), donate_argnums=0)
    total, x = np.zeros(40_000), np.ones(40_000)
    compiled.run_steps((total, x), 1)
    steps = 200_000
    before = references([x])

    def interrupt(number, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        start = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            for _ in range(100):
                compiled.run_steps((total, x), steps // 100)
        assert time.perf_counter() - start < 30
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert references([x]) == before
    compiled.run_steps((total, x), 2)


def test_a_compiled_function_is_called_by_what_its_slot_holds():
    compiled = pb.jit(lambda x, y=2.0: x * y)
    for _ in range(3):
        assert compiled(3.0) == compiled(x=3.0) == compiled(2.0, y=3.0) == compiled(y=3.0, x=2.0) == 6
    again = copy.copy(compiled)
    compiled.__call__ = lambda *arguments, **keywords: (arguments, keywords)
    assert compiled(1, *(2, 3), key=4, word=5) == ((1, 2, 3), {"key": 4, "word": 5})
    assert again(3.0) == 6
    with pytest.raises(TypeError, match="argument"):
        again(1.0, 2.0, 3.0)
