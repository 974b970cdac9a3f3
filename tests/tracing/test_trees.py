"""Trees: what is a leaf where, order, rebuilding, equality, paths and errors."""

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.errors import TreeError
from pullback.graph import Type, Variable
from pullback.tracing import (
    Static,
    Structure,
    buffer,
    flatten,
    leaf_paths,
    map_tree,
    register_tree,
    static,
)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Dense:
    weights: Any
    bias: Any = None
    units: int = 3
    activation: Callable[..., Any] = np.tanh


@dataclasses.dataclass(frozen=True)
class Model:
    layers: tuple[Any, ...]
    scale: float = 2.0
    rate: float = static(default=0.5)
    name: str = "model"


@dataclasses.dataclass(slots=True)
class Slotted:
    value: Any


@dataclasses.dataclass(frozen=True)
class Normal:
    weight: Any
    running: Any = buffer()
    table: Any = buffer(unless="learned", default=None)
    learned: bool = False
    tables: Any = buffer(unless="all_learned", default=())
    all_learned: bool = static(default=False)


def model():
    return Model((Dense(np.ones(2), np.zeros(2)), np.sin, Dense(np.ones(3)), 7))


def test_the_leaves_of_containers_come_in_order():
    tree = {"b": [1.0, (2.0,)], "a": Point(3.0, {"z": 4.0}), "c": None}
    leaves, structure = flatten(tree)
    assert leaves == [3.0, 4.0, 1.0, 2.0]
    assert structure.unflatten(leaves) == tree
    assert structure.size == 4


def test_the_order_of_keys_does_not_matter():
    first, other = flatten({"a": 1, "b": 2}), flatten({"b": 3, "a": 4})
    assert first[0] == [1, 2] and other[0] == [4, 3]
    assert first[1].fits(other[1]) and other[1].paths == ["a", "b"]
    assert flatten({2: 1.0, "b": 2.0, 1: 3.0})[0] == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "leaf",
    [
        1,
        1.5,
        True,
        np.float32(2),
        np.ones(3),
        np.int8(1),
        Type(np.dtype("int8"), ()),
        Variable(Type(np.dtype(int), ())),
    ],
)
def test_leaves(leaf):
    leaves, structure = flatten(leaf)
    assert leaves[0] is leaf
    assert repr(structure) == "Structure(*)"
    assert structure.unflatten([5]) == 5


def test_subclasses_of_arrays_are_leaves():
    class Table(np.ndarray):
        pass

    table = np.ones(2).view(Table)
    assert flatten([table])[0][0] is table


def test_a_dataclass_keeps_its_numbers_and_functions():
    leaves, structure = flatten(model())
    assert [np.shape(leaf) for leaf in leaves] == [(2,), (2,), (3,), ()]
    doubled = structure.unflatten([2 * leaf for leaf in leaves])
    assert doubled.layers[1] is np.sin
    assert (doubled.layers[3], doubled.scale, doubled.rate, doubled.name) == (7, 4.0, 0.5, "model")
    np.testing.assert_array_equal(doubled.layers[0].weights, [2.0, 2.0])
    assert doubled.layers[2].bias is None


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 0.25},
        {"name": "other"},
        {"layers": (Dense(np.ones(2), np.zeros(2)), np.cos, Dense(np.ones(3)), 7)},
        {"layers": (Dense(np.ones(2), np.zeros(2), units=4), np.sin, Dense(np.ones(3)), 7)},
        {"layers": (Dense(np.ones(2), np.zeros(2)), np.sin, Dense(np.ones(3)), 8)},
        {"layers": (Dense(np.ones(2), np.zeros(2)), np.sin, Dense(np.ones(3)), True)},
        {"layers": [Dense(np.ones(2), np.zeros(2)), np.sin, Dense(np.ones(3)), 7]},
    ],
    ids=str,
)
def test_what_is_static_makes_another_structure(change):
    structure = flatten(model())[1]
    other = flatten(dataclasses.replace(model(), **change))[1]
    assert structure == flatten(model())[1]
    assert hash(structure) == hash(flatten(model())[1])
    assert structure != other


def test_values_do_not_make_another_structure():
    assert flatten(model())[1] == flatten(map_tree(lambda leaf: leaf + 1, model()))[1]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, False)])
def test_equal_numbers_of_other_types_are_not_the_same_static_value(one, other):
    assert flatten(Static(one))[1] != flatten(Static(other))[1]
    assert flatten(Model((), rate=one))[1] != flatten(Model((), rate=other))[1]


def test_a_rebuilt_dataclass_is_not_initialised_again():
    @dataclasses.dataclass
    class Once:
        value: Any
        made: int = 0

        def __post_init__(self):
            self.made += 1

    assert map_tree(lambda leaf: leaf, Once(1.0)).made == 1


def test_slots_and_empty_dataclasses():
    @dataclasses.dataclass
    class Empty:
        pass

    assert map_tree(lambda leaf: leaf + 1, Slotted(1.0)).value == 2.0
    assert isinstance(map_tree(lambda leaf: leaf, Empty()), Empty)


def test_dictionaries_of_other_classes():
    ordered = OrderedDict(z=1, a=2)
    assert flatten(ordered)[0] == [1, 2]
    assert list(map_tree(lambda leaf: leaf, ordered)) == ["z", "a"]
    counts = defaultdict(list, b=1, a=2)
    rebuilt = map_tree(lambda leaf: leaf + 1, counts)
    assert rebuilt == {"a": 3, "b": 2}
    assert rebuilt["new"] == []


