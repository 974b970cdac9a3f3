"""A blurred signal made sharp again, by gradient descent through Fourier transforms, compiled.

    loss = |h * x - y|² + s |x'|²       a circular convolution, and what keeps neighbours alike

``python examples/deconvolution.py`` takes a second and prints the loss and the distance to the signal that was blurred.
"""

import numpy as np

import pullback as pb

SIZE, RATE, SMOOTHNESS, STEPS = 4096, 0.4, 3e-3, 300


def loss(x, kernel, y):
    blurred = np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(kernel), SIZE)
    return np.sum((blurred - y) ** 2) + SMOOTHNESS * np.sum((x[1:] - x[:-1]) ** 2)


@pb.jit
def step(x, kernel, y):
    value, gradient = pb.value_and_grad(loss)(x, kernel, y)
    return x - RATE * gradient, value


def main() -> None:
    random = np.random.default_rng(0)
    signal = np.cumsum(random.standard_normal(SIZE) * (random.random(SIZE) < 0.01))
    kernel = np.exp(-np.arange(SIZE) / 8.0)
    kernel /= kernel.sum()
    y = np.fft.irfft(np.fft.rfft(signal) * np.fft.rfft(kernel), SIZE) + 0.01 * random.standard_normal(SIZE)
    x = y.copy()
    for number in range(STEPS):
        x, value = step(x, kernel, y)
        if number % 100 == 0 or number == STEPS - 1:
            print(f"step {number}: loss {value:.4f}, distance {np.sqrt(np.mean((x - signal) ** 2)):.4f}")


if __name__ == "__main__":
    main()
