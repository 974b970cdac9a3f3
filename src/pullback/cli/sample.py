"""``pullback sample``: text by a model that ``pullback train chars`` saved."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from pullback.cli.options import positive, seed
from pullback.cli.output import BROKEN_PIPE
from pullback.cli.predict import load_model
from pullback.cli.workloads.chars import written
from pullback.data import Alphabet
from pullback.errors import DataError
from pullback.train.progress import silence

__all__ = ["add_command"]

_NEW_LINE = "\n"


def add_command(commands: Any) -> None:
    """Enter ``sample``."""
    parser = commands.add_parser("sample", help="let a saved model of characters write")
    parser.description = "Let a model that pullback train chars saved write a text."
    parser.add_argument(
        "--model", required=True, metavar="FILE", help="a model.safetensors, or the folder that has one"
    )
    parser.add_argument(
        "--prompt", default="", metavar="TEXT", help="what the text goes on from (the begin of a line)"
    )
    parser.add_argument("--length", type=positive, default=500, metavar="N", help="characters to write (500)")
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=1.0,
        metavar="T",
        help="below 1 the text is more likely, above more surprising; with 0 each character is the likeliest (1)",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="of what is drawn (0)")
    parser.set_defaults(run=_run)


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no temperature")
    return value


def _run(options: argparse.Namespace) -> int:
    model, _, alphabet = load_model(options.model)
    if not isinstance(alphabet, Alphabet):
        raise DataError(
            f"[sample] {options.model} is no model of characters. Give one that pullback train chars wrote, or use "
            "pullback predict."
        )
    begin = options.prompt or (_NEW_LINE if _NEW_LINE in alphabet else alphabet[0])
    numbers = written(model, alphabet.encode(begin), options.length, options.temperature, options.seed)
    try:
        _show(options.prompt)
        for piece in numbers:
            _show(alphabet.decode(piece))
        _show(_NEW_LINE)
    except OSError:  # nobody reads on, or there is no room
        silence(sys.stdout)
        return BROKEN_PIPE
    return 0


def _show(text: str) -> None:
    """Text on standard output as it is; what its encoding has not becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()
