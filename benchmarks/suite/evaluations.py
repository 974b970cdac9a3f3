"""The sizes of the numerical programs that are raced: GradBench's evaluations, and others."""

from __future__ import annotations

from evaluations import Evaluation

__all__ = ["EVALUATIONS"]


def _sized(name: str, program: str, **sizes: int) -> Evaluation:
    return Evaluation(name, program, sizes)


EVALUATIONS = {
    "gradbench": (
        *(_sized(f"gmm d{d}, k{k}", "gmm", d=d, k=k, n=1000) for d, k in ((2, 5), (10, 25), (64, 10))),
        _sized("kmeans k10", "kmeans", k=10, n=1000, d=8),
        _sized("kmeans k100", "kmeans", k=100, n=10_000, d=16),
        _sized("lse", "lse", n=160_000),
        _sized("llsq", "llsq", n=2048, m=128),
        _sized("ode", "ode", n=1000, steps=100),
        _sized("det 6", "det", n=6),
        _sized("det 11", "det", n=11),
        _sized("particle", "particle"),
        _sized("particle, reverse outside", "particle_reverse"),
        _sized("saddle", "saddle"),
        _sized("saddle, reverse outside", "saddle_reverse"),
        _sized("lstm", "lstm", layers=2, steps=1024, bits=14),
        _sized("ht", "ht", vertices=544, points=192),
        _sized("ba", "ba", cameras=49, points=7776, seen=31_843),
    ),
    "numerical": (
        _sized("rosenbrock, reverse", "rosenbrock", n=12_000),
        _sized("rosenbrock, forward by chunks", "rosenbrock_forward", n=2000),
        _sized("logsumexp", "lse", n=1000),
        _sized("ackley", "ackley", n=100_000),
        _sized("examples", "examples", n=10_000),
        _sized("spline", "spline", knots=50, n=1000),
        _sized("deconvolution", "deconvolution", n=4096),
        _sized("sorting", "sorting", n=10_000),
        _sized("spectra", "spectra", n=4096, window=256),
        _sized("ranks", "ranks", n=100),
        _sized("densities", "densities", n=1000),
        _sized("determinants", "determinants", n=2000),
    ),
}
"""By the name of the benchmark."""
