"""Data sets: arrays kept as they are stored, and where to get them."""

from pullback.data.dataset import Dataset, LabelledImages, epoch_order
from pullback.data.digits import load_digits, load_digits_or_mnist
from pullback.data.idx import read_idx, write_idx
from pullback.data.mnist import load_mnist

__all__ = [
    "Dataset",
    "LabelledImages",
    "epoch_order",
    "load_digits",
    "load_digits_or_mnist",
    "load_mnist",
    "read_idx",
    "write_idx",
]
