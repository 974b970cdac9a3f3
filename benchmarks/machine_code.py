"""The machine code of a change beside the code before it: ``python benchmarks/machine_code.py --beside FILE``.

Counts the instructions and spills of every function of the five networks, and of programs of the suite that are named.
Nothing is run or timed: a loss in an innermost loop is seen before it is timed. LLVM's comments in its assembly say
which blocks belong to an innermost loop, and which instructions spill and reload. On any system code is made for Linux.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from contest import Settings
from report import Table
from suite.passes import graph_of, programs

from pullback.compiler import build as builder
from pullback.compiler.codegen import program as emitting
from pullback.compiler.regions.steps import Job
from pullback.compiler.runtime import engine
from pullback.compiler.target import Processor
from pullback.graph import Graph

__all__ = ["PROCESSORS", "beside", "functions_of", "measured", "table"]

NETWORKS = ("mnist-rnn", "mnist-cnn", "mnist-cnn-1", "imdb-cnn", "imdb-frozen")
KINDS = ("instructions", "vector", "FMAs", "loads", "stores", "spills", "reloads")
COLUMNS = ("function: in innermost loops/whole", "schedule", *KINDS)
_AVX512 = "+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+fma"
_KILO, _MEGA = 1 << 10, 1 << 20
PROCESSORS = {
    "avx-512": Processor("znver4", _AVX512, "x86_64", 64, 32, 32 * _KILO, _MEGA, 2),
    "avx2": Processor("znver3", "+avx2,+fma", "x86_64", 32, 16, 32 * _KILO, 512 * _KILO, 2),
    "neon": Processor("neoverse-v1", "+neon", "aarch64", 16, 32, 64 * _KILO, _MEGA, 2),
}

Functions = dict[str, dict[str, Any]]
"""Of each function its schedule, its counts as a ``whole`` and those of its innermost ``loops``, in their order."""

_NOTHING: dict[str, Any] = {"schedule": "", "whole": {}, "loops": []}

_FUNCTION = re.compile(r"(\w+):\s*(?:#|//) @\1$")
_BLOCK = re.compile(r"\.L(BB\d+_\d+):|(?:#|//) %bb\.")
_COMMENT = re.compile(r"\s*(?://|#[ A-Z]).*")
_FMA = re.compile(r"v?fn?m(add|sub)|fml[as]")
_VECTOR, _SCALAR = re.compile(r"%[xyz]mm|\bv\d+\.|\bq\d"), re.compile(r"(?!vp|p)\w+s[sd]$")
_NO_ACCESS = re.compile("lea|nop|prf|prefetch")
_ONLY_READS = re.compile("cmp|test|bt|call|jmp|i?mul|i?div|push|ld|vu?comis")
_READS_TOO = re.compile("lock|add|sub|inc|dec|and|or|xor|not|neg|sh|sa|adc|sbb|xadd|xchg")


def functions_of(assembly: str) -> Functions:
    """The counts of every function of LLVM's assembly, x86 or AArch64, that has its comments."""
    found: Functions = {}
    function: dict[str, Any] = {"whole": Counter(), "loops": []}
    loops: dict[str, Counter[str]] = {}
    """By the label of the loop's head, which may come behind other blocks of the loop."""
    block, inside, here = "", Counter[str](), Counter[str]()
    for line in assembly.splitlines():
        if begun := _FUNCTION.match(line):
            function = found[begun[1]] = {"schedule": "", "whole": Counter(), "loops": []}
        if begun := _BLOCK.match(line):
            block, inside, here = begun[1] or "", Counter(), Counter()
        if "This Inner Loop Header" in line:
            inside = loops.setdefault(block, Counter())
            function["loops"].append(inside)
        elif belongs := re.search(r"in Loop: Header=(\w+)", line):
            inside = loops.setdefault(belongs[1], Counter())
        kinds = Counter(_kinds_of(line))
        function["whole"] += kinds
        inside += kinds
        here += kinds
        if kinds and "\tpullback_failure" in line:
            inside -= here  # an index is out of range: nobody waits for this block
            inside = Counter()
    return found


def _kinds_of(line: str) -> Iterator[str]:
    """What a line counts as: nothing if it is no instruction."""
    code = _COMMENT.sub("", line)
    if not code.startswith("\t") or code.startswith("\t."):
        return
    operation, _, operands = code.strip().partition("\t")
    yield "instructions"
    if _VECTOR.search(operands) and not _SCALAR.match(operation):
        yield "vector"
    if _FMA.match(operation):
        yield "FMAs"
    if spilled := re.search(r"-byte (?:Folded )?(Spill|Reload)", line):
        yield f"{spilled[1].lower()}s"
    elif re.search(r"\(|\[[xs]", operands) and not _NO_ACCESS.match(operation):
        last = operation.startswith("st") or bool(re.search(r"\)(?: \{%k\d\})?$", operands))
        writes = last and not _ONLY_READS.match(operation)
        if writes:
            yield "stores"
        if not writes or ("(" in operands and _READS_TOO.match(operation)):
            yield "loads"


