"""Losses of sequences against all alignments written out, and numbers of PyTorch and optax."""

import itertools
from functools import partial

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, IndexRangeError, NamedAxisError, ShapeError
from pullback.testing import check_grads

LOGITS = 2 * np.sin(1.7 * np.arange(40)).reshape(2, 5, 4)
LABELS = np.array([[1, 1, 3], [2, 3, 0]])
LENGTHS = {"logit_lengths": np.array([5, 4]), "label_lengths": np.array([3, 2])}

both = pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])


def run(function, *arguments, compiled):
    return (pb.jit(function) if compiled else function)(*arguments)


def left(alignment, blank):
    """What is left of an alignment: of equal classes in a row one, without blanks."""
    return [k for k, _ in itertools.groupby(alignment) if k != blank]


def loss_by_hand(z, labels, blank):
    """The loss of one sequence, alignment by alignment."""
    p = np.exp(z.astype(np.longdouble))
    p /= p.sum(axis=-1, keepdims=True)
    alignments = itertools.product(range(z.shape[1]), repeat=len(z))
    fitting = [each for each in alignments if left(each, blank) == list(labels)]
    total = sum(np.prod([row[k] for row, k in zip(p, each)]) for each in fitting)
    return float(-np.log(total)) if fitting else np.inf


@both
def test_values_and_gradients_are_those_of_pytorch_and_optax(compiled):
    weights = np.array([1.0, 2.0])

    def both_losses(z):
        losses = nn.ctc(z, LABELS, **LENGTHS, reduction="none")
        return np.sum(weights * losses), losses

    slopes, losses = run(pb.grad(both_losses, has_aux=True), LOGITS, compiled=compiled)
    np.testing.assert_allclose(losses, [2.943159951499192, 4.183394520603653], rtol=1e-13)
    expected = [
        [0.0838740863, -0.1677449007, 0.0664743223, 0.0173964921],
        [-0.448092452, 0.3822819029, 0.030221651, 0.0355888981],
        [0.3134143997, -0.4158381027, 0.0168532444, 0.0855704586],
        [0.3234925032, -0.2940303888, 0.0137886768, -0.0432507912],
        [0.392533544, 0.0280702609, 0.0210998056, -0.4417036104],
        [-0.7880023978, 0.0300883078, -0.5743972909, 1.3323113808],
        [-0.1630121693, 0.0292681796, -0.8626384065, 0.9963823962],
        [0.0303611097, 0.0477911403, 0.0781020792, -0.1562543292],
        [-0.0831590201, 0.0960533528, 1.5272783878, -1.5401727206],
        [0, 0, 0, 0],
    ]
    np.testing.assert_allclose(slopes.reshape(10, 4), expected, atol=2e-10)


@both
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("blank", [0, 2])
def test_all_alignments_together(dtype, tolerance, blank, compiled):
    """Of every length of both: no label, one step, more labels than steps, labels that repeat."""
    random = np.random.default_rng(11)
    places = [(steps, count) for steps in range(6) for count in range(4)]
    z = (3 * random.standard_normal((len(places), 5, 3))).astype(dtype)
    labels = random.choice([k for k in range(3) if k != blank], (len(places), 3))
    steps, counts = np.array(places).T
    options = {"logit_lengths": steps, "label_lengths": counts, "blank": blank, "reduction": "none"}
    losses = run(lambda z, y: nn.ctc(z, y, **options), z, labels, compiled=compiled)
    expected = [loss_by_hand(x[:n], y[:k], blank) for x, y, (n, k) in zip(z, labels, places)]
    assert losses.dtype == dtype and np.isinf(expected).any() and np.isfinite(expected).any()
    np.testing.assert_allclose(losses, expected, rtol=tolerance, atol=tolerance)

    slope = pb.grad(lambda z: np.sum(nn.ctc(z, labels, **options)))
    found = run(slope, z, compiled=compiled)
    assert found.dtype == dtype and np.isfinite(found).all()
    silent = np.isinf(expected)[:, None] | (np.arange(5) >= steps[:, None])
    assert not found[silent].any()


def test_derivatives():
    check_grads(lambda z: nn.ctc(z, LABELS, **LENGTHS, reduction="none"), (LOGITS,))
    check_grads(lambda z: nn.ctc(z, np.array([3, 1]), blank=2), (LOGITS[0],))


@both
def test_what_does_not_count_is_not_looked_at(compiled):
    """Steps and labels behind the end, and sequences that ``where`` leaves out, with lengths that would not do."""
    z, labels = np.concatenate([LOGITS, LOGITS]), np.concatenate([LABELS, LABELS])
    z[1, 4:] = z[2:] = np.nan
    labels[1, 2:] = labels[2:] = -7
    options = {
        "logit_lengths": np.array([5, 4, 99, 5]),
        "label_lengths": np.array([3, 2, 3, -1]),
        "where": np.array([True, True, False, False]),
    }
    whole = pb.value_and_grad(lambda z: nn.ctc(z, LABELS, **LENGTHS))(LOGITS)
    value, slope = run(pb.value_and_grad(lambda z: nn.ctc(z, labels, **options)), z, compiled=compiled)
    assert value == pytest.approx(whole[0], rel=1e-13)
    np.testing.assert_allclose(slope[:2], whole[1], rtol=1e-12, atol=1e-15)
    assert not slope[2:].any()

    only = np.array([True, False, False, False])
    first = run(lambda z: nn.ctc(z, labels, where=only), z, compiled=compiled)
    assert first == pytest.approx(nn.ctc(LOGITS[0], LABELS[0]), rel=1e-13)


