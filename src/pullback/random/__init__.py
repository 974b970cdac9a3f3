"""Random numbers without state: each is a function of a key and of its place in the result.

The same key gives the same numbers each time, to the last bit: at once, interpreted or compiled, for any number of
threads and any width of vectors. They are made of integers, and of floats by sums, products, quotients and roots that
are each rounded by itself; no function of a mathematics library has a part in them. A key is an array of two
``uint32``; make one from a seed, and new ones from it by ``split`` or ``fold_in``, one for each use.

>>> import numpy as np
>>> from pullback import random
>>> first, second = random.split(random.key(0))
>>> random.uniform(first, (3,))
array([0.9673578 , 0.923499  , 0.42655832], dtype=float32)
>>> random.fold_in(second, 7)
array([3979521767, 1075323329], dtype=uint32)

Source: Salmon, Moraes, Dror & Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC'11 (Threefry-2x32-20).
"""

from pullback.random.distributions import (
    beta,
    categorical,
    cauchy,
    chisquare,
    choice,
    dirichlet,
    exponential,
    gamma,
    geometric,
    gumbel,
    laplace,
    logistic,
    lognormal,
    multivariate_normal,
    pareto,
    poisson,
    rademacher,
    randint,
    rayleigh,
    shuffle,
    t,
    truncated_normal,
    weibull_min,
)
from pullback.random.keys import bernoulli, bits, fold_in, key, normal, permutation, split, uniform

__all__ = [
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "lognormal",
    "multivariate_normal",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "shuffle",
    "split",
    "t",
    "truncated_normal",
    "uniform",
    "weibull_min",
]
