"""NumPy, each operation as it stands."""

from __future__ import annotations

import numpy as np
from singles import SINGLES, Arrays, Single


class Contender:
    def __init__(self, single: Single, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        self.function, self.given = SINGLES[single.name].function, list(arrays.values())
        self.choice = "as it stands"

    def run(self) -> None:
        self.result = self.function(np, *self.given)

    def numbers(self) -> Arrays:
        return {"result": np.asarray(self.result)}
