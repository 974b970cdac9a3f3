"""Optimisers and gradient clipping: plain functions of gradients, state and parameters.

>>> import numpy as np
>>> from pullback import optim
>>> optimiser = optim.SGD(0.1, momentum=0.9)
>>> weights = {"w": np.array([1.0, 2.0])}
>>> state = optimiser.init(weights)
>>> weights, state = optimiser.update({"w": np.array([1.0, -1.0])}, state, weights)
>>> weights
{'w': array([0.9, 2.1])}
"""

from pullback.keywords import tells_keywords
from pullback.optim import schedules
from pullback.optim.accumulate import Accumulate, Accumulated
from pullback.optim.adadelta import Adadelta, AdadeltaState
from pullback.optim.adagrad import Adagrad
from pullback.optim.adam import Adam, AdamState, AdamW
from pullback.optim.adjustable import Adjustable, Adjusted, rate_factor
from pullback.optim.averaged import Averaged, Averages, averaged
from pullback.optim.clipping import clip_by_norm, clip_by_value, global_norm
from pullback.optim.groups import Grouped, Groups
from pullback.optim.lazy import Lazy
from pullback.optim.lbfgs import LBFGS, LBFGSState, Minimum
from pullback.optim.lion import Lion
from pullback.optim.nadam import NAdam, NAdamState
from pullback.optim.optimiser import Counted, LearningRate, LineSearch, Optimiser, rate_at
from pullback.optim.rmsprop import RMSProp, RMSPropState
from pullback.optim.sgd import SGD

__all__ = [
    "LBFGS",
    "SGD",
    "Accumulate",
    "Accumulated",
    "Adadelta",
    "AdadeltaState",
    "Adagrad",
    "Adam",
    "AdamState",
    "AdamW",
    "Adjustable",
    "Adjusted",
    "Averaged",
    "Averages",
    "Counted",
    "Grouped",
    "Groups",
    "LBFGSState",
    "Lazy",
    "LearningRate",
    "LineSearch",
    "Lion",
    "Minimum",
    "NAdam",
    "NAdamState",
    "Optimiser",
    "RMSProp",
    "RMSPropState",
    "averaged",
    "clip_by_norm",
    "clip_by_value",
    "global_norm",
    "rate_at",
    "rate_factor",
    "schedules",
]

for _optimiser in (
    *(LBFGS, SGD, Adadelta, Adagrad, Adam, AdamW, Lion, NAdam, RMSProp),
    *(Accumulate, Adjustable, Averaged, Groups, Lazy),
):
    _optimiser.__init__ = tells_keywords(_optimiser.__init__)  # type: ignore[misc,method-assign]
