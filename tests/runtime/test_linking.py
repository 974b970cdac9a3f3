"""Object files in memory without LLVM: the same results as by its own loader, and what is left to that."""

from __future__ import annotations

import ctypes
import platform
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from pullback.compiler.runtime import engine
from pullback.compiler.runtime.engine import Loaded, compile_object
from pullback.compiler.runtime.linking import link
from pullback.compiler.target import Processor

HOST = Processor.host()
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="what is linked is for Linux on x86-64"
)

POLYNOMIAL = """
@factors = private unnamed_addr constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0], align 64
define double @polynomial(double %x, i64 %k) {
  %at = getelementptr [4 x double], ptr @factors, i64 0, i64 %k
  %factor = load double, ptr %at
  %product = fmul double %factor, %x
  %sum = fadd double %product, 0.125
  ret double %sum
}
"""
CALLER = """
declare double @polynomial(double, i64)
declare double @llvm.sin.f64(double)
define double @both(double %x, i64 %k) {
  %y = call double @polynomial(double %x, i64 %k)
  %z = call double @llvm.sin.f64(double %y)
  ret double %z
}
"""


def _function(code: Loaded) -> Callable[[float, int], float]:
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(code.address("both"))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_as_loaded_by_llvm(order: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = POLYNOMIAL, CALLER
    objects = [compile_object(texts[k], HOST) for k in order]
    assert link(objects, engine._address_of) is not None
    linked = Loaded(objects, HOST)
    monkeypatch.setattr(engine, "link", lambda objects, address_of: None)
    loaded = Loaded(objects, HOST)
    found = [_function(linked)(0.3, k) for k in range(4)]
    assert found == [_function(loaded)(0.3, k) for k in range(4)]
    assert len(set(found)) == 4


def test_constants_lie_as_they_ask() -> None:
    text = "@table = constant [16 x float] zeroinitializer, align 64\n"
    for before in range(1, 4):
        odd = f"@odd = constant [{before} x i8] zeroinitializer, align 1\n"
        image = link([compile_object(odd, HOST), compile_object(text, HOST)], lambda name: 0)
        assert image is not None and image.symbols["table"] % 64 == 0


def test_nothing_to_load() -> None:
    image = link([compile_object("", HOST)], lambda name: 0)
    assert image is not None and image.symbols == {}


def test_instructions_cannot_be_written() -> None:
    image = link([compile_object(POLYNOMIAL, HOST)], lambda name: 0)
    assert image is not None
    address = image.symbols["polynomial"]
    with open("/proc/self/maps") as file:
        for line in file:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= address < end:
                assert line.split()[1].startswith("r-x")
                return
    raise AssertionError("the image is not mapped")


@pytest.mark.parametrize(
    "text",
    [
        "@word = global i64 1\ndefine ptr @f() {\n  ret ptr @word\n}",
        "@word = external global i64\ndefine ptr @f() {\n  ret ptr @word\n}",
        "declare void @there_is_no_such_function()\n"
        "define void @f() {\n  call void @there_is_no_such_function()\n  ret void\n}",
        "define weak void @f() {\n  ret void\n}",
    ],
)
def test_what_is_left_to_llvm(text: str) -> None:
    assert link([compile_object(text, HOST)], engine._address_of) is None


def test_two_definitions_are_left_to_llvm() -> None:
    data = compile_object(POLYNOMIAL, HOST)
    assert link([data, data], engine._address_of) is None


def test_other_formats_are_left_to_llvm() -> None:
    data = compile_object(POLYNOMIAL, HOST)
    other_machine = data[:18] + b"\xb7\x00" + data[20:]
    for each in (other_machine, b"\xcf\xfa\xed\xfe" + data[4:], b""):
        assert link([each], engine._address_of) is None


def test_a_program_from_the_cache_needs_no_llvm(tmp_path: object) -> None:
    program = (
        "import sys, numpy as np, pullback as pb\n"
        "value, gradient = pb.jit(pb.value_and_grad(lambda x: np.sum(np.sin(x) * x)))(np.arange(5.0))\n"
        "print('llvmlite.binding' in sys.modules, value.hex(), gradient.tobytes().hex())"
    )
    environment = {"PULLBACK_CACHE": f"{tmp_path}/code", "PYTHONPATH": ":".join(sys.path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert outputs[0][0] == "True" and outputs[1][0] == "False"
    assert outputs[0][1:] == outputs[1][1:]


def test_a_damaged_object_is_none() -> None:
    """It is left to LLVM or linked, and nothing else happens; it may link where only code has changed."""
    whole = compile_object(POLYNOMIAL, HOST)
    for end in range(len(whole)):
        link([whole[:end]], engine._address_of)
    for place in range(len(whole) - 8):
        for value in (b"\xff" * 8, bytes(8), (1 << 40).to_bytes(8, "little")):
            link([whole[:place] + value + whole[place + 8 :]], engine._address_of)


def test_sections_on_top_of_each_other_are_not_understood() -> None:
    """As many copies of the file as it has sections would take memory out of proportion to it."""
    whole = bytearray(compile_object(POLYNOMIAL, HOST))
    assert link([bytes(whole)], engine._address_of) is not None
    (table,) = struct.unpack_from("<Q", whole, 40)
    (count,) = struct.unpack_from("<H", whole, 60)
    for k in range(count):
        struct.pack_into("<QQ", whole, table + 64 * k + 24, 0, len(whole))  # where it begins, how long it is
    assert link([bytes(whole)], engine._address_of) is None
