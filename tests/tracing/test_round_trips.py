"""Nothing of a tree is lost on its way through a transformation, a compiled function or a file."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, namedtuple
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import TreeError
from pullback.tracing import flatten, map_tree


class Scaled(nn.Module):
    factor = 1.0

    def __init__(self):
        self.factor = 5.0
        self.table = np.array([1.0, 2.0])
        self.name = "scaled"

    def __call__(self, x):
        return self.factor * x + self.table.sum() * 0.0


@dataclasses.dataclass
class Rectangle:
    width: float
    height: float
    doubled: float = dataclasses.field(init=False, default=0.0)

    def __post_init__(self):
        self.doubled = 2 * self.width
        self.area = self.width * self.height

    @cached_property
    def diagonal(self):
        return np.hypot(self.width, self.height)


class Cuboid(Rectangle):
    """A subclass that is not decorated."""

    def __init__(self, width, height, depth):
        super().__init__(width, height)
        self.depth = depth


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: float

    def __post_init__(self):
        object.__setattr__(self, "y", self.x + 1)


@dataclasses.dataclass(slots=True)
class Slots:
    x: float


class SlotsAndMore(Slots):
    __slots__ = ("_other", "missing")

    def __init__(self, x, other):
        self.x, self._other = x, other


class Point(NamedTuple):
    x: float
    y: float


class Pair(namedtuple("Pair", "left right")):
    def __new__(cls, both):
        return super().__new__(cls, both, both)


class Numbers(list):
    def __init__(self, *numbers, unit):
        super().__init__(numbers)
        self.unit = unit


class Settings(dict):
    def __init__(self, owner, **values):
        super().__init__(values)
        self.owner = owner


def default_dict():
    tree = defaultdict(float)
    tree.update(b=1.0, a=2.0)
    return tree


TREES = {
    "module": Scaled(),
    "dataclass": Rectangle(3.0, 4.0),
    "subclass": Cuboid(3.0, 4.0, 5.0),
    "frozen": Frozen(1.0),
    "slots": Slots(1.0),
    "more slots": SlotsAndMore(1.0, 2.0),
    "named tuple": Point(1.0, 2.0),
    "own constructor": Pair(1.0),
    "list": Numbers(1.0, 2.0, unit="m"),
    "dict": Settings("me", b=1.0, a=2.0),
    "order": {"b": 1.0, "a": 2.0},
    "ordered": OrderedDict(b=1.0, a=2.0),
    "default": default_dict(),
    "counter": Counter(b=1.0, a=2.0),
    "nested": [({"z": Rectangle(1.0, 2.0)}, None)],
}


def contents(tree):
    """All that an object holds, in comparable form."""
    if isinstance(tree, dict):
        held = [(key, contents(value)) for key, value in tree.items()]
    elif isinstance(tree, (list, tuple)):
        held = [contents(value) for value in tree]
    elif isinstance(tree, (np.ndarray, np.generic)):
        return tree.tolist()
    else:
        held = [] if hasattr(tree, "__dict__") or hasattr(tree, "__slots__") else tree
    names = sorted({*getattr(tree, "__dict__", ()), *getattr(type(tree), "__slots__", ()), *dir_slots(tree)})
    beside = [(name, contents(getattr(tree, name))) for name in names if hasattr(tree, name)]
    return type(tree).__name__, held, beside


def dir_slots(tree):
    return [
        name
        for base in type(tree).__mro__
        for name in base.__dict__.get("__slots__", ())
        if name != "__dict__"
    ]


def numbers_as_python(tree):
    return map_tree(lambda leaf: leaf.tolist() if isinstance(leaf, np.generic) else leaf, tree)


@pytest.mark.parametrize("name", TREES)
def test_trees_come_back_as_they_were(name, tmp_path):
    tree = TREES[name]
    expected = contents(tree)
    assert contents(map_tree(lambda leaf: leaf, tree)) == expected
    assert contents(numbers_as_python(pb.jit(lambda tree: tree)(tree))) == expected
    _, extra = pb.grad(lambda x, tree: (x * 1.0, tree), has_aux=True)(1.0, tree)
    assert contents(numbers_as_python(extra)) == expected
    pb.save(tree, tmp_path / "tree.safetensors")
    loaded = pb.load(tmp_path / "tree.safetensors", like=tree)
    assert contents(map_tree(lambda leaf: leaf.tolist(), loaded)) == contents(
        map_tree(lambda leaf: np.asarray(leaf).tolist(), tree)
    )


def total(tree):
    return sum(np.sum(leaf) for leaf in flatten(tree)[0])


@pytest.mark.parametrize("name", TREES)
def test_gradients_have_the_class_and_the_names_of_their_tree(name):
    gradient = pb.grad(total)(TREES[name])
    assert type(gradient) is type(TREES[name])
    assert flatten(gradient)[1] == flatten(TREES[name])[1]
    assert all(np.all(leaf == 1.0) for leaf in flatten(gradient)[0])


def test_attributes_that_are_no_fields_are_computed_with():
    model = Scaled()
    assert pb.jit(lambda model, x: model(x))(model, 1.0) == model(1.0) == 5.0
    assert pb.grad(lambda model: model(3.0))(model).factor == 3.0
    assert flatten(model)[1].paths == ["factor", "table"]


def test_a_changed_attribute_makes_another_program():
    model, call = Scaled(), pb.jit(lambda model: len(model.name))
    assert call(model) == 6
    model.name = "other name"
    assert call(model) == 10


def test_what_a_cached_property_keeps_is_computed_anew():
    rectangle = Rectangle(3.0, 4.0)
    assert rectangle.diagonal == 5.0
    longer = map_tree(lambda leaf: 2 * leaf, rectangle)
    assert longer.diagonal == 10.0
    assert pb.grad(lambda r: r.diagonal)(rectangle).width == pytest.approx(0.6)


def test_dicts_are_walked_in_the_order_of_the_caller():
    def through(layers, x):
        for weight in layers.values():
            x = np.sin(weight * x)
        return x

    layers = {"layer2": 2.0, "layer10": 10.0, "last": 3.0}
    assert pb.jit(through)(layers, 1.0) == pytest.approx(through(layers, 1.0))
    turned = dict(reversed(layers.items()))
    compiled = pb.jit(through)
    assert compiled(layers, 1.0) != pytest.approx(compiled(turned, 1.0))
    assert list(pb.grad(through)(layers, 1.0)) == list(layers)


def test_a_missing_field_is_named():
    @dataclasses.dataclass
    class Late:
        x: float = dataclasses.field(init=False)

    with pytest.raises(TreeError, match=r"a Late lacks a field: .*'x'; set it"):
        flatten(Late())


def test_a_dataclass_that_is_a_list_is_refused():
    @dataclasses.dataclass
    class Both(list):
        x: float = 1.0

    with pytest.raises(TreeError, match=r"Both is a dataclass and a list"):
        flatten(Both())


def change_dict(tree):
    tree["w"] = tree["w"] * 2.0
    return tree["w"]


def add_key(tree):
    tree["new"] = tree["w"]
    return tree["w"]


def change_attribute(tree):
    tree["model"].factor = tree["w"]
    return tree["w"]


def grow(tree):
    tree["list"].append(tree["w"])
    return tree["w"]


@pytest.mark.parametrize("change", [change_dict, add_key, change_attribute, grow])
@pytest.mark.parametrize(
    "transform", [pb.jit, pb.grad, lambda f: pb.vmap(f, ({"w": 0, "model": None, "list": None},))]
)
def test_changes_of_arguments_are_refused(change, transform):
    w = np.ones(2) if transform not in (pb.jit, pb.grad) else 1.0
    with pytest.raises(TreeError, match=r"changes an argument, .* return what is new"):
        transform(change)({"w": w, "model": Scaled(), "list": []})
