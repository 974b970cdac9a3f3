"""The benchmark suite: ``python benchmarks/run.py mnist-rnn --peer torch=/path/to/python``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from contenders import LIBRARIES, NUMERICAL
from contest import Settings, entrants
from report import Table
from suite import BENCHMARKS, benchmark
from vectors import with_vectors


def main() -> None:
    options = _parser().parse_args()
    peers = dict(_peer(text) for text in options.peer)
    if options.vectors:
        with_vectors(options.vectors)
    names = list(BENCHMARKS) if "all" in options.benchmark else options.benchmark

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    found = entrants(peers, options.without, say)
    others = entrants(peers, options.without, say, NUMERICAL) if "uncompiled" in names else []
    tables: list[Table] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            found, folder, options.threads, options.rounds, options.steps, options.long, say, others
        )
        for name in names:
            new = benchmark(name)(settings)
            for table in new:
                print(table.text(), end="\n\n", flush=True)
            tables += new
    if options.markdown:
        text = "\n\n".join([f"Machine: {machine()}.", *(table.markdown() for table in tables)])
        Path(options.markdown).write_text(text + "\n")
    if options.json:
        data = {"machine": machine(), "tables": {table.title: table.data for table in tables}}
        Path(options.json).write_text(json.dumps(data, indent=1) + "\n")


def machine() -> str:
    """Processor, cores and system, as far as they are known."""
    from pullback.compiler.target import Processor

    processor = Processor.host()
    width = f"{8 * processor.vector_bytes}-bit vectors"
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{processor.name}, {os.cpu_count()} cores, {width}, {system}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Pullback against its peers, in the same run.")
    parser.add_argument("benchmark", nargs="+", choices=[*BENCHMARKS, "all"], help="what to measure")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="LIBRARY=PYTHON",
        help="the interpreter that has a library (torch, jax, tensorflow, autograd); may be given several times",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="leave a contender out, such as torch:compiled",
    )
    parser.add_argument("--threads", type=int, default=2, help="threads for every contender (2)")
    parser.add_argument(
        "--vectors",
        type=int,
        choices=(16, 32),
        help="bytes of the vectors that libraries may use: 32 for AVX2",
    )
    parser.add_argument("--rounds", type=int, default=10, help="turns for each contender (10)")
    parser.add_argument(
        "--steps", type=int, default=0, help="steps a turn; each benchmark has its own number"
    )
    parser.add_argument("--long", action="store_true", help="also what takes minutes: whole trainings")
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables")
    return parser


def _peer(text: str) -> tuple[str, str]:
    library, equals, python = text.partition("=")
    if library not in (*LIBRARIES, *NUMERICAL) or not equals:
        known = ", ".join((*LIBRARIES, *NUMERICAL))
        raise SystemExit(f"--peer {text}: give LIBRARY=PYTHON with one of {known}")
    return library, python


if __name__ == "__main__":
    main()
