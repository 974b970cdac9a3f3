"""Training: the trainer, its history, and the workloads that the command line runs."""

from pullback.train.checkpoints import load_checkpoint, save_checkpoint
from pullback.train.history import History
from pullback.train.plateau import ReduceOnPlateau
from pullback.train.stopping import EarlyStopping
from pullback.train.trainer import Trainer

__all__ = ["EarlyStopping", "History", "ReduceOnPlateau", "Trainer", "load_checkpoint", "save_checkpoint"]
