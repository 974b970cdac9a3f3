"""The README's Python examples run, in their order, on a small MNIST."""

import re
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.data import write_idx

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
    """A folder with 300 training and 100 test images of noise, where ``load_mnist`` looks."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    random = np.random.default_rng(0)
    for part, rows in (("train", 300), ("t10k", 100)):
        write_idx(
            folder / f"{part}-images-idx3-ubyte", random.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        )
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(rows, dtype=np.uint8) % 10)
    monkeypatch.setenv("PULLBACK_DATA", str(tmp_path))


def test_examples_run(small_mnist, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    x = np.array([[0.5, -1.0]])
    parameters = {"w": np.ones((2, 3)), "b": np.zeros(3), "v": np.ones(3)}
    value, gradient = names["value_and_gradient"](parameters, x, np.array([1.0]))
    expected = (3 * np.tanh(-0.5) - 1) ** 2
    assert value == pytest.approx(expected)
    assert gradient["b"] == pytest.approx(np.full(3, 2 * (3 * np.tanh(-0.5) - 1) * (1 - np.tanh(-0.5) ** 2)))
    assert names["history"].epochs == 5 and np.isfinite(names["loss"])
    assert np.array_equal(names["again"][2].bias.shape, (10,))
    random = np.random.default_rng(0)
    shapes = {"wf": (8, 256), "uf": (256, 256), "wh": (8, 256), "uh": (256, 256)}
    weights = {name: random.normal(size=shape) / 16 for name, shape in shapes.items()}
    xs = random.normal(size=(3, 64, 8))
    compiled, plain = names["slope"](weights, xs), pb.grad(names["energy"])(weights, xs)
    for name in shapes:
        np.testing.assert_allclose(compiled[name], plain[name], rtol=1e-9, atol=1e-12)
