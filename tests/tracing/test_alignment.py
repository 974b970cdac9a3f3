"""Arrays that begin at multiples of 64 bytes: which are copied, and who makes them so."""

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.tracing import flatten, new_aligned


def begins(array):
    return array.ctypes.data % 64


def elsewhere(shape, dtype=np.float32):
    """An array that begins 16 bytes behind a multiple of 64, as NumPy's large ones do."""
    memory = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 128, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % 64 + 16)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5, 7), (300, 41)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.bool_, np.complex64, "<U3"])
def test_an_array_is_made_where_vectors_begin(shape, dtype):
    found = new_aligned(shape, dtype, np.zeros)
    assert found.shape == shape and found.dtype == dtype and begins(found) == 0
    assert found.flags.c_contiguous and found.flags.writeable and not found.any()


def test_an_array_that_begins_elsewhere_is_copied():
    given = elsewhere((8, 5))
    given[...] = np.arange(40).reshape(8, 5)
    found = pb.aligned(given)
    assert begins(given) == 16 and begins(found) == 0 and not np.shares_memory(found, given)
    np.testing.assert_array_equal(found, given)


def test_an_array_that_begins_there_stays_itself():
    given = new_aligned((8, 5), np.float32)
    assert pb.aligned(given) is given


def test_an_array_in_another_order_is_copied_into_rows():
    given = new_aligned((8, 16), np.float32, np.zeros).T
    found = pb.aligned(given)
    assert found.flags.c_contiguous and begins(found) == 0 and found.shape == (16, 8)


def test_a_tree_keeps_its_structure_and_what_is_no_array():
    tree = {"w": elsewhere((3,)), "rate": 0.5, "none": None, "pair": (np.float32(2), elsewhere((2, 2)))}
    found = pb.aligned(tree)
    assert found["rate"] == 0.5 and found["none"] is None and isinstance(found["pair"][0], np.float32)
    assert begins(found["w"]) == begins(found["pair"][1]) == 0


def test_parameters_states_and_what_is_read_begin_there(tmp_path):
    model = nn.Chain(nn.Conv2d(1, 3, 3), nn.flatten, nn.Dense(27, 200), nn.Embedding(50, 20))
    state = optim.Adam(0.1).init(model)
    pb.save(model, tmp_path / "model.safetensors")
    again = pb.load(tmp_path / "model.safetensors", like=model)
    for tree in (model, state, again):
        assert [begins(leaf) for leaf in flatten(tree)[0] if leaf.ndim] == [0] * sum(
            leaf.ndim > 0 for leaf in flatten(tree)[0]
        )


def test_a_donated_argument_that_is_aligned_stays_in_its_memory():
    step = pb.jit(lambda w, x: w - 0.5 * x, donate_argnums=0)
    weights = pb.aligned(elsewhere((100, 30)))
    assert np.shares_memory(step(weights, np.ones((100, 30), np.float32)), weights)
