"""Models in files: what goes in comes out, and what does not fit is named."""

import numpy as np
import pytest

from pullback import load, nn, save
from pullback.errors import DataError, OutputError, TreeError
from pullback.tracing import flatten


def model(hidden=4, seed=0):
    random = np.random.default_rng(seed)
    return nn.Chain(nn.RNN(3, hidden, seed=random), np.tanh, nn.Dense(hidden, 2, bias=False, seed=random))


def test_a_model_comes_back_whole(tmp_path):
    saved, like = model(), model(seed=1)
    before = like[0].bias.copy()
    save(saved, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors", like=like)
    for found, expected in zip(flatten(loaded)[0], flatten(saved)[0]):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype and found.flags.writeable
    np.testing.assert_array_equal(like[0].bias, before)
    x = np.ones((5, 6, 3), np.float32)
    np.testing.assert_array_equal(loaded(x), saved(x))


def test_any_tree_of_arrays(tmp_path):
    tree = {"a": [np.arange(3), np.float32(2.5)], "b": {"c": 1.5}}
    save(tree, tmp_path / "tree.safetensors")
    assert sorted(load(tmp_path / "tree.safetensors")) == ["a.0", "a.1", "b.c"]
    loaded = load(tmp_path / "tree.safetensors", like=tree)
    assert loaded["a"][0].tolist() == [0, 1, 2] and loaded["a"][1] == 2.5 and loaded["b"]["c"] == 1.5


def test_a_single_array(tmp_path):
    save(np.arange(3.0), tmp_path / "array.safetensors")
    assert load(tmp_path / "array.safetensors", like=np.zeros(3)).tolist() == [0, 1, 2]


def test_another_size_names_the_arrays(tmp_path):
    save(model(), tmp_path / "model.safetensors")
    with pytest.raises(
        DataError, match=r"'layers.0.input_weight' is float32\[3, 4\], expected float32\[3, 5\]"
    ):
        load(tmp_path / "model.safetensors", like=model(hidden=5))


def test_another_structure_names_the_arrays(tmp_path):
    save(model(), tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"'layers\.0\.weight' is missing"):
        load(tmp_path / "model.safetensors", like=nn.Chain(nn.Dense(3, 4)))


def test_a_truncated_file(tmp_path):
    path = tmp_path / "model.safetensors"
    save(model(), path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="truncated"):
        load(path, like=model())


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(
        TreeError, match=r"\[save\] the tree is 'model'.* comes second: save\(model, 'model'\)"
    ):
        save("model", model())
    with pytest.raises(TreeError, match="no arrays"):
        save(nn.Chain(np.tanh), tmp_path / "model.safetensors")
    with pytest.raises(TreeError, match=r"named 'a\.b'"):
        save({"a": {"b": np.ones(1)}, "a.b": np.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(OutputError, match="missing"):
        save(model(), tmp_path / "missing" / "model.safetensors")
    assert list(tmp_path.iterdir()) == []
