"""Arguments that there are not: too many by position, and keywords, which may have another name here than elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pullback.errors import KeywordError, SettingError

__all__ = ["tells_keywords"]

P = ParamSpec("P")
R = TypeVar("R")

KEYWORDS = {
    "alpha": ("smoothing", "slope"),
    "beta_1": ("beta1",),
    "beta_2": ("beta2",),
    "betas": ("beta1", "beta2"),
    "callbacks": ("on_epoch_end",),
    "centered": ("centred",),
    "clipnorm": ("clip_norm",),
    "clipvalue": ("clip_value",),
    "criterion": ("loss",),
    "data_format": ("channels",),
    "dilation_rate": ("dilation",),
    "downscale_factor": ("factor",),
    "elementwise_affine": ("affine",),
    "embed_dim": ("features",),
    "embedding_dim": ("columns",),
    "embeddings_initializer": ("initialiser",),
    "eps": ("epsilon",),
    "filters": ("out_channels",),
    "global_clipnorm": ("clip_norm",),
    "hidden_size": ("hidden",),
    "in_features": ("inputs",),
    "init": ("slope",),
    "initializer": ("initialiser",),
    "input_dim": ("inputs", "rows"),
    "input_size": ("inputs",),
    "kdim": ("key_features",),
    "kernel_initializer": ("initialiser",),
    "lr": ("learning_rate",),
    "nonlinearity": ("activation",),
    "normalized_shape": ("shape",),
    "num_channels": ("features",),
    "num_embeddings": ("rows",),
    "num_features": ("features",),
    "num_groups": ("groups",),
    "num_heads": ("heads",),
    "num_layers": ("layers",),
    "num_parameters": ("features",),
    "optimizer": ("optimiser",),
    "out_features": ("outputs",),
    "output_dim": ("columns",),
    "p": ("rate",),
    "pool_size": ("kernel_size",),
    "recurrent_initializer": ("recurrent_initialiser",),
    "rho": ("decay", "smoothing"),
    "scheduler": ("learning_rate",),
    "strides": ("stride",),
    "units": ("outputs", "hidden"),
    "upscale_factor": ("factor",),
    "use_bias": ("bias",),
    "validation_data": ("validation",),
    "vdim": ("value_features",),
    "verbose": ("progress",),
}
"""Other libraries' names, and those that they have here, of which a class has one, or all."""

MISSING = {
    "batch_first": "The batch comes first always.",
    "device": "All is computed by the processor.",
    "go_backwards": "Turn the steps round, x[:, ::-1], or give bidirectional=True.",
    "inplace": "Arrays are new ones; compiled programs write in place where they can.",
    "input_shape": "Layers are made for the sizes that they take.",
    "mask_zero": "Give the lengths of the sequences where a recurrent layer is called.",
    "requires_grad": "What is trained the optimiser says, as optim.Groups does.",
    "track_running_stats": "nn.training says when statistics are those of the batch.",
}
"""What there is not, with what there is instead."""


def _refused(owner: str, keyword: str, known: Iterable[str]) -> KeywordError:
    known = tuple(dict.fromkeys(known))
    here, near = _here(keyword, known), get_close_matches(keyword, known, 1, 0.75)
    hint = MISSING.get(keyword, "")
    if here:
        hint = f"Here it is {' and '.join(map(repr, here))}."
    elif near and not hint:
        hint = f"Near it is {near[0]!r}."
    taken = f"It takes {', '.join(known)}." if known else "It takes none."
    message = f"[{owner}] it got an unexpected keyword argument {keyword!r}."
    return KeywordError(" ".join(filter(None, (message, hint, taken))), keyword=keyword, known=known)


def _here(keyword: str, known: Iterable[str]) -> list[str]:
    return [name for name in KEYWORDS.get(keyword, ()) if name in known]


def _crowded(owner: str, came: int, places: Iterable[str], known: Iterable[str], hint: str) -> SettingError:
    places = list(places)
    others = [name for name in known if name not in places]
    message = f"[{owner}] {came} arguments came by position. So it takes {', '.join(places) or 'none'}"
    message += f"; by keyword {', '.join(others)}." if others else "."
    return SettingError(" ".join(filter(None, (message, hint))))


def tells_keywords(function: Callable[P, R], name: str | None = None, hint: str = "") -> Callable[P, R]:
    """``function``, a method, that raises ``KeywordError`` for a keyword argument that it does not take.

    For more arguments by position than it takes it raises ``SettingError``, with a ``hint`` if there is one. The
    message begins with ``name``, by default the name of the object's class. What a function hands on as ``**options``
    is told of by all that it takes itself as well.

    >>> class Layer:
    ...     @tells_keywords
    ...     def __init__(self, inputs, *, bias=True): ...
    >>> Layer(in_features=3)
    Traceback (most recent call last):
    pullback.errors.KeywordError: [Layer] ... argument 'in_features'. Here it is 'inputs'. It takes inputs, bias. ...
    """
    signature = inspect.signature(function)
    _, *parameters = signature.parameters.values()
    known = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    places = [
        each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    any_name = any(each.kind is each.VAR_KEYWORD for each in parameters)

    def binds(*arguments: Any, **keywords: Any) -> bool:
        try:
            signature.bind(*arguments, **keywords)
        except TypeError:
            return False
        return True

    @wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        owner = name or type(arguments[0]).__name__
        unknown = [each for each in keywords if each not in known]
        if any_name and unknown:  # others may take it, unless what is missing is what it stands for
            unknown = [each for each in unknown if _here(each, known) and not binds(*arguments, **keywords)]
        if unknown:
            raise _refused(owner, unknown[0], known)
        came = len(arguments) - 1
        if not any_number and (came > len(places) or any(each in keywords for each in places[:came])):
            raise _crowded(owner, came, places, known, hint)
        try:
            return function(*arguments, **keywords)
        except KeywordError as error:
            if error.keyword not in keywords:
                raise
            raise _refused(owner, error.keyword, [*known, *error.known]) from None

    return called
