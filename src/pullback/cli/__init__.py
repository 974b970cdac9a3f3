"""The command ``pullback``: ``train``, ``evaluate``, ``predict``, ``sample`` and ``info``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pullback import __version__
from pullback.cli import evaluate, info, predict, sample, train
from pullback.cli.options import INTERRUPTED
from pullback.cli.output import tell
from pullback.errors import PullbackError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (by default those of the process) and return its exit status."""
    try:
        options = _parser().parse_args(arguments)
        status: int = options.run(options)
    except PullbackError as error:
        tell(str(error))
        return 1
    except KeyboardInterrupt:
        tell("interrupted")
        return INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pullback", description="Automatic differentiation of NumPy code, compiled whole."
    )
    parser.add_argument("--version", action="version", version=f"pullback {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    train.add_command(commands)
    evaluate.add_command(commands)
    predict.add_command(commands)
    sample.add_command(commands)
    info.add_command(commands)
    return parser
