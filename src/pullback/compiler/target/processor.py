"""What the processor is: name and features that LLVM compiles for, vectors, registers, caches and cores."""

from __future__ import annotations

import functools
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pullback.errors import ProcessorError
from pullback.undisturbed import undisturbed

__all__ = [
    "APART_BYTES", "LINE_BYTES", "TOLD", "Processor", "machine_identity", "told_by_llvm", "usable_cores",
]  # fmt: skip

# One name or several that must all be there before vectors of this many bytes are worth their code.
_VECTOR_FEATURES = {64: ("avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"), 32: ("avx2", "fma")}
_DEFAULT_CACHES = {1: 32 << 10, 2: 512 << 10, 3: 16 << 20}

LINE_BYTES, APART_BYTES = 64, 128
"""Of the memory that programs run in, whatever is described: a line, which no vector is wider than, and two of them."""

MOST_SHARERS = 32
"""As many as a group of rows usually has chunks (``MOST_CHUNKS`` of the schedules): more would find nothing to do."""


@dataclass(frozen=True)
class Processor:
    """A description that code generation reads instead of asking the machine.

    ``vector_bytes`` is 64 (AVX-512), 32 (AVX2 with FMA) or 16 (all others, NEON included); caches
    are in bytes, as one core sees them; ``cores`` are those that this process may use, ``threads`` how
    many of them a program may when it is made: all of them if that is 0.

    >>> narrow = Processor("generic", "+sse2", "x86_64", vector_bytes=16, vector_registers=16)
    >>> narrow.lanes(4), narrow.lanes(8)
    (4, 2)
    """

    name: str
    features: str
    architecture: str
    vector_bytes: int
    vector_registers: int
    l1_bytes: int = _DEFAULT_CACHES[1]
    l2_bytes: int = _DEFAULT_CACHES[2]
    l3_bytes: int = _DEFAULT_CACHES[3]
    cores: int = 1
    threads: int = 0

    line_bytes: int = LINE_BYTES
    """What a cache fetches at a time."""
    page_bytes: int = 4096
    """Lines whole pages apart have the same place in the first-level cache."""
    ways: int = 8
    """Lines of one place that the first-level cache holds, about: no more rows of a matrix are read side by side."""
    tile_bytes: int = 32 << 10
    """What a register tile may count on in the first-level cache."""
    private_bytes: int = 1 << 19
    """What a chunk may keep in the caches that no other core uses."""
    known_bytes: int = 1 << 17
    """What lies on half of the pages whose addresses the nearest table holds."""
    piece_bytes: int = 16
    """What is exchanged within a vector at no delay."""
    apart_bytes: int = APART_BYTES
    """How far apart what different threads write lies: two lines, as the neighbour line is often fetched too."""
    streams: int = 32
    """Rows that it follows side by side: of a matrix with no more, or near and each added to several sums."""
    lines_coming: float = 3.0
    """Lines that are on their way from memory at a time while a product goes on, at least."""
    gather_vectors: int = 4
    """Lanes whose elements lie within this many vectors are picked out of them: a gather takes longer."""

    reads: int = 2
    """Vectors, or elements for all lanes of one, that are read from the nearest cache in a cycle."""
    multiply_adds: int = 2
    """Multiply-adds of vectors that begin in a cycle."""
    accumulators: int = 4
    """Vectors summed side by side: an addition takes about four cycles and two start in each."""
    latency: float = 4.0
    """Cycles from one multiply-add to the next into the same register."""
    loop_cycles: float = 4.0
    """Cycles of a turn of a loop beside its multiply-adds."""
    near_line_cycles: float = 3.0
    """Cycles in which a line arrives from the second cache."""
    far_line_cycles: float = 24.0
    """Cycles in which a line arrives from beyond it, one after another."""
    exchange_cycles: float = 1000.0
    """Cycles that threads lose in a region: claims, waiting, and fetching what the other one wrote."""
    chunk_cycles: float = 6000.0
    """What a chunk should take at least: claiming one costs about a hundred."""
    marking_cycles: float = 1.5
    """In which a row of a table is marked, or a mark looked at."""
    mispredicted_cycles: float = 20.0
    """Cycles lost where a branch does not go as expected."""
    bytes_per_cycle: int = 16
    """What arrives from memory."""
    cycles_per_nanosecond: float = 3.5

    flush_subnormals: bool = False
    """The mode that it computes floats in: whether numbers below the normal ones become zeros."""

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def host() -> Processor:
        """The processor that this process runs on, read once."""
        flags = _parse_features(told_by_llvm()["features"])
        architecture = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
        vector_bytes = _vector_bytes(flags)
        if vector_bytes == 64:  # some server processors are tuned to leave half of their width idle
            flags["prefer-256-bit"] = False
        caches = _cache_sizes(Path("/sys/devices/system/cpu/cpu0/cache"))
        return Processor(
            name=told_by_llvm()["name"],
            features=_join_features(flags),
            architecture=architecture,
            vector_bytes=vector_bytes,
            vector_registers=_vector_registers(architecture, vector_bytes),
            l1_bytes=caches[1],
            l2_bytes=caches[2],
            l3_bytes=caches[3],
            cores=usable_cores(),
        )

    def lanes(self, itemsize: int) -> int:
        """How many elements of ``itemsize`` bytes one vector register holds."""
        return self.vector_bytes // itemsize

    def limited(self, vector_bytes: int) -> Processor:
        """The same processor with vectors of at most ``vector_bytes`` (16, 32 or 64).

        Raises ``ProcessorError`` if the processor has no vectors of that size.

        >>> Processor("znver5", "+avx2,+fma", "x86_64", 32, 16).limited(64)
        Traceback (most recent call last):
        pullback.errors.ProcessorError: processor znver5 has vectors of 32 bytes, not of 64: ask for 16 or 32
        """
        if vector_bytes not in (16, 32, 64) or vector_bytes > self.vector_bytes:
            sizes = " or ".join(str(size) for size in (16, 32, 64) if size <= self.vector_bytes)
            raise ProcessorError(
                f"processor {self.name} has vectors of {self.vector_bytes} bytes, "
                f"not of {vector_bytes}: ask for {sizes}"
            )
        flags = _parse_features(self.features)
        if vector_bytes < 64:
            flags.update({flag: False for flag in flags if flag.startswith(("avx512", "avx10"))})
        if vector_bytes < 32:
            wide = ("avx", "fma", "f16c", "xop", "vaes", "vpclmulqdq")
            flags.update({flag: False for flag in flags if flag.startswith(wide)})
        registers = _vector_registers(self.architecture, vector_bytes)
        return replace(
            self, features=_join_features(flags), vector_bytes=vector_bytes, vector_registers=registers
        )

    @property
    def sum_vectors(self) -> int:
        """Vectors of sums that registers hold beside what is multiplied."""
        return 24 if self.vector_registers >= 32 else 10

    @property
    def sum_tile(self) -> tuple[int, int]:
        """Turns of two operands whose products are summed along the lanes, a vector of sums for each pair of turns."""
        return (6, 4) if self.vector_registers >= 32 else (3, 3)

    @property
    def panel_vectors(self) -> int:
        """Vectors of a packed panel's row, at most."""
        return 4 if self.vector_registers >= 32 else 2

    @property
    def compresses(self) -> bool:
        """Whether an instruction moves chosen 32-bit and 64-bit lanes to the front of a vector."""
        return self.vector_bytes == 64

    @property
    def converts_halves(self) -> bool:
        """Whether one instruction makes ``float16`` of ``float`` and one the other way round."""
        return self.architecture == "aarch64" or _parse_features(self.features).get("f16c", False)

    @property
    def sharers(self) -> int:
        """Threads among which work should come out even. How it is dealt out shows in no result.

        >>> narrow = Processor("generic", "+sse2", "x86_64", vector_bytes=16, vector_registers=16)
        >>> [replace(narrow, cores=cores).sharers for cores in (1, 2, 12, 128)]
        [2, 2, 12, 32]
        >>> replace(narrow, cores=12, threads=4).sharers
        4
        """
        return min(max(min(self.cores, self.threads or self.cores), 2), MOST_SHARERS)

    @property
    def key(self) -> str:
        """What object code depends on, for the code cache: of the cores, among how many work is dealt out."""
        return repr(replace(self, cores=self.sharers, threads=0))


