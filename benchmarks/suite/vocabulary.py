"""How much of NumPy's vocabulary libraries compile and differentiate: the same expressions (``vocabulary.py``)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from contest import Settings
from report import Table

import pullback

_SCRIPT = Path(__file__).parents[1] / "vocabulary.py"
_LIBRARIES = ("pullback", "jax")
"""Those with a namespace of NumPy's names."""


def run(settings: Settings) -> list[Table]:
    """One table; what does not work goes into the JSON."""
    pythons = {entrant.library: entrant.python for entrant in settings.entrants}
    data = {}
    for library in _LIBRARIES:
        if library in pythons:
            settings.say(f"vocabulary: {library}, which takes minutes")
            data[library] = _counted(library, pythons[library])
    kinds = list(next(iter(data.values()))["counts"]) if data else []
    rows = [
        [library, *("{} of {}".format(*found["counts"][kind]) for kind in kinds)]
        for library, found in data.items()
    ]
    notes = [
        "Values compiled are NumPy's, gradients those of difference quotients; pnp is Pullback's own namespace."
    ]
    return [Table("vocabulary", ("library", *kinds), rows, notes, data)]


def _counted(library: str, python: str) -> dict[str, Any]:
    """What ``vocabulary.py`` finds; expected values are computed by Pullback's sources, which need NumPy alone."""
    sources = str(Path(pullback.__file__).parents[1])
    path = os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [python, str(_SCRIPT), "--library", library, "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{library}: {done.stderr.strip().splitlines()[-1:] or ['no message']}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
