"""Keys and random numbers: the same bits everywhere, and the distributions that they should have."""

import math

import numpy as np
import pytest

from pullback import jit, random, trace, vmap
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.errors import DTypeError, ShapeError
from pullback.graph import Type, Variable
from pullback.operators.random import threefry

KEY = random.key(2024)


@pytest.fixture
def threads():
    """A function that sets the number of threads until the test is over."""
    before = get_num_threads()
    yield set_num_threads
    set_num_threads(before)


def farthest(values, distribution):
    """Kolmogorov's statistic: the farthest that the values' distribution is from the one they should have."""
    values = np.sort(np.asarray(values, np.float64).ravel())
    expected = distribution(values)
    count = len(values)
    above, below = np.arange(1, count + 1) / count - expected, expected - np.arange(count) / count
    return max(above.max(), below.max())


def limit(count):
    """What Kolmogorov's statistic exceeds once in ten thousand times."""
    return math.sqrt(-math.log(1e-4 / 2) / (2 * count))


normal_distribution = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))))

EXACT = {
    "bits": lambda key: random.bits(key, (5, 7)),
    "second word": lambda key: random.bits(key, (70,), 1),
    "a scalar": random.bits,
    "nothing": lambda key: random.bits(key, (3, 0)),
    "fold_in": lambda key: random.fold_in(key, 2**40 + 3),
    "split": lambda key: random.split(key, 5),
    "uniform": lambda key: random.uniform(key, (3, 11)),
    "uniform float64": lambda key: random.uniform(key, (3, 11), dtype=np.float64),
    "uniform in bounds": lambda key: random.uniform(key, (3, 111), -0.3, 0.7),
    "uniform in bounds float64": lambda key: random.uniform(key, (3, 111), -0.3, 0.7, np.float64),
    "normal": lambda key: random.normal(key, (7, 1000)),
    "normal float64": lambda key: random.normal(key, (7, 1000), np.float64),
    "a normal scalar": random.normal,
    "normal from a sum": lambda key: 0.1 + random.normal(key, (1000,)),
    "bernoulli": lambda key: random.bernoulli(key, 0.3, (100,)),
    "always": lambda key: random.bernoulli(key, 1.0, (100,)),
    **{f"permutation of {n}": lambda key, n=n: random.permutation(key, n) for n in (0, 1, 2, 50, 64, 300)},
    "never": lambda key: random.bernoulli(key, 0.0, (100,)),
}


@pytest.mark.parametrize("draw", EXACT.values(), ids=EXACT)
def test_at_once_traced_and_compiled_they_are_the_same_bits(draw):
    at_once = draw(KEY)
    traced = trace(draw, KEY).evaluate([KEY])
    compiled = jit(draw)(KEY)
    assert at_once.dtype == traced.dtype == compiled.dtype
    np.testing.assert_array_equal(traced, at_once)
    np.testing.assert_array_equal(compiled, at_once)


def test_any_number_of_threads_gives_the_same_bits(threads):
    draw = jit(lambda key: (random.bits(key, (300, 1000)), random.normal(key, (300, 1000))))
    expected = random.bits(KEY, (300, 1000))
    first = None
    for number in (1, 2, 3):
        threads(number)
        bits, normal = draw(KEY)
        np.testing.assert_array_equal(bits, expected)
        first = normal if first is None else first
        np.testing.assert_array_equal(normal, first)


