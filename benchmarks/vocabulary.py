"""How much of NumPy's vocabulary a library compiles and differentiates: ``python benchmarks/vocabulary.py``.

The expressions of ``docs/expressions/`` are run by Pullback, or by ``--library jax``, whose ``jax.numpy`` stands for
both ``np`` and ``pnp`` then, each in 64 bits: compiled, values are compared with NumPy's; of those with derivatives the
gradient is compared with difference quotients. What only Pullback writes as it does (``pnp``) is counted apart.
An interpreter without Pullback is told by ``PYTHONPATH`` where its sources are; ``run.py vocabulary`` does so.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))


def same(found: Any, expected: Sequence[np.ndarray]) -> bool:
    """Whether results are NumPy's in shape and value."""
    several = list(found) if isinstance(found, (tuple, list)) else [found]
    return len(several) == len(expected) and all(
        np.shape(a) == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True)
        for a, b in zip(several, expected)
    )


def quotient(function: Callable[..., Any], arrays: Sequence[Any], directions: Sequence[Any]) -> float:
    """The difference quotient of the weighed results along the directions."""
    step = 1e-6
    ahead, behind = (
        function(*[x if d is None else x + sign * step * d for x, d in zip(arrays, directions)])
        for sign in (1, -1)
    )
    return float((ahead - behind) / (2 * step))


def weighed(function: Callable[..., Any], module: Any) -> Callable[..., Any]:
    def total(*arrays: Any) -> Any:
        made = function(*arrays)
        several = list(made) if isinstance(made, (tuple, list)) else [made]
        return sum(module.sum(np.sin(1.0 + np.arange(np.size(p))).reshape(np.shape(p)) * p) for p in several)

    return total


def counted(library: str) -> tuple[dict[str, list[int]], list[str]]:
    """Of each kind how many expressions work and how many there are, and those that do not."""
    import numpy_table as table

    if library == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        module = own = jax.numpy
        compiled: Callable[..., Any] = jax.jit
        gradient: Callable[..., Any] = jax.grad
    else:
        import pullback

        module, own, compiled, gradient = np, pullback.numpy, pullback.jit, pullback.grad
    counts = {
        "compiled": [0, 0],
        "differentiated": [0, 0],
        "pnp compiled": [0, 0],
        "pnp differentiated": [0, 0],
    }
    missing = []
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for expression in table.expressions():
        if expression.mark == "x":
            continue
        arrays = expression.arguments()
        function = expression.of(np=module, pnp=own)
        expected = table.parts(table.traced(expression)(*map(np.copy, arrays)))
        prefix = "pnp " if "pnp." in expression.text else ""
        try:
            works = same(compiled(function)(*arrays), expected)
        except Exception:  # whatever a library raises: it does not have it
            works = False
        counts[prefix + "compiled"][0] += works
        counts[prefix + "compiled"][1] += 1
        smooth = works
        if expression.mark == "d":
            random = np.random.default_rng(0)
            places = [k for k, x in enumerate(arrays) if np.asarray(x).dtype.kind == "f"]
            directions = [
                np.where(np.isnan(x), 0.0, random.normal(size=np.shape(x))) if k in places else None
                for k, x in enumerate(arrays)
            ]
            try:
                bars = compiled(gradient(weighed(function, module), tuple(places)))(*arrays)
                found = sum(float(np.sum(bar * directions[k])) for bar, k in zip(bars, places))
                wanted = quotient(weighed(table.traced(expression), np), arrays, directions)
                smooth = bool(np.isclose(found, wanted, rtol=1e-4, atol=1e-5))
            except Exception:
                smooth = False
            counts[prefix + "differentiated"][0] += smooth
            counts[prefix + "differentiated"][1] += 1
        if not smooth:
            missing.append(expression.text)
    return counts, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--library", choices=("pullback", "jax"), default="pullback")
    parser.add_argument("--missing", action="store_true", help="print what does not work")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    counts, missing = counted(options.library)
    if options.json:
        print(json.dumps({"counts": counts, "missing": missing}))
        return
    for name, (works, tried) in counts.items():
        print(f"{options.library}: {works} of {tried} {name}")
    if options.missing:
        print("\n".join(missing))


if __name__ == "__main__":
    main()