def test_registered_classes():
    class Pair:
        def __init__(self, left, right, label):
            self.left, self.right, self.label = left, right, label

    register_tree(
        Pair, lambda pair: ((pair.left, pair.right), pair.label), lambda label, parts: Pair(*parts, label)
    )
    leaves, structure = flatten([Pair(1, {"x": 2}, "one")])
    assert leaves == [1, 2]
    assert structure.unflatten([3, 4])[0].right == {"x": 4}
    assert structure != flatten([Pair(1, {"x": 2}, "two")])[1]
    assert structure.paths == ["0.0", "0.1.x"]


def test_paths():
    assert leaf_paths(model()) == ["layers.0.weights", "layers.0.bias", "layers.2.weights", "scale"]
    assert leaf_paths({"a": Point(1, [2]), 3: 4.0}) == ["3", "a.x", "a.y.0"]
    assert leaf_paths(defaultdict(list, b=1)) == ["b"]
    assert leaf_paths(1.0) == [""]
    assert flatten([1.0, Slotted(2.0)])[1].in_dataclass == [False, True]


def test_reading_a_structure():
    assert repr(flatten(({"a": [1]}, Point(1, None)))[1]) == "Structure(({'a': [*]}, Point(x=*, y=None)))"
    assert repr(flatten(Model((1.0,)))[1]) == "Structure(Model(layers=(*,), scale=*, name='model', rate=0.5))"


def test_map_over_several_trees():
    assert map_tree(lambda *leaves: sum(leaves), [1, {"a": 2}], [10, {"a": 20}], [100, {"a": 200}]) == [
        111,
        {"a": 222},
    ]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([1, {"a": 2, "b": 3}], r"at 1: \{'a': \*\} against \{'a': \*, 'b': \*\}"),
        ([1, 2], r"at 1: \{'a': \*\} against \*"),
        ((1, {"a": 2}), "at the root"),
        ([1, {"a": (2,)}], r"at 1\.a: \* against \(\*,\)"),
        ([1, {"a": 2}, 3], "at the root"),
    ],
)
def test_trees_that_differ(other, message):
    with pytest.raises(TreeError, match=message):
        map_tree(lambda x, y: x, [1, {"a": 2}], other)


@pytest.mark.parametrize("value", ["text", np.sin, {1, 2}, object()])
def test_what_is_no_leaf(value):
    with pytest.raises(TreeError, match=f"holds a {type(value).__name__}.*static argument"):
        flatten([1.0, value])


def test_static_values_must_be_comparable():
    structure = flatten(Model((), rate=[1, 2]))[1]
    with pytest.raises(TreeError, match=r"unhashable.*tuple"):
        hash(structure)


def test_the_number_of_leaves_must_fit():
    structure = flatten([1, 2])[1]
    with pytest.raises(TreeError, match="too few"):
        structure.unflatten([1])
    with pytest.raises(TreeError, match="too many"):
        structure.unflatten([1, 2, 3])


def test_structures_are_not_equal_to_other_things():
    assert flatten(1)[1] != "*"
    assert isinstance(flatten(1)[1], Structure)


TREES = st.recursive(
    st.floats(-1, 1) | st.integers(-5, 5) | st.none(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Dense, inner, inner),
    ),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(TREES)
def test_any_tree_can_be_rebuilt(tree):
    leaves, structure = flatten(tree)
    assert structure.unflatten(leaves) == tree
    assert len(leaves) == structure.size == len(structure.paths)
    again = flatten(structure.unflatten(leaves))[1]
    assert again == structure
    assert hash(again) == hash(structure)


def test_what_is_in_a_buffer_is_not_trained():
    one = np.ones(1)
    assert flatten(Normal(one, one))[1].trained == [True, False]
    assert flatten(Normal(one, one, one))[1].trained == [True, False, False]
    assert flatten(Normal(one, one, one, learned=True))[1].trained == [True, False, True]
    assert flatten(Normal(one, None, tables=(one, one)))[1].trained == [True, False, False]
    assert flatten(Normal(one, None, tables=(one, one), all_learned=True))[1].trained == [True, True, True]


def test_buffers_hold_whole_trees_and_stand_in_any():
    one = np.ones(1)
    inner = Normal(one, Dense(one, one), Normal(one, one), learned=True)
    assert flatten({"a": [inner], "b": one})[1].trained == [True, False, False, True, False, True]
    assert flatten(Normal(None, inner))[1].trained == [False] * 5
    changed = map_tree(lambda a: a + 1, inner)
    assert flatten(changed)[1] == flatten(inner)[1] and changed.running.bias[0] == 2
    assert flatten(Point(one, 2.0))[1].trained == [True, True]


def test_a_tree_that_holds_itself_or_has_no_end():
    inside = []
    inside.append(inside)
    deep = np.ones(2)
    for _ in range(20_000):
        deep = [deep]
    for tree in (inside, deep, {"a": inside}):
        with pytest.raises(TreeError, match="nested too deep for a tree, or holds itself"):
            flatten(tree)


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, True), ((1,), (1.0,)), ((0.0,), (-0.0,))])
def test_static_fields_that_are_equal_but_not_the_same(one, other):
    @dataclasses.dataclass
    class Scaled:
        by: object = static()

    assert one == other
    assert flatten(Scaled(one))[1] == flatten(Scaled(one))[1]
    assert flatten(Scaled(one))[1] != flatten(Scaled(other))[1]
    assert repr(flatten(Scaled(other))[1].unflatten([]).by) == repr(other)


class Foreign:
    """An array of another library."""

    def __array__(self, dtype=None, copy=None):
        return np.ones(2, dtype)


@pytest.mark.parametrize(
    "tree", [Foreign(), [Foreign()], Dense(Foreign(), np.ones(1))], ids=["leaf", "list", "field"]
)
def test_arrays_of_other_libraries_are_no_leaves_and_no_structure(tree):
    with pytest.raises(TreeError, match=r"holds a Foreign of \w+; make it a NumPy array, np.asarray\(x\)"):
        flatten(tree)