@both
def test_labels_may_be_padded_with_the_blank(compiled):
    losses = run(lambda z: nn.ctc(z, LABELS, reduction="none"), LOGITS, compiled=compiled)
    expected = nn.ctc(LOGITS, LABELS, label_lengths=np.array([3, 2]), reduction="none")
    np.testing.assert_allclose(losses, expected, rtol=1e-13)


@both
def test_classes_that_are_ruled_out_have_no_part(compiled):
    z = LOGITS.copy()
    z[:, 1:3, 2] = -np.inf
    slope = pb.value_and_grad(lambda z: nn.ctc(z, LABELS, **LENGTHS))
    value, slopes = run(slope, z, compiled=compiled)
    near, near_slopes = slope(np.where(np.isinf(z), -800.0, z))
    np.testing.assert_allclose(value, near, rtol=1e-12)
    np.testing.assert_allclose(slopes, near_slopes, rtol=1e-11, atol=1e-15)


def test_the_mean_is_over_sequences():
    losses = nn.ctc(LOGITS, LABELS, **LENGTHS, reduction="none")
    assert nn.ctc(LOGITS, LABELS, **LENGTHS) == pytest.approx(losses.mean())
    assert nn.ctc(LOGITS, LABELS, **LENGTHS, reduction="sum") == pytest.approx(losses.sum())


def test_any_batch_and_any_number_of_steps():
    def losses(logits, labels):
        return nn.ctc(logits, labels, reduction="none")

    compiled = pb.jit(losses, shapes={"logits": ("batch", "steps", 4), "labels": ("batch", 3)})
    for rows, steps in ((2, 5), (1, 4), (2, 3)):
        given = LOGITS[:rows, :steps], LABELS[:rows]
        np.testing.assert_allclose(compiled(*given), losses(*given), rtol=1e-12)


def test_many_batch_axes_and_vmap():
    expected = nn.ctc(LOGITS, LABELS, reduction="none")
    folded = nn.ctc(LOGITS[:, None], LABELS[:, None], reduction="none")
    np.testing.assert_allclose(folded, expected[:, None], rtol=1e-13)
    for each in (pb.vmap(nn.ctc), pb.jit(pb.vmap(nn.ctc))):
        np.testing.assert_allclose(each(LOGITS, LABELS), expected, rtol=1e-13)


@both
@pytest.mark.parametrize(
    ("labels", "options", "what"),
    [
        ([[1, 4, 1], [1, 1, 1]], {}, "label: 4"),
        ([[1, -1, 1], [1, 1, 1]], {}, "label: -1"),
        (LABELS, {"logit_lengths": np.array([6, 1])}, "logit_lengths: 6"),
        (LABELS, {"label_lengths": np.array([3, -2])}, "label_lengths: -2"),
    ],
)
def test_labels_and_lengths_out_of_range(labels, options, what, compiled):
    with pytest.raises(IndexRangeError, match=what):
        run(lambda z: nn.ctc(z, np.array(labels), **options), LOGITS, compiled=compiled)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (partial(nn.ctc, LOGITS.astype(int), LABELS), DTypeError, "logits of dtype int64"),
        (partial(nn.ctc, LOGITS[0, 0], LABELS[0]), ShapeError, r"\(…, steps, classes\)"),
        (partial(nn.ctc, LOGITS, LABELS * 1.0), DTypeError, "labels of dtype float64"),
        (partial(nn.ctc, LOGITS, LABELS[:1]), ShapeError, r"\(1, 3\) with logits .* \(2, length\)"),
        (partial(nn.ctc, LOGITS, LABELS, blank=4), ValueError, "blank is 4. .* 0 to 3"),
        (
            partial(nn.ctc, LOGITS, LABELS, label_lengths=[3.0, 2.0]),
            DTypeError,
            "label_lengths of dtype float64",
        ),
        (partial(nn.ctc, LOGITS, LABELS, logit_lengths=[5]), ShapeError, r"logit_lengths of shape \(1,\)"),
        (partial(nn.ctc, LOGITS, LABELS, reduction="all"), ValueError, "reduction 'all'"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_the_names_of_other_libraries():
    with pytest.raises(AttributeError, match=r"here it is nn\.ctc"):
        nn.CTCLoss  # noqa: B018


@pytest.mark.parametrize("gradient", [False, True])
def test_axes_of_any_size(gradient):
    loss = pb.grad(nn.ctc) if gradient else nn.ctc
    named = pb.jit(loss, shapes={"logits": ("batch", "time", 4), "labels": ("batch", "length")})
    for batch, steps, length in ((3, 9, 2), (9, 20, 5)):
        rng = np.random.default_rng(batch)
        logits, labels = rng.normal(size=(batch, steps, 4)), rng.integers(1, 4, (batch, length))
        np.testing.assert_allclose(named(logits, labels), loss(logits, labels), rtol=1e-9, atol=1e-12)
    assert named.traces == 2


def test_lengths_up_to_any_size_are_refused():
    shapes = {"logits": (2, "time", 4)}
    named = pb.jit(lambda logits, lengths: nn.ctc(logits, LABELS, logit_lengths=lengths), shapes=shapes)
    with pytest.raises(
        NamedAxisError, match=r"logit_lengths: .*leave that axis out of shapes=.*sequence_losses.py:\d"
    ):
        named(LOGITS, np.array([5, 4]))