def usable_cores() -> int:
    """The cores that this process may use: those of its affinity mask, fewer where a cgroup grants less time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = _granted_cores() if sys.platform == "linux" else None
    return max(1, cores if granted is None else min(cores, granted))


def _granted_cores(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The cores whose time the process's cgroup and all those around it grant, rounded up; None without a limit.

    Version 2 says ``quota period`` in one file, version 1 each in one of its own; no limit is ``max`` there, -1 here.
    Inside a container the path may be that of the host: then only what is found counts, at least the root.
    """
    found: list[float] = []
    try:
        lines = proc.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        _, controllers, path, *_ = (*line.split(":", 2), "", "")
        if controllers and "cpu" not in controllers.split(","):
            continue
        tops = [root] if not controllers else [root / controllers, root / "cpu"]
        names = ["cpu.max"] if not controllers else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        for top in tops:
            folder = top / path.strip("/")
            places = [place for place in (folder, *folder.parents) if place.is_relative_to(top)]
            found += filter(None, (_quota([place / name for name in names]) for place in places))
    return max(1, math.ceil(min(found))) if found else None


def _quota(files: Sequence[Path]) -> float | None:
    """Quota over period, where the files say both."""
    try:
        quota, period = (int(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None


TOLD: dict[str, str] = {}
"""What LLVM has said of this processor and of itself, to this process or to another one on this machine."""


def told_by_llvm() -> dict[str, str]:
    """What LLVM says: ``name``, ``features``, ``version``; it is loaded to be asked unless that is ``TOLD`` already."""
    if not TOLD:
        TOLD.update(undisturbed(_asked_of_llvm))
    return TOLD


def _asked_of_llvm() -> dict[str, str]:
    import llvmlite.binding as llvm

    features = _join_features(dict(llvm.get_host_cpu_features()))
    version = ".".join(map(str, llvm.llvm_version_info))
    return {"name": llvm.get_host_cpu_name(), "features": features, "version": version}


_CHANGING = ("cpu MHz", "bogomips", "BogoMIPS", "processor", "core id", "apicid", "initial apicid")
"""What differs between cores, or from moment to moment."""


def machine_identity(proc: Path = Path("/proc")) -> str | None:
    """A text that no other machine has, nor this one after it was started again; None where the system has none.

    It has the first core's description too: a machine may go on from a snapshot, on another processor.
    """
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text()
        with (proc / "cpuinfo").open("rb", buffering=0) as file:
            lines = file.read(1 << 14).decode().split("\n\n")[0].splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return "\n".join([boot, *(line for line in lines if line.partition("\t")[0].rstrip() not in _CHANGING)])


def _vector_bytes(flags: Mapping[str, bool]) -> int:
    sizes = _VECTOR_FEATURES.items()
    return next((size for size, needed in sizes if all(flags.get(each, False) for each in needed)), 16)


def _vector_registers(architecture: str, vector_bytes: int) -> int:
    return 32 if vector_bytes == 64 or architecture == "aarch64" else 16


def _parse_features(text: str) -> dict[str, bool]:
    return {flag[1:]: flag[0] == "+" for flag in text.split(",") if flag}


def _join_features(flags: Mapping[str, bool]) -> str:
    return ",".join(f"{'+' if flags[flag] else '-'}{flag}" for flag in sorted(flags))


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Data cache sizes by level from Linux's description; what it does not say keeps a modest default."""
    sizes = dict(_DEFAULT_CACHES)
    for index in range(8):
        entry = folder / f"index{index}"
        try:
            level = int((entry / "level").read_text())
            kind = (entry / "type").read_text().strip()
            text = (entry / "size").read_text().strip()
            if kind != "Instruction" and level in sizes:
                unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
                sizes[level] = int(text.rstrip("KMG")) * unit
        except (OSError, ValueError):
            continue
    return sizes
