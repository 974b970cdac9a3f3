"""The suite as a processor with shorter vectors runs it: each library is kept from this one's longer ones."""

from __future__ import annotations

import contextlib
import os

__all__ = ["keep_short", "with_vectors"]

_BYTES = "PULLBACK_BENCHMARK_VECTOR_BYTES"
_PEERS = {
    16: {"ATEN_CPU_CAPABILITY": "default", "isa": "SSE41", "xla": "SSE4_2", "OPENBLAS_CORETYPE": "Nehalem"},
    32: {"ATEN_CPU_CAPABILITY": "avx2", "isa": "AVX2", "xla": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
}
"""What PyTorch, oneDNN, XLA and OpenBLAS read when they begin."""


def with_vectors(count: int) -> None:
    """Vectors of ``count`` bytes, 16 or 32, for what this process starts, and for what it measures itself."""
    told = _PEERS[count]
    os.environ |= {
        _BYTES: str(count),
        "ATEN_CPU_CAPABILITY": told["ATEN_CPU_CAPABILITY"],
        "ONEDNN_MAX_CPU_ISA": told["isa"],
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={told['xla']}".strip(),
        "OPENBLAS_CORETYPE": told["OPENBLAS_CORETYPE"],
    }
    keep_short()


def keep_short() -> None:
    """Compile for the vectors that were asked for, in this process, if any were."""
    if _BYTES in os.environ:
        from pullback.compiler.target import Processor
        from pullback.testing.programs import processors

        short = processors.with_vectors(Processor.host(), int(os.environ[_BYTES]))
        _meanwhile.enter_context(processors.compiled_for(short))


_meanwhile = contextlib.ExitStack()
