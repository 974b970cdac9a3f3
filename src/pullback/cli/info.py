"""``pullback info``: versions, processor, threads and cache, for bug reports."""

from __future__ import annotations

import argparse
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pullback import __version__
from pullback.cli.output import BROKEN_PIPE, Output

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Enter ``info``."""
    parser = commands.add_parser("info", help="show versions, processor, threads and cache")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in _facts().items():
        table.add_row(name, value)
    output = Output()
    output.print(table)
    return BROKEN_PIPE if output.lost else 0


def _facts() -> dict[str, str]:
    from pullback.compiler.runtime.cache import default_cache
    from pullback.compiler.runtime.threads import get_num_threads
    from pullback.compiler.target import Processor, usable_cores

    processor = Processor.host()
    packages = ("numpy", "llvmlite", "rich", "safetensors", "scikit-learn", "matplotlib")
    return {
        "pullback": __version__,
        "Python": f"{platform.python_version()} on {sys.platform}",
        **{package: _version(package) for package in packages},
        "processor": f"{processor.name} ({processor.architecture})",
        "vectors": f"{8 * processor.vector_bytes} bits, {processor.vector_registers} registers",
        "threads": f"{get_num_threads()} of {usable_cores()} cores",
        "code cache": str(default_cache().folder or "off"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
