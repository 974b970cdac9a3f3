"""Memory of results that were let go: taken again when nobody reads it, never before, and only so much waits."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.recycling import LEAST_KEPT, LIST_BITS, MOST_KEPT, MOST_LOOKED_AT, SCATTERING
from pullback.ownership import owns_memory
from pullback.tracing.trace import owned

SIZE = 8191  # elements; no other test has results of so many bytes


@pytest.fixture
def doubled():
    function = pb.jit(lambda x: 2 * x)
    function(ones(1))
    return function


def ones(value, size=SIZE):
    return np.full(size, value, np.float32)


def address(array):
    return array.ctypes.data


def test_memory_that_was_let_go_is_taken_again(doubled):
    first = address(doubled(ones(1)))
    assert {address(doubled(ones(k))) for k in range(5)} == {first}


def test_memory_that_is_read_is_not(doubled):
    held = [doubled(ones(k)) for k in range(20)]
    assert len({address(array) for array in held}) == 20
    for k, array in enumerate(held):
        np.testing.assert_array_equal(array, ones(2 * k))


@pytest.mark.parametrize(
    "part",
    [
        lambda a: a[5:9],
        memoryview,
        lambda a: a.reshape(-1, 1).T,
        lambda a: np.frombuffer(a, np.int32),
        iter,
    ],
    ids=["view", "buffer", "views of views", "other type", "iterator"],
)
def test_whatever_reads_a_part_of_it_holds_all(doubled, part):
    result = doubled(ones(3))
    place, left = address(result), part(result)
    del result
    others = [doubled(ones(7)) for _ in range(3)]
    assert place not in {address(array) for array in others}
    del left
    assert address(doubled(ones(1))) == place


def test_results_are_like_other_arrays(doubled):
    result = doubled(ones(1))
    assert type(result) is np.ndarray
    assert result.flags.c_contiguous and result.flags.writeable and result.flags.aligned
    result += 1
    np.testing.assert_array_equal(result, ones(3))


def test_results_own_their_memory_and_views_do_not(doubled):
    result = doubled(ones(1))
    assert (
        owns_memory(result)
        and not owns_memory(result[:])
        and not owns_memory(np.frombuffer(result, np.int32))
    )


def test_results_that_pass_through_a_transformation_are_not_copied(doubled):
    result = doubled(ones(1))
    assert np.shares_memory(owned([result], [])[0], result)
    assert not np.shares_memory(owned([result[:]], [])[0], result)


def list_of(size):
    return (4 * size * SCATTERING % 2**64) >> (64 - LIST_BITS)


def test_sizes_that_share_a_list_are_told_apart(doubled):
    sizes = [size for size in range(SIZE, 4 * SIZE) if list_of(size) == list_of(SIZE)][:3]
    places = {size: address(doubled(ones(1, size))) for size in sizes}
    for size in (sizes[1], sizes[0], sizes[2], sizes[1]):
        result = doubled(ones(4, size))
        assert address(result) == places[size]
        np.testing.assert_array_equal(result, ones(8, size))
        del result


def test_sizes_fall_into_many_lists():
    assert len({list_of(1 << k) for k in range(8, 24)}) > 8
    assert len({list_of(256 * k) for k in range(1, 65)}) > 32


def test_not_all_of_a_long_list_is_looked_at(doubled):
    other = next(size for size in range(SIZE + 1, 4 * SIZE) if list_of(size) == list_of(SIZE))
    place = address(doubled(ones(1)))
    held = [doubled(ones(k, other)) for k in range(MOST_LOOKED_AT)]
    del held
    assert address(doubled(ones(2))) != place
    assert address(doubled(ones(2))) != place  # that one went to the front


def test_small_results_are_new():
    function = pb.jit(lambda x: x + 1)
    assert function(ones(1, LEAST_KEPT // 4 - 1)).base is None
    assert function(ones(1, LEAST_KEPT // 4)).base is not None


def test_no_more_waits_than_the_limit(doubled):
    third = MOST_KEPT // 4 // 3 + 1
    several = [doubled(ones(1, third - k)) for k in range(3)]
    while several:
        several.pop()
        assert machine().recycler.held <= MOST_KEPT
    assert machine().recycler.held < MOST_KEPT // 2  # of the third the others made way
    whole = doubled(ones(1, MOST_KEPT // 4 + 1))
    before = machine().recycler.held
    del whole
    assert machine().recycler.held == before


def test_a_failed_call_gives_its_memory_back():
    picked = pb.jit(lambda x, i: 2 * x[i])
    x, good, bad = np.arange(9.0, dtype=np.float32), np.zeros(SIZE, np.int64), np.full(SIZE, 9)
    picked(x, good)
    before = machine().recycler.held
    for _ in range(3):
        with pytest.raises(IndexError):
            picked(x, bad)
    assert machine().recycler.held == before
    np.testing.assert_array_equal(picked(x, good), 0)


def test_a_result_may_be_donated():
    function = pb.jit(lambda x: x + 1, donate_argnums=0)
    result = function(ones(0))
    place = address(result)
    for _ in range(5):
        result = function(result)
    assert address(result) == place
    np.testing.assert_array_equal(result, ones(6))


def test_results_of_all_steps_of_a_run():
    function = pb.jit(lambda total, x: (total + x, 2 * x), donate_argnums=0)

    def run(steps):
        xs = np.arange(steps * 8192.0, dtype=np.float32).reshape(steps, 8192)
        (total, doubles), done = function.run_steps((np.zeros(8192, np.float32), xs), steps, 1)
        assert done == steps
        np.testing.assert_array_equal(doubles, 2 * xs)
        np.testing.assert_array_equal(total, xs.sum(0))
        return address(doubles)

    run(3)  # compiles
    assert run(3) == run(3)
    for steps in (1, 5, 3, 7):
        run(steps)


ENDING = """
import builtins, sys
import numpy as np
import pullback as pb

function = pb.jit(lambda x: [x * 2, x * 3])
builtins.kept = function(np.ones(10000, np.float32))
sys.kept = function(np.ones(20000, np.float32))[0][3:]

class Ending:
    def __del__(self):
        del self.results

ending = Ending()
ending.results = function(np.ones(30000, np.float32))
ending.itself = [ending]
function(np.ones(10000, np.float32))
"""


def test_results_that_outlive_the_library():
    """What is kept in other modules ends after this one's, when the interpreter does."""
    subprocess.run([sys.executable, "-c", ENDING], check=True, timeout=120)


def test_threads_take_and_give_at_once(doubled):
    wrong = []

    def work(number):
        held = []
        for k in range(300):
            held.append((number * 1000 + k, doubled(ones(number * 1000 + k))))
            if len(held) > 3:
                value, array = held.pop(k % 3)
                if not (array == 2 * value).all():
                    wrong.append(value)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
