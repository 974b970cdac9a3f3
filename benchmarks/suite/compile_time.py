"""What compiling takes: processor time, LLVM's share, memory; of chains how both grow with their length."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from contest import Settings
from report import Table

from suite.first_step import cached_in

CHAINS = "elementwise", "slopes", "reductions", "products", "rolls", "concatenations", "parameters"
LENGTHS = 300, 1000, 3000
LONG = 10_000
"""Chains of this length take part with ``--long``."""

NETWORKS = "resnet-8", "resnet-20", "gru-2", "perceptron-50"


def run(settings: Settings) -> list[Table]:
    """A table of chains and one of networks; each program in a fresh process without caches."""
    lengths = (*LENGTHS, LONG) if settings.long else LENGTHS
    notes = [
        "Seconds of the processor in all threads, from the function to the loaded program; LLVM's are those of the "
        "threads that run it, which work side by side. Peak memory is that of the process.",
    ]
    programs = {kind: [f"{kind}-{length}" for length in lengths] for kind in CHAINS}
    found = {name: _measured(settings, name) for names in (*programs.values(), NETWORKS) for name in names}
    rows = []
    for names in programs.values():
        first, last = (found[name]["cpu"] for name in (names[0], names[-1]))
        exponent = math.log(last / first) / math.log(lengths[-1] / lengths[0])
        rows += [[*_row(name, found[name]), f"{exponent:.2f}" if name == names[-1] else ""] for name in names]
    columns = ("program", "CPU s", "of it LLVM", "peak MB")
    return [
        Table("compile time, chains", (*columns, "growth"), rows, [*notes, "Growth is the exponent."], found),
        Table(
            "compile time, networks", columns, [_row(name, found[name]) for name in NETWORKS], notes, found
        ),
    ]


def _row(name: str, figures: dict[str, float]) -> list[str]:
    llvm = figures["cpu"] - figures["python"]
    return [name, f"{figures['cpu']:.2f}", f"{llvm:.2f}", f"{figures['peak_mb']:.0f}"]


def _measured(settings: Settings, program: str) -> dict[str, float]:
    settings.say(f"compiling {program}")
    pythons = [entrant.python for entrant in settings.entrants if entrant.library == "pullback"]
    script = Path(__file__).parents[1] / "compiling.py"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*(pythons or [sys.executable])[:1], str(script), program],
            env={**os.environ, **cached_in(folder, "pullback")},
            capture_output=True,
            text=True,
            check=True,
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
