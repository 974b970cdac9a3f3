"""JAX: many steps in one compiled ``lax.scan`` (the default), or one compiled call a step (``step``)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray
from workload import Job, Pixels, Weights


class Contender:
    def __init__(self, job: Job, images: Pixels, labels: Pixels) -> None:
        network = job.network
        self.images, self.labels = jax.device_put(images), jax.device_put(labels)
        self.parameters = {name: jnp.array(value) for name, value in job.initial_weights().items()}
        self.scan = job.variant != "step"
        activation = jnp.tanh if network.activation == "tanh" else jax.nn.relu
        last = len(network.hidden)

        def logits(p: dict[str, Any], x: Any) -> Any:
            if not network.steps:
                for k in range(last):
                    x = activation(x @ p[f"{k}.weight"] + p[f"{k}.bias"])
                return x @ p[f"{last}.weight"] + p[f"{last}.bias"]
            sequence = [x[:, t] for t in range(network.steps)]
            for k in range(last):
                state, states = None, []
                for piece in sequence:
                    total = piece @ p[f"{k}.weight"] + p[f"{k}.bias"]
                    state = activation(total if state is None else total + state @ p[f"{k}.recurrent"])
                    states.append(state)
                sequence = states
            return sequence[-1] @ p[f"{last}.weight"] + p[f"{last}.bias"]

        def step(p: dict[str, Any], rows: Any, images: Any, labels: Any) -> tuple[dict[str, Any], Any]:
            x = images[rows].astype(jnp.float32) * (1 / 255)
            if network.steps:
                x = x.reshape(network.batch, network.steps, -1)
            y = labels[rows].astype(jnp.int32)

            def loss_of(p: dict[str, Any]) -> Any:
                scores = jax.nn.log_softmax(logits(p, x))
                return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))

            loss, gradients = jax.value_and_grad(loss_of)(p)
            return {name: p[name] - network.learning_rate * gradients[name] for name in p}, loss

        def steps(p: dict[str, Any], rows: Any, images: Any, labels: Any) -> tuple[dict[str, Any], Any]:
            return lax.scan(lambda p, batch: step(p, batch, images, labels), p, rows)

        self.compiled = jax.jit(steps if self.scan else step, donate_argnums=0)
        self.choice = "lax.scan over steps" if self.scan else "jit, one call a step"

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        if self.scan:
            self.parameters, losses = self.compiled(self.parameters, rows, self.images, self.labels)
            return np.asarray(losses)
        losses = []
        for batch in rows.astype(np.int32):
            self.parameters, loss = self.compiled(self.parameters, batch, self.images, self.labels)
            losses.append(loss)
        return np.array(jax.device_get(losses), np.float32)

    def weights(self) -> Weights:
        return {name: np.asarray(value) for name, value in self.parameters.items()}