def measured(graph: Graph, donated: Mapping[int, int], processor: Processor) -> Functions:
    """The counts of a program's functions; a kernel is named by what it writes and the extents of its axes."""
    labels: dict[str, tuple[str, str]] = {}
    usual = emitting._Emitter.kernel

    def kernel(self: Any, job: Job, *arguments: Any) -> str:
        function = usual(self, job, *arguments)
        written = dict.fromkeys(re.sub(r"_?\d+$", "", buffer.name) for buffer in job.given.writes())
        extents = " × ".join(str(axis.extent) for axis in job.given.axes)
        labels.setdefault(function, (f"{', '.join(written)} {extents}".strip(), job.schedule.name))
        return function

    with mock.patch.object(emitting._Emitter, "kernel", kernel):
        text = builder.build(graph, donated, processor).emitted.text
    named: Functions = {}
    seen: Counter[str] = Counter()
    for function, counts in functions_of(_assembly(text, processor)).items():
        label, counts["schedule"] = labels.get(function, (function, ""))
        seen[label] += 1
        named[label if seen[label] == 1 else f"{label} ({seen[label]})"] = counts
    return named


def _assembly(text: str, processor: Processor) -> str:
    llvm = engine._llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(f"{processor.architecture}-unknown-linux-gnu")
    level = engine._CODE_GENERATION_LEVEL
    machine = target.create_target_machine(
        processor.name, processor.features, level, reloc="pic", codemodel="default", jit=True
    )
    with engine._parsed(text) as module, machine:
        machine.set_asm_verbosity(True)
        lines: str = machine.emit_assembly(module)
        return lines


def table(title: str, found: Functions) -> Table:
    """A line for every function, and the innermost loops that spill."""
    rows = [[label, *_cells(each)] for label, each in found.items()]
    spilling = [
        f"{label}: {_said(counts)}, {counts.get('FMAs', 0)} FMAs in {counts['instructions']} instructions."
        for label, each in found.items()
        for counts in each["loops"]
        if _spilled(counts)
    ]
    return Table(title, COLUMNS, [*rows, ["total", *_cells(_total(found))]], spilling or ["No loop spills."])


def beside(title: str, before: Functions, after: Functions) -> Table:
    """A line for every function that differs, and the innermost loops that have more instructions or spills."""
    rows, worse = [], []
    for label in dict.fromkeys((*after, *before)):
        was, now = before.get(label, _NOTHING), after.get(label, _NOTHING)
        if {**was, "schedule": ""} != {**now, "schedule": ""}:
            rows.append([label, *_changes(was, now)])
            alike = len(was["loops"]) == len(now["loops"])
            pairs = zip(was["loops"], now["loops"]) if alike else [(_inside(was), _inside(now))]
            for number, (old, new) in enumerate(pairs, 1):
                lengths = [counts.get("instructions", 0) for counts in (old, new)]
                if label in before and (lengths[1] > lengths[0] or _spilled(new) > _spilled(old)):
                    which = f"loop {number}" if alike else "all loops"
                    change = f"{lengths[0]} → {lengths[1]} instructions; {_said(old)} → {_said(new)}"
                    worse.append(f"More in {label}, {which}: {change}.")
    rows.append(["total", *_changes(_total(before), _total(after))])
    return Table(
        title, COLUMNS, rows, worse or ["No loop that was there before has more instructions or spills."]
    )


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [a if a == b else f"{a} → {b}" for a, b in zip(_cells(before), _cells(after))]


def _cells(function: Mapping[str, Any]) -> list[str]:
    inside, whole = _inside(function), function["whole"]
    return [function["schedule"], *(f"{inside.get(kind, 0)}/{whole.get(kind, 0)}" for kind in KINDS)]


def _inside(function: Mapping[str, Any]) -> Counter[str]:
    return sum(map(Counter, function["loops"]), Counter())


def _total(found: Functions) -> dict[str, Any]:
    whole = sum((Counter(each["whole"]) for each in found.values()), Counter[str]())
    return {
        **_NOTHING,
        "whole": whole,
        "loops": [counts for each in found.values() for counts in each["loops"]],
    }


def _spilled(counts: Mapping[str, int]) -> int:
    return counts.get("spills", 0) + counts.get("reloads", 0)


def _said(counts: Mapping[str, int]) -> str:
    return f"{counts.get('spills', 0)} spills, {counts.get('reloads', 0)} reloads"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", nargs="*", help="programs of the suite beside the five networks: resnet-8")
    parser.add_argument("--processor", choices=PROCESSORS, help="what code is made for, in place of this one")
    parser.add_argument("--vectors", type=int, choices=(16, 32, 64), help="bytes of the longest vectors")
    parser.add_argument("--save", metavar="FILE", help="write the counts, for another run's --beside")
    parser.add_argument("--beside", metavar="FILE", help="show what differs from the counts of this file")
    options = parser.parse_args()
    processor = PROCESSORS[options.processor] if options.processor else Processor.host()
    if options.vectors:
        processor = processor.limited(options.vectors)
    before = json.loads(Path(options.beside).read_text()) if options.beside else {}
    found: dict[str, Functions] = {}
    with tempfile.TemporaryDirectory() as folder:
        makers = programs(Settings([], folder, 2, 1, 0, False, functools.partial(print, file=sys.stderr)))
        known = {short: name for name in makers for short in (name, name.partition(", ")[2])}
        for name in (*NETWORKS, *options.network):
            if name not in known:
                parser.error(f"{name} is no program of the suite; there are {', '.join(makers)}")
            graph, donated, host, *_ = graph_of(makers[known[name]])
            target = replace(processor, flush_subnormals=host.flush_subnormals)
            title = f"{name}, {target.name}, vectors of {target.vector_bytes} bytes"
            functions = found[title] = measured(graph, donated, target)
            if options.beside and title not in before:
                parser.error(f"{options.beside} has no counts of {title}; it has {', '.join(before)}")
            shown = beside(title, before[title], functions) if options.beside else table(title, functions)
            print(shown.text(), end="\n\n", flush=True)
    if options.save:
        Path(options.save).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
