"""PyTorch: the operation as it stands, or through ``torch.compile``."""

from __future__ import annotations

from functools import partial

import torch
from singles import SINGLES, Arrays, Single


class Contender:
    def __init__(self, single: Single, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        torch.set_num_threads(threads)
        function = partial(SINGLES[single.name].function, torch)
        self.function = torch.compile(function) if variant == "compiled" else function
        self.given = [torch.tensor(value) for value in arrays.values()]
        self.choice = "torch.compile" if variant == "compiled" else "eager"

    def run(self) -> None:
        self.result = self.function(*self.given)

    def numbers(self) -> Arrays:
        return {"result": self.result.numpy()}
