"""Short rows of images side by side: copies before products and behind them, where they pay."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import nn

IMAGE, WINDOW = (2, 6, 15, 15), (40, 6, 3, 3)


def by_threes(x, w):
    return nn.conv(x, w, 3)


def test_windows_over_short_rows_are_copied_place_by_place(stages):
    assert (
        stages(by_threes, IMAGE, (40, 6, 1, 3))["unfold"]
        == """\
for i<2, rc<6, r1<3, k<5, l<5:
    unfolded[450*i + 5*k + l + 75*rc + 25*r1] = argument0[1350*i + 45*k + 3*l + 225*rc + r1]
for i<2, j<40, l<25:
    result0[1000*i + 25*j + l] = sum[rc<6, r1<3](unfolded[450*i + 75*rc + 25*r1 + l] * argument1[18*j + 3*rc + r1])"""
    )


def test_sums_that_go_among_others_are_stored_by_themselves(stages):
    """Each second column of each second row of a transposed convolution with a step of two."""
    found = stages(lambda x, w: nn.conv_transpose(x, w, 2), (16, 64, 4, 4), (64, 40, 1, 1))["unfold"]
    assert (
        "sums[640*i + 16*j + l] = sum[rc<64](argument0[16*rc + 1024*i + l] * argument1[40*rc + j])" in found
    )
    assert "unfolded" not in found  # what is read lies side by side as it is


@pytest.mark.parametrize(
    ("image", "window"),
    [((2, 6, 24, 24), WINDOW), (IMAGE, (2, 6, 3, 3)), ((2, 6, 15, 3), WINDOW)],
    ids=["full rows", "few channels", "no rows beside each other"],
)
def test_what_gains_nothing_stays(stages, image, window):
    found = stages(by_threes, image, window)
    assert found["unfold"] == found["branch"]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_convolutions_of_small_images_are_right(step, rank, compiler, traced, processor):
    """Whole numbers have exact sums, in whatever order."""
    random = np.random.default_rng(rank)
    x, w = (
        random.integers(-2, 3, (3, 12, *size)).astype(np.float32) for size in ((6, 5, 7)[:rank], (2,) * rank)
    )
    bias = random.integers(-2, 3, (3, *(1,) * rank)).astype(np.float32)

    def both(x, w, bias):
        forward = nn.conv(x, np.concatenate([w] * 8), step) + np.concatenate([bias] * 8)
        return forward, nn.conv_transpose(x, np.concatenate([w] * 4, 1).reshape(12, -1, *w.shape[2:]), step)

    compiler.assert_same(traced(both, x, w, bias), [x, w, bias], processor=processor)
