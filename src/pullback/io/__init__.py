"""Files: atomic writing, models and tensors (safetensors), training history (JSON) and its curves."""

from pullback.io.atomic import atomic_write
from pullback.io.history import read_history, write_history
from pullback.io.models import load, save
from pullback.io.plots import plot_history
from pullback.io.tensors import load_metadata, load_tensors, save_tensors

__all__ = [
    "atomic_write",
    "load",
    "load_metadata",
    "load_tensors",
    "plot_history",
    "read_history",
    "save",
    "save_tensors",
    "write_history",
]
