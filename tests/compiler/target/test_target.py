"""What is read from the machine, and what a user may ask for instead."""

from __future__ import annotations

import os
import platform

import pytest

from pullback.compiler.runtime.engine import assembly
from pullback.compiler.target import processor as processor_module
from pullback.compiler.target.processor import (
    Processor,
    _cache_sizes,
    _granted_cores,
    _vector_bytes,
    machine_identity,
    usable_cores,
)
from pullback.errors import ProcessorError

HOST = Processor.host()
WIDE_ADD = """
define void @add(ptr %x) {
  %a = load <16 x float>, ptr %x, align 4
  %b = fadd <16 x float> %a, %a
  store <16 x float> %b, ptr %x, align 4
  ret void
}
"""


def test_host_is_described_whole():
    assert HOST is Processor.host()
    assert HOST.name and HOST.features and HOST.architecture
    assert HOST.vector_bytes in (16, 32, 64)
    assert HOST.vector_registers in (16, 32)
    assert 4096 <= HOST.l1_bytes <= HOST.l2_bytes
    assert HOST.l3_bytes > 0
    assert HOST.cores == usable_cores()


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (("avx512f", "avx512vl", "avx512bw", "avx512dq", "avx2", "fma"), 64),
        (("avx512f", "avx512vl", "avx2", "fma"), 32),
        (("avx2", "fma"), 32),
        (("avx2",), 16),
        (("neon",), 16),
        ((), 16),
    ],
)
def test_vector_width_follows_from_features(features, expected):
    flags = {"avx512f": False, "avx2": False, "fma": False} | dict.fromkeys(features, True)
    assert _vector_bytes(flags) == expected


def test_cores_follow_the_affinity_mask():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("needs an affinity mask")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("files", "cgroup", "cores"),
    [
        ({}, "0::/", None),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "200000 100000"}, "0::/", 2),
        ({"cpu.max": "150000 100000"}, "0::/", 2),
        ({"cpu.max": "1000 100000"}, "0::/", 1),
        ({"a/cpu.max": "max 100000", "a/b/cpu.max": "300000 100000"}, "0::/a/b", 3),
        ({"a/cpu.max": "250000 100000", "a/b/cpu.max": "800000 100000"}, "0::/a/b", 3),
        ({"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 1),
        ({"other/cpu.max": "100000 100000"}, "0::/a/b", None),
        ({"cpu.max": "400000 100000"}, "0::/docker/of/the/host", 4),
        (
            {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            "3:cpu,cpuacct:/",
            None,
        ),
        (
            {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "20000"},
            "3:cpu,cpuacct:/",
            3,
        ),
        ({"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/a", 2),
        (
            {"cpuset/cpu.cfs_quota_us": "200000", "cpuset/cpu.cfs_period_us": "100000"},
            "3:cpuset:/\n0::/",
            None,
        ),
        ({"cpu.max": "nonsense"}, "0::/", None),
        ({"cpu.max": "100000"}, "0::/", None),
        ({"cpu.max": "100000 0"}, "0::/", None),
        ({}, "", None),
        ({}, "strange", None),
    ],
)
def test_cores_follow_the_quotas_of_cgroups(files, cgroup, cores, tmp_path):
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "cgroup").write_text(cgroup + "\n")
    assert _granted_cores(tmp_path / "cgroup", tmp_path / "root") == cores
    assert _granted_cores(tmp_path / "absent", tmp_path / "root") is None


def test_the_fewer_of_affinity_and_quota_count(monkeypatch):
    monkeypatch.setattr(processor_module.sys, "platform", "linux")
    monkeypatch.setattr(processor_module.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for granted, cores in ((None, 8), (3, 3), (20, 8)):
        monkeypatch.setattr(processor_module, "_granted_cores", lambda granted=granted: granted)
        assert usable_cores() == cores


def test_cache_sizes_are_read_by_level(tmp_path):
    table = [
        ("1", "Data", "48K"),
        ("1", "Instruction", "64K"),
        ("2", "Unified", "2048K"),
        ("3", "Unified", "1G"),
    ]
    for index, values in enumerate(table):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in zip(("level", "type", "size"), values):
            (folder / name).write_text(value + "\n")
    assert _cache_sizes(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 1 << 30}
    (tmp_path / "index0" / "size").write_text("large")
    assert _cache_sizes(tmp_path)[1] == 32 << 10
    assert _cache_sizes(tmp_path / "absent") == {1: 32 << 10, 2: 512 << 10, 3: 16 << 20}


@pytest.mark.parametrize("size", [16, 32, 64])
def test_limited_processor_gets_no_wider_registers(size):
    if size > HOST.vector_bytes:
        with pytest.raises(ProcessorError, match=f"not of {size}"):
            HOST.limited(size)
        return
    limited = HOST.limited(size)
    assert limited.vector_bytes == size
    assert limited.key != HOST.key or size == HOST.vector_bytes
    if platform.machine().lower() in ("x86_64", "amd64"):
        listing = assembly(WIDE_ADD, limited)
        register = {16: "xmm", 32: "ymm", 64: "zmm"}[size]
        assert {name for name in ("xmm", "ymm", "zmm") if name in listing} == {register}


@pytest.mark.parametrize("size", [8, 24, 128])
def test_widths_that_no_processor_has(size):
    with pytest.raises(ProcessorError, match="ask for 16"):
        HOST.limited(size)


def test_a_machine_is_told_by_boot_and_processor(tmp_path):
    def identity(boot, cpuinfo):
        folder = tmp_path / "sys/kernel/random"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "boot_id").write_text(boot)
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        return machine_identity(tmp_path)

    first = "processor\t: 0\nmodel\t\t: 7\ncpu MHz\t\t: {}\nflags\t\t: avx2 {}\n\nprocessor\t: 1\n"
    usual = identity("a", first.format(1000, "fma"))
    assert usual == identity("a", first.format(2000, "fma"))
    others = [identity("b", first.format(1000, "fma")), identity("a", first.format(1000, ""))]
    assert len({usual, *others}) == 3
    assert machine_identity(tmp_path / "absent") is None
