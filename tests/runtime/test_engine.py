"""Text to loaded code, and the driver's text for machines that are not here."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys

import numpy as np
import pytest

from pullback.compiler.runtime.engine import Loaded, assembly, compile_object
from pullback.compiler.runtime.handwritten import machine_text
from pullback.compiler.runtime.reading import array_layout_holds
from pullback.compiler.target import Processor

HOST = Processor.host()
TEXT = """
define double @affine(double %x) {
  %y = fmul double %x, 3.0
  %z = call double @shift(double %y)
  ret double %z
}
define internal double @shift(double %x) {
  %y = fadd double %x, 1.0
  ret double %y
}
"""


def call(code, x):
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("affine"))(x)


def test_object_code_is_loaded_as_often_as_wanted():
    data = compile_object(TEXT, HOST)
    codes = [Loaded([data], HOST) for _ in range(3)]
    assert [call(code, 2.0) for code in codes] == [7.0] * 3
    assert len({code.address("affine") for code in codes}) == 3
    del codes[0]
    gc.collect()
    assert [call(code, -1.0) for code in codes] == [-2.0] * 2


def test_compiling_twice_gives_the_same_bytes():
    assert compile_object(TEXT, HOST) == compile_object(TEXT, HOST)


def test_what_a_mask_leaves_out_stays_out_of_its_neighbours():
    """LLVM may not put a masked load into a permutation under the same mask, which would read the other lanes."""
    swapped = ", ".join(f"i32 {lane ^ 1}" for lane in range(16))
    text = f"""
    declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
    define void @swap(ptr %from, ptr %to, ptr %chosen) {{
      %word = load <16 x i32>, ptr %chosen, align 4
      %mask = icmp slt <16 x i32> %word, splat (i32 8)
      %row = call <16 x float> @llvm.masked.load.v16f32.p0(
        ptr %from, i32 4, <16 x i1> %mask, <16 x float> zeroinitializer)
      %swapped = shufflevector <16 x float> %row, <16 x float> poison, <16 x i32> <{swapped}>
      %made = select <16 x i1> %mask, <16 x float> %swapped, <16 x float> zeroinitializer
      store <16 x float> %made, ptr %to, align 4
      ret void
    }}
    """
    code = Loaded([compile_object(text, HOST)], HOST)
    row, made = np.arange(1, 17, dtype=np.float32), np.zeros(16, np.float32)
    chosen = np.array([0, 9, 0, 0] * 4, np.int32)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address("swap"))(
        row.ctypes.data, made.ctypes.data, chosen.ctypes.data
    )
    np.testing.assert_array_equal(made, [0, 0, 4, 3, 0, 0, 8, 7, 0, 0, 12, 11, 0, 0, 16, 15])


@pytest.mark.parametrize(
    ("version", "option", "refused"),
    [
        (21, "no-such-option", False),
        (22, "disable-spill-fusing", False),
        (99, "disable-spill-fusing", False),
        (99, "no-such-option", True),
    ],
)
def test_llvm_is_not_asked_for_an_option_that_it_does_not_know(version, option, refused):
    """It would end the process without a word of Python's."""
    text = f"""
import llvmlite.binding as llvm
from pullback.compiler.runtime import engine
told, llvm.llvm_version_info = [], ({version}, 0, 0)
llvm.set_option = lambda name, option: told.append(option)
engine._KEEPS_MASKED_LOADS = {option!r}
try:
    engine._llvm()
except RuntimeError as error:
    told.append(str(error))
print(told)
"""
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    assert ("install an earlier llvmlite" in said) == refused
    assert ("'-disable-spill-fusing'" in said) == (version >= 22 and not refused)


def test_unknown_name():
    with pytest.raises(KeyError, match="absent"):
        Loaded([compile_object(TEXT, HOST)], HOST).address("absent")


@pytest.mark.parametrize("text", ["define void @f( {", "define i32 @f() {\n  ret i64 0\n}"])
def test_text_that_is_no_module(text):
    with pytest.raises(RuntimeError, match="error"):
        compile_object(text, HOST)


def test_assembly_names_the_function():
    assert "affine" in assembly(TEXT, HOST)


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64", "riscv64", "unheard_of"])
@pytest.mark.parametrize("system", ["linux", "darwin", "win32", "freebsd14"])
def test_driver_is_valid_for_every_system(architecture, system):
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(machine_text(architecture, system), llvm.create_context())
    module.verify()
    names = {function.name for function in module.functions}
    assert {"pullback_run", "pullback_worker", "walk"} <= names
    assert ("syscall" in names) == (system == "linux" and architecture != "unheard_of")
    assert ("sched_yield" in names) == (system != "win32")


def test_array_fields_lie_where_the_entry_reads_them():
    assert array_layout_holds()


def test_import_of_the_runtime_does_not_import_llvm():
    program = "import sys, pullback.compiler.runtime.program; print('llvmlite' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
