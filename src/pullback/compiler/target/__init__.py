"""The target: what code is made for, described once, and what this machine is."""

from pullback.compiler.target.processor import (
    APART_BYTES,
    LINE_BYTES,
    TOLD,
    Processor,
    machine_identity,
    told_by_llvm,
    usable_cores,
)

__all__ = [
    "APART_BYTES", "LINE_BYTES", "TOLD", "Processor", "machine_identity", "told_by_llvm", "usable_cores",
]  # fmt: skip
