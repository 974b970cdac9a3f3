"""HIPS autograd: ``autograd.grad`` on its own NumPy."""

from __future__ import annotations

from typing import Any

import autograd
import autograd.numpy as anp
from uncompiled import PROGRAMS, argument, named


class Contender:
    def __init__(self, program: str) -> None:
        self.choice = "autograd.grad"
        function, self.given = PROGRAMS[program], argument(program)
        self.gradient = autograd.grad(lambda x: function(anp, x))

    def run(self) -> None:
        self.result = self.gradient(self.given)

    def numbers(self) -> dict[str, Any]:
        return named(self.result)
