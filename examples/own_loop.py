"""A training loop of one's own, without the trainer: it compiles to the same kind of program.

One step is an ordinary function of the parameters and of a batch's row numbers. ``pb.jit`` turns all of it,
from picking the rows to updating the parameters, into one machine-code program; ``donate_argnums`` lets it
update them in place, and ``run_steps`` runs many steps in one call.

    python examples/own_loop.py
"""

import numpy as np

import pullback as pb
from pullback import nn, optim
from pullback.data import epoch_order, load_digits

digits = load_digits()
images, labels = digits.train.inputs, digits.train.labels  # bytes, as they are stored
random = np.random.default_rng(0)
model = nn.Chain(nn.Reshape(4, 16), nn.RNN(16, 64, seed=random), nn.Dense(64, 10, seed=random))
optimiser = optim.SGD(0.05, momentum=0.9)
batch_size, epochs = 50, 10


def step(model, state, rows, images, labels):
    """One batch: the model and the optimiser's state after it, and the loss before it."""
    x, y = images[rows] * np.float32(digits.scale), labels[rows]
    loss, gradient = pb.value_and_grad(lambda model: nn.softmax_cross_entropy(model(x), y))(model)
    gradient = optim.clip_by_norm(gradient, 1.0)
    model, state = optimiser.update(gradient, state, model)
    return model, state, loss


def accuracy(model, images, labels):
    """The share of images whose largest output is at the label."""
    return (model(images * np.float32(digits.scale)).argmax(axis=1) == labels).mean()


compiled = pb.jit(step, donate_argnums=(0, 1), flush_subnormals=True)  # gradients that vanish cost no time
compiled_accuracy = pb.jit(accuracy)
state = optimiser.init(model)
for epoch in range(epochs):
    order = epoch_order(len(images), seed=0, epoch=epoch)
    batches = order[: len(order) // batch_size * batch_size].reshape(-1, batch_size)
    (model, state, losses), _ = compiled.run_steps(
        (model, state, batches, images, labels), len(batches), sliced_argnums=(2,)
    )
    share = compiled_accuracy(model, digits.test.inputs, digits.test.labels)
    print(f"epoch {epoch + 1:2}  loss {losses.mean():.4f}  test accuracy {100 * share:.1f} %")
