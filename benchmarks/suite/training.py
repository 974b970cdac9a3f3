"""A race of training steps as a table, for every network alike."""

from __future__ import annotations

import statistics

from contest import Result, Settings, race
from networks import Dropout, Network, flops_per_step
from report import Table, relative_difference

from suite.jobs import Race

__all__ = ["tables"]

_COLUMNS = ("contender", "ms/step min", "median", "× min", "× median", "GFLOP/s", "of peak", "last loss")


def tables(settings: Settings, race: Race) -> list[Table]:
    """A race on each of the networks, with their steps a turn unless the command line says otherwise."""
    return [_table(settings, network, settings.steps or race.steps) for network in race.networks]


def _table(settings: Settings, network: Network, steps: int) -> Table:
    settings.say(f"{network.name}: {settings.rounds} rounds of {steps} steps")
    results, rates = race(settings, network, steps)
    flops = flops_per_step(network)
    own = next((result for result in results if result.entrant == "pullback"), None)
    return Table(
        f"{network.name}: {network.describe()}",
        _COLUMNS,
        [_row(result, own, flops, max(rates)) for result in results],
        [
            f"Batch {network.batch}, {network.optimiser}, {settings.threads} threads, {settings.rounds} rounds of "
            f"{steps} steps. "
            f"A step is gather, forward, backward and update: {flops / 1e6:.1f} MFLOP. "
            "× is the time over Pullback's.",
            f"FMA peak in the same rounds: {max(rates):.0f} GFLOP/s at best, "
            f"{statistics.median(rates):.0f} in the median. GFLOP/s and the share of the peak are those of "
            "the best rounds.",
            *(_about(result, own, network) for result in results),
        ],
        {
            "network": network.as_json(),
            "threads": settings.threads,
            "flops_per_step": flops,
            "peak_gflops": rates,
            "results": [vars(result) for result in results],
        },
    )


def _row(result: Result, own: Result | None, flops: int, top: float) -> list[str]:
    rate = flops / result.minimum / 1e9
    ratios = ["–", "–"]
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
    ]


def _about(result: Result, own: Result | None, network: Network) -> str:
    """Version, the way the step is written, and how far its losses are from Pullback's."""
    about = f"{result.entrant} {result.version}: {result.choice}."
    if own is None or result is own:
        return about
    if network.has(Dropout):
        return f"{about} Its random numbers are its own, and so are its losses: they are not compared."
    count = len(own.losses)
    first, every = (relative_difference(result.losses[:n], own.losses[:n]) for n in (100, count))
    return f"{about} Losses within {first:.0e} of Pullback's in 100 steps, {every:.0e} in {count:,}."
