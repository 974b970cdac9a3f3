"""Pullback: ``pb.grad`` on NumPy's own functions, evaluated as it goes."""

from __future__ import annotations

from typing import Any

import numpy as np
from uncompiled import PROGRAMS, argument, named

import pullback as pb


class Contender:
    def __init__(self, program: str) -> None:
        self.choice = "pb.grad"
        function, self.given = PROGRAMS[program], argument(program)
        self.gradient = pb.grad(lambda x: function(np, x))

    def run(self) -> None:
        self.result = self.gradient(self.given)

    def numbers(self) -> dict[str, Any]:
        return named(self.result)
