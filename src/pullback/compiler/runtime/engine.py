"""From LLVM IR text to loaded machine code.

The road always leads through object code: text is compiled to the bytes of an object file, and
those of one or several are loaded together. Bytes that come from the cache are loaded the same
way, and where ``linking`` knows their format, LLVM is not needed at all.

LLVM works in threads that no signal disturbs (``undisturbed``): Ctrl-C would leave llvmlite's lock taken, or a module
without the context that it lies in. Whatever LLVM makes is disposed of where it was made, in its order.

>>> text = "define i64 @twice(i64 %x) {\\n  %y = add i64 %x, %x\\n  ret i64 %y\\n}"
>>> code = Loaded([compile_object(text, Processor.host())], Processor.host())
>>> import ctypes
>>> ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("twice"))(21)
42
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pullback.compiler.runtime.linking import link
from pullback.compiler.runtime.pages import give_back_pages
from pullback.compiler.target import Processor, told_by_llvm
from pullback.undisturbed import undisturbed

__all__ = ["Loaded", "add_symbols", "assembly", "compile_object", "llvm_version", "load", "rest"]

# Level 0 loses half of a product's speed and level 3 gains nothing over 2; no optimisation passes
# are run, because the text already says which vectors, unrolling and order are wanted.
_CODE_GENERATION_LEVEL = 2

_FOLDS_MASKED_LOADS, _KEEPS_MASKED_LOADS = 22, "disable-spill-fusing"
"""The version of LLVM with the fault that ``_llvm`` works around, and the option for it."""


@functools.lru_cache(maxsize=1)
def _llvm() -> Any:
    """llvmlite, imported on first use so that importing Pullback stays light."""
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # From 22 on LLVM puts a masked load into an instruction under the same mask, though that may read lanes that the
    # mask leaves out, of other elements or of memory that is not there (VPERMPS, VINSERTF32X8). This is the only way to
    # turn it off; what else it keeps apart is reading what was saved from a register.
    version = llvm.llvm_version_info[0]
    if version > _FOLDS_MASKED_LOADS and not _knows(Path(llvm.ffi.lib._name), _KEEPS_MASKED_LOADS):
        raise RuntimeError(
            f"LLVM {version} of llvmlite {llvmlite.__version__} has no option -{_KEEPS_MASKED_LOADS}, without which "
            "LLVM 22 made wrong code of masked loads: install an earlier llvmlite"
        )
    if version >= _FOLDS_MASKED_LOADS:
        llvm.set_option("pullback", f"-{_KEEPS_MASKED_LOADS}")
    rest()  # what beginning has read is not what compiling reads
    return llvm


def _knows(library: Path, option: str) -> bool:
    """Whether an option's name is in LLVM's library: asked for one that it does not know, LLVM ends the process."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(option.encode() + b"\0") >= 0


def rest() -> None:
    """LLVM is not needed for a while: give back the memory that its library takes."""
    if "llvmlite.binding" in sys.modules:
        give_back_pages(Path(sys.modules["llvmlite.binding"].__file__ or "").parent)


@functools.lru_cache(maxsize=1)
def _emit_to_memory() -> Any:
    """LLVM's code generator without llvmlite's lock, which lets one thread in at a time.

    It needs none here: modules in contexts of their own share nothing.
    """
    llvm = _llvm()
    function = ctypes.CDLL(llvm.ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    kinds = llvm.ffi.LLVMTargetMachineRef, llvm.ffi.LLVMModuleRef
    function.argtypes = [*kinds, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    function.restype = llvm.ffi.LLVMMemoryBufferRef
    return function


def llvm_version() -> str:
    """The versions that object code depends on."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__}, LLVM {told_by_llvm()['version']}"


def _target_machine(processor: Processor) -> Any:
    return (
        _llvm()
        .Target.from_default_triple()
        .create_target_machine(
            cpu=processor.name,
            features=processor.features,
            opt=_CODE_GENERATION_LEVEL,
            reloc="pic",
            codemodel="default",
            jit=True,
        )
    )


@contextmanager
def _parsed(text: str) -> Iterator[Any]:
    """The module of a text, in a context of its own that goes after it."""
    llvm = _llvm()
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        module.verify()
        yield module


def compile_object(text: str, processor: Processor) -> bytes:
    """The object file of a module; ``RuntimeError`` with LLVM's message if the text is no valid module."""
    return undisturbed(lambda: _object(text, processor))


def _object(text: str, processor: Processor) -> bytes:
    library = _llvm().ffi.lib
    with _parsed(text) as module, _target_machine(processor) as machine:
        with _llvm().ffi.OutputString() as message:
            buffer = _emit_to_memory()(machine, module, 1, message)
            if not buffer:
                raise RuntimeError(str(message))
        data = ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
        library.LLVMPY_DisposeMemoryBuffer(buffer)
        return data


def assembly(text: str, processor: Processor) -> str:
    """The module as assembly for a person to read."""

    def listing() -> str:
        with _parsed(text) as module, _target_machine(processor) as machine:
            lines: str = machine.emit_assembly(module)
            return lines

    return undisturbed(listing)


_added: dict[str, int] = {}


def add_symbols(addresses: dict[str, int]) -> None:
    """Tell the loader where functions outside the machine code are, whatever this system's linker exports."""
    _added.update(addresses)


def _address_of(name: str) -> int:
    """The address of a function outside the machine code, 0 if there is none."""
    if name in _added:
        return _added[name]
    function = getattr(ctypes.CDLL(None), name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


_loading = threading.Lock()
_engines: list[tuple[weakref.ref[Loaded], Any]] = []
"""LLVM's loaders, each for as long as its code is there."""


def _loaded_by_llvm(owner: Loaded) -> Any:
    """The owner's object files in memory, by LLVM's loader, which knows those of all systems."""
    llvm = _llvm()
    with _loading:
        for entry in list(_engines):
            if entry[0]() is None:
                _engines.remove(entry)
                entry[1].close()
    for name, address in _added.items():
        llvm.add_symbol(name, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(owner.processor))
    for data in owner.objects:
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _engines.append((weakref.ref(owner), engine))
    return engine


class Loaded:
    """Machine code in memory; it is unloaded when this object is freed.

    ``objects`` is what was loaded, ``cached`` whether that came from the cache.
    """

    def __init__(self, objects: Sequence[bytes], processor: Processor, cached: bool = False) -> None:
        self.processor = processor
        self.objects = tuple(objects)
        self.cached = cached
        self._image = link(objects, _address_of)
        self._find: Callable[[str], int | None]
        if self._image is not None:
            self._find = self._image.symbols.get
        else:
            engine = undisturbed(lambda: _loaded_by_llvm(self))
            self._find = functools.cache(lambda name: undisturbed(lambda: engine.get_function_address(name)))

    def address(self, name: str) -> int:
        """The address of a function or global of the module.

        Raises ``KeyError`` if the module does not define it.
        """
        address = self._find(name)
        if not address:
            raise KeyError(f"the machine code defines no {name!r}")
        return address

    def make_immortal(self) -> None:
        """Never unload this code: threads of this process may be parked in it until the very end."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def load(text: str, processor: Processor) -> Loaded:
    """Compile ``text`` and load it."""
    return Loaded([compile_object(text, processor)], processor)
