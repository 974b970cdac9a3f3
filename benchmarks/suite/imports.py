"""How long importing takes beyond NumPy's own import, and how large what is installed is."""

from __future__ import annotations

import json
import statistics
import subprocess

from contest import Settings
from report import Table

# The size is that of the library and of all it requires, without NumPy, by the lists of installed files.
_SCRIPT = """
import time, numpy
start = time.perf_counter()
import {imports}
seconds = time.perf_counter() - start
import importlib.metadata as metadata, json, os, re
def size(name, seen):
    name = re.split(r"[^A-Za-z0-9._-]", name)[0].lower().replace("_", "-")
    if name in seen:
        return 0
    seen.add(name)
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return 0
    files = (found.locate_file(file) for file in found.files or ())
    own = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    needed = [text for text in found.requires or () if "extra ==" not in text]
    return own + sum(size(text, seen) for text in needed)
distribution = metadata.packages_distributions().get("{library}", ["{library}"])[0]
print(json.dumps([seconds, size(distribution, {{"numpy"}})]))
"""
_WHOLE = "pullback, pullback.nn, pullback.optim, pullback.data, pullback.train"


def run(settings: Settings) -> list[Table]:
    """Fresh processes in turns; the first of each, which fills the file cache, does not count."""
    pythons = {entrant.library: entrant.python for entrant in settings.entrants}
    tasks = {library: (library, python, library) for library, python in pythons.items()}
    if "pullback" in pythons:
        tasks["pullback with trainer"] = ("pullback", pythons["pullback"], _WHOLE)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    sizes = {}
    for number in range(settings.rounds + 1):
        for name, (library, python, imports) in tasks.items():
            taken, sizes[name] = _import(python, library, imports)
            if number:
                seconds[name].append(taken)
    own = statistics.median(seconds.get("pullback", [float("nan")]))
    rows = []
    for name, measured in seconds.items():
        middle = statistics.median(measured)
        figures = [f"{min(measured):.3f}", f"{middle:.3f}", f"{middle / own:.1f}", f"{sizes[name] / 1e6:.0f}"]
        rows.append([name, *figures])
    columns = ("import", "s min", "median", "× median", "installed MB")
    notes = [f"Beyond NumPy's own import, {settings.rounds} fresh processes each."]
    return [Table("import", columns, rows, notes, {"seconds": seconds, "bytes": sizes})]


def _import(python: str, library: str, imports: str) -> tuple[float, int]:
    script = _SCRIPT.format(imports=imports, library=library)
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    seconds, size = json.loads(done.stdout.splitlines()[-1])
    return seconds, size
