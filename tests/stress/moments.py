"""Ctrl-C at chosen moments: ``python -m tests.stress.moments --count 100 --what compile``.

Python looks for signals when a function is entered and after a call into C, and a profiler is called there too: it
raises ``KeyboardInterrupt`` at moments that are spread over all of a victim's work, the same from run to run.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
from types import FrameType
from typing import Any

from tests.stress.victims import VICTIMS, Victim

__all__ = ["main"]


class _Moments:
    """A profiler that counts the moments at which Python looks for signals, and raises at one of them."""

    def __init__(self, raise_at: int = -1) -> None:
        self.seen = 0
        self.raise_at = raise_at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return"):
            self.seen += 1
            if self.seen == self.raise_at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def work(self, victim: Victim) -> bool:
        """Whether the interrupt came through."""
        sys.setprofile(self)
        try:
            victim.work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--what", choices=tuple(VICTIMS), required=True)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    victim = VICTIMS[options.what]()
    victim.work()  # what is done once only is not counted
    whole = _Moments()
    whole.work(victim)
    through = 0
    for number in range(options.count):
        faulthandler.dump_traceback_later(120, exit=True)
        moment = 1 + whole.seen * number // options.count
        through += _Moments(moment).work(victim)
        victim.check()
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{options.what}: right after {options.count} of {whole.seen} moments, {through} interrupts came through"
    )


if __name__ == "__main__":
    main()
