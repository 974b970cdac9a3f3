"""TensorFlow: the loop over steps, with the gradient in it, compiled by XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from workload import Job, Pixels, Weights


class Contender:
    def __init__(self, job: Job, images: Pixels, labels: Pixels) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(job.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        network = job.network
        self.images, self.labels = tf.constant(images), tf.constant(labels)
        initial = job.initial_weights()
        self.names = list(initial)
        self.parameters = [tf.constant(value) for value in initial.values()]
        activation = tf.tanh if network.activation == "tanh" else tf.nn.relu
        last = len(network.hidden)

        def logits(values: list[Any], x: Any) -> Any:
            p = dict(zip(self.names, values))
            if not network.steps:
                for k in range(last):
                    x = activation(x @ p[f"{k}.weight"] + p[f"{k}.bias"])
                return x @ p[f"{last}.weight"] + p[f"{last}.bias"]
            sequence = tf.unstack(tf.reshape(x, (network.batch, network.steps, -1)), axis=1)
            for k in range(last):
                state, states = None, []
                for piece in sequence:
                    total = piece @ p[f"{k}.weight"] + p[f"{k}.bias"]
                    state = activation(total if state is None else total + state @ p[f"{k}.recurrent"])
                    states.append(state)
                sequence = states
            return sequence[-1] @ p[f"{last}.weight"] + p[f"{last}.bias"]

        def step(values: list[Any], rows: Any, images: Any, labels: Any) -> tuple[list[Any], Any]:
            x = tf.cast(tf.gather(images, rows), tf.float32) * (1 / 255)
            y = tf.cast(tf.gather(labels, rows), tf.int32)
            with tf.GradientTape() as tape:
                tape.watch(values)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(values, x))
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, values)
            return [p - network.learning_rate * g for p, g in zip(values, gradients)], loss

        @tf.function(jit_compile=True)
        def steps(values: list[Any], rows: Any, images: Any, labels: Any) -> tuple[list[Any], Any]:
            count = rows.shape[0]

            def body(number: Any, values: list[Any], losses: Any) -> tuple[Any, list[Any], Any]:
                values, loss = step(values, rows[number], images, labels)
                return number + 1, values, losses.write(number, loss)

            begin = (tf.constant(0), values, tf.TensorArray(tf.float32, count, element_shape=()))
            _, values, losses = tf.while_loop(lambda k, *_: k < count, body, begin, maximum_iterations=count)
            return values, losses.stack()

        self.steps = steps
        self.choice = "while_loop over steps in XLA"

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.parameters, losses = self.steps(
            self.parameters, tf.constant(rows, tf.int32), self.images, self.labels
        )
        return losses.numpy()

    def weights(self) -> Weights:
        return {name: value.numpy() for name, value in zip(self.names, self.parameters)}
