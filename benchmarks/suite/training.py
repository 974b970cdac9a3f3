"""A race of training steps as a table, for every network alike."""

from __future__ import annotations

import statistics
from typing import Any

from contest import Result, Settings, race
from report import Table
from workload import Network, flops_per_step

__all__ = ["training_table"]

_COLUMNS = (
    "contender", "ms/step min", "median", "× min", "× median", "GFLOP/s", "of peak", "last loss", "peak MB",
    "import s", "first step s",
)  # fmt: skip


def training_table(settings: Settings, network: Network, steps: int) -> Table:
    """Race on ``network``, with ``steps`` steps a turn unless the command line says otherwise."""
    settings.say(f"{network.name}: {settings.rounds} rounds of {settings.steps or steps} steps")
    results, rates = race(settings, network, steps)
    flops, top = flops_per_step(network), statistics.median(rates)
    own = next((result for result in results if result.entrant == "pullback"), None)
    rows = [_row(result, own, flops, max(rates)) for result in results]
    shape = f"{network.steps} × {network.inputs}" if network.steps else f"{network.inputs}"
    title = f"{network.name}: {shape} → {' → '.join(map(str, network.hidden))} → 10, {network.activation}"
    notes = [
        f"Batch {network.batch}, {settings.threads} threads, {settings.rounds} rounds; a step is "
        f"{flops / 1e6:.1f} MFLOP with the gather of its batch, forward, backward and update.",
        f"FMA peak in the same rounds: {max(rates):.0f} GFLOP/s at best, {top:.0f} in the median. "
        "GFLOP/s and share of the peak are those of the best rounds.",
        "× is the contender's time over Pullback's.",
        *(f"{r.entrant} {r.version}: {r.choice}." for r in results),
    ]
    if own is not None:
        notes += [f"Losses of {r.entrant} against Pullback's: {_difference(r, own)}" for r in results if r is not own]
    return Table(title, _COLUMNS, rows, notes, _data(network, settings, results, rates, flops))


def _row(result: Result, own: Result | None, flops: int, top: float) -> list[str]:
    rate = flops / result.minimum / 1e9
    ratios = ["", ""]
    if own is not None:
        ratios = [f"{result.minimum / own.minimum:.2f}", f"{result.median / own.median:.2f}"]
    return [
        result.entrant,
        f"{result.minimum * 1e3:.3f}",
        f"{result.median * 1e3:.3f}",
        *ratios,
        f"{rate:.1f}",
        f"{100 * rate / top:.0f} %",
        f"{result.losses[-1]:.6f}",
        f"{result.peak_bytes / 1e6:.0f}",
        f"{result.import_seconds:.2f}",
        f"{result.first_seconds:.2f}",
    ]


def _difference(result: Result, own: Result) -> str:
    """The largest relative difference over the first 100 steps and over all."""
    differences = [abs(a - b) / abs(b) for a, b in zip(result.losses, own.losses)]
    return (
        f"{max(differences[:100]):.1e} relative at most in the first 100 steps, "
        f"{max(differences):.1e} in all {len(differences)}."
    )


def _data(
    network: Network, settings: Settings, results: list[Result], rates: list[float], flops: int
) -> dict[str, Any]:
    return {
        "network": vars(network),
        "threads": settings.threads,
        "flops_per_step": flops,
        "peak_gflops": rates,
        "results": [{**vars(r), "losses": r.losses[:100], "last_loss": r.losses[-1]} for r in results],
    }
