"""Training: the trainer, its history, and the workloads that the command line runs."""

from pullback.train.history import History
from pullback.train.trainer import Trainer

__all__ = ["History", "Trainer"]
