"""What a contender is told, and the order in which all of them see the data.

Only NumPy is used here, as in ``networks.py``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from networks import Network, Weights, initial_weights
from numpy.typing import NDArray

__all__ = ["Array", "Job", "batch_rows"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Job:
    """What a contender is told: the network, where data and weights lie, how many threads.

    ``variant`` chooses between ways to use one library; a job that is ``tuned`` lets the contender try
    several ways to write the step first. ``data`` is a folder with ``inputs.npy``, one example a row (pixels
    as uint8, or tokens as integers), ``labels.npy``, uint8, and both for the test with ``test_`` before.
    ``seed`` gives the initial weights, unless ``weights`` names a file that has them, and the order of the
    rows.
    """

    network: Network
    data: str
    threads: int = 2
    variant: str = ""
    seed: int = 0
    weights: str = ""
    tuned: bool = True

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "network": self.network.as_json()}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Job:
        return Job(**{**values, "network": Network.from_json(values["network"])})

    def arrays(self, part: str = "") -> tuple[Array, Array]:
        """Inputs and labels, of the training or (``part`` is ``"test_"``) of the test."""
        inputs, labels = (np.load(Path(self.data, f"{part}{name}.npy")) for name in ("inputs", "labels"))
        return inputs, labels

    def initial_weights(self) -> Weights:
        if self.weights:
            with np.load(self.weights) as stored:
                return {name: stored[name] for name in stored.files}
        return initial_weights(self.network, self.seed)


def batch_rows(count: int, batch: int, first: int, steps: int, seed: int = 0) -> NDArray[np.int64]:
    """Rows of the batches ``first`` to ``first + steps``, (steps, batch): epoch after epoch, each shuffled.

    An epoch ends with its last full batch.
    """
    per_epoch = count // batch
    rows = np.empty((steps, batch), np.int64)
    done = 0
    while done < steps:
        epoch, place = divmod(first + done, per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(count)[: per_epoch * batch]
        piece = order.reshape(per_epoch, batch)[place : place + steps - done]
        rows[done : done + len(piece)] = piece
        done += len(piece)
    return rows