def test_a_number_follows_from_its_place():
    """A longer array begins as a shorter one, whatever their shapes."""
    np.testing.assert_array_equal(random.bits(KEY, (4, 6)).ravel(), random.bits(KEY, 30)[:24])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_hundred_thousand_keys_give_the_same_bits_compiled(dtype):
    """One number of each key, and some of a few keys as they come at once."""

    def draw(keys):
        return vmap(lambda key: (random.normal(key, (2,), dtype), random.uniform(key, (), -1.7, 3.1, dtype)))(
            keys
        )

    keys = random.split(KEY, 100_000)
    interpreted = trace(draw, keys).evaluate([keys])
    for compiled, expected in zip(jit(draw)(keys), interpreted, strict=True):
        assert compiled.tobytes() == expected.tobytes()
    for k in range(0, 100_000, 10_007):
        assert random.normal(keys[k], (2,), dtype).tobytes() == interpreted[0][k].tobytes()
        assert random.uniform(keys[k], (), -1.7, 3.1, dtype).tobytes() == interpreted[1][k].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_uniform_is_uniform(dtype, seed):
    values = random.uniform(random.key(seed), (200, 250), dtype=dtype)
    assert values.dtype == dtype and values.min() >= 0 and values.max() < 1
    assert farthest(values, lambda x: x) < limit(values.size)
    neighbours = np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 4 / math.sqrt(values.size)
    stretched = random.uniform(random.key(seed), (200, 250), -3, 5, dtype)
    np.testing.assert_allclose(stretched, 8 * values.astype(np.float64) - 3, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_is_normal(dtype):
    values = random.normal(KEY, (50000,), dtype)
    assert values.dtype == dtype and farthest(values, normal_distribution) < limit(values.size)
    assert 3.5 < np.abs(values).max() < 6.8


@pytest.mark.parametrize("probability", [0.0, 1e-3, 0.2, 0.5, 0.9, 1.0])
def test_bernoulli_has_its_probability(probability):
    count = 100_000
    found = random.bernoulli(KEY, probability, (count,)).mean()
    assert abs(found - probability) <= 4 * math.sqrt(probability * (1 - probability) / count)


def test_keys_and_their_numbers_are_unrelated():
    first, second = random.split(KEY)
    drawn = [random.uniform(key, (20000,)) for key in (KEY, first, second, random.fold_in(KEY, 7))]
    drawn.append(random.bits(KEY, (20000,), 1) * 2.0**-32)
    correlations = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlations).max() < 4 / math.sqrt(20000)


def test_keys_differ():
    keys = {tuple(random.fold_in(KEY, n)) for n in range(2000)} | {tuple(random.key(s)) for s in range(2000)}
    assert len(keys) == 4000
    np.testing.assert_array_equal(random.split(KEY, 3)[2], random.fold_in(KEY, 2))
    words = set(zip(random.bits(KEY, 2000).tolist(), random.bits(KEY, 2000, 1).tolist()))
    assert not words & keys, "a key must not be what its parent draws"


def test_the_number_folded_in_may_be_traced():
    fold = jit(random.fold_in)
    for number in (0, 5, 2**33 + 1):
        np.testing.assert_array_equal(fold(KEY, np.int64(number)), random.fold_in(KEY, number))
    np.testing.assert_array_equal(fold(KEY, np.uint8(5)), random.fold_in(KEY, 5))


def test_positions_have_64_bits(loop_value):
    """Beyond 2³² numbers the upper half of the counter goes on; the end of such an array, without the rest."""
    rows, columns = 2**31, 4
    key = Variable(Type(np.dtype(np.uint32), (2,)), "key")
    last = random.bits(key, (rows, columns))[rows - 2 :]
    high, low = np.divmod(np.arange(rows * columns - 8, rows * columns).reshape(2, 4), 2**32)
    blocks = [np.full((2, 4), word, np.uint32) for word in KEY]
    blocks += [high.astype(np.uint32), low.astype(np.uint32)]
    np.testing.assert_array_equal(loop_value(last, {key: KEY}), threefry.reference(*blocks, word=0))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: random.key(-1), ValueError),
        (lambda: random.key(2**64), ValueError),
        (lambda: random.key(1.5), TypeError),
        (lambda: random.bits(np.zeros(3, np.uint32)), ShapeError),
        (lambda: random.normal(KEY, (2, -1)), ShapeError),
        (lambda: random.uniform(KEY, -1), ShapeError),
        (lambda: random.bits(np.zeros(2, np.int64)), DTypeError),
        (lambda: random.bits(5), DTypeError),
        (lambda: random.bernoulli(5, 1.0), DTypeError),
        (lambda: random.fold_in(KEY, 1.5), DTypeError),
        (lambda: random.fold_in(KEY, [1, 2]), DTypeError),
        (lambda: random.uniform(KEY, dtype=np.int32), DTypeError),
        (lambda: random.normal(KEY, dtype=np.float16), DTypeError),
        (lambda: random.bernoulli(KEY, 1.5), ValueError),
        (lambda: random.bernoulli(KEY, math.nan), ValueError),
    ],
)
def test_what_does_not_fit(make, error):
    with pytest.raises(error):
        make()


def test_every_order_is_equally_likely():
    count = 6000
    orders = [tuple(random.permutation(key, 3).tolist()) for key in random.split(KEY, count)]
    found = {order: orders.count(order) for order in set(orders)}
    assert len(found) == 6
    # Six standard deviations of a binomial distribution.
    assert max(abs(times - count / 6) for times in found.values()) < 6 * math.sqrt(count * 5 / 36)
    assert sorted(random.permutation(KEY, 1000).tolist()) == list(range(1000))
    with pytest.raises(ValueError, match="count -1"):
        random.permutation(KEY, -1)
