"""``sparse_jacobian`` and ``sparse_hessian``: patterns and colours once, a few products in each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, NamedTuple

import numpy as np

from pullback.compiler.jit import jit
from pullback.errors import DerivativeError, ShapeError, TreeError
from pullback.graph import Graph, Node, Operation, Type, every_node
from pullback.sparse.colouring import column_colours, star_colours
from pullback.sparse.patterns import pattern_of
from pullback.tracing.trace import leaf_type, trace
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, flatten
from pullback.transforms import grad, linearize, vjp, vmap
from pullback.transforms.choosing import choose

__all__ = ["SparseDerivative", "sparse_hessian", "sparse_jacobian"]

Function = Callable[..., Any]


CHANGING = frozenset(("custom", "no_derivative", "stop_gradient"))
"""Operators whose derivative need not be that of their values."""


class _Plan(NamedTuple):
    """How a derivative is found for arguments of one list of types."""

    pattern: Any
    """A ``csr_array`` of bools."""
    seeds: np.ndarray
    """Directions, one for each colour."""
    places: np.ndarray
    """For each entry of the pattern, where in the products it stands."""
    compressed: Function
    """Compiled: the products of seeds with the derivative."""


class SparseDerivative:
    """A function that gives a ``scipy.sparse.csr_array``; made by ``sparse_jacobian`` and ``sparse_hessian``."""

    def __init__(self, function: Function, argnum: int | str, symmetric: bool, pattern: Any) -> None:
        self._name = "sparse_hessian" if symmetric else "sparse_jacobian"
        self._function = grad(function, argnum) if symmetric else function
        self._original = function
        self._argnum, self._symmetric, self._given = argnum, symmetric, pattern
        self._plans: dict[tuple[Structure, tuple[Type, ...]], _Plan] = {}
        update_wrapper(self, function, updated=())

    @shows_users_frames
    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The derivative at these arguments, (elements of the result, elements of the argument)."""
        plan = self._plan(arguments, keywords)
        products = np.asarray(plan.compressed(plan.seeds, *arguments, **keywords))
        found = plan.pattern.astype(products.dtype)
        found.data = products.reshape(-1)[plan.places]
        return found

    @shows_users_frames
    def pattern(self, *arguments: Any, **keywords: Any) -> Any:
        """Where the derivative may be other than zero for arguments like these: a ``csr_array`` of bools."""
        return self._plan(arguments, keywords).pattern.copy()

    @shows_users_frames
    def colours(self, *arguments: Any, **keywords: Any) -> int:
        """How many products each call takes for arguments like these."""
        return len(self._plan(arguments, keywords).seeds)

    def _plan(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> _Plan:
        leaves, structure = flatten((arguments, keywords))
        if any(isinstance(leaf, Node) for leaf in leaves):
            raise DerivativeError(
                f"{self._name} gives SciPy's sparse arrays, so it is called outside of jit, grad and vmap; inside, use "
                "jacobian or hvp"
            )
        key = structure, tuple([leaf_type(leaf) for leaf in leaves])
        if key not in self._plans:
            self._plans[key] = self._made(arguments, keywords)
        return self._plans[key]

    def _made(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> _Plan:
        chosen = choose(self._name, self._function, self._argnum, arguments, keywords)
        number = chosen.numbers[0]
        traced = trace(chosen.function, *chosen.arguments, **chosen.keywords)
        before = len(flatten(chosen.arguments[:number])[0])
        own, one = flatten(chosen.arguments[number])
        results = traced.graph.outputs
        if len(own) != 1 or one.paths != [""] or len(results) != 1 or traced.out_structure.paths != [""]:
            raise TreeError(
                f"{self._name}: the argument and the result are one array each, not trees of {len(own)} and "
                f"{len(results)}; join them with np.concatenate"
            )
        x, y = traced.graph.inputs[before], results[0]
        pattern = self._given
        if pattern is None:
            pattern = pattern_of(Graph(traced.graph.inputs, (y,)), x)
        pattern = _checked(self._name, pattern, (y.size, x.size))
        symmetric = self._symmetric and self._is_symmetric(pattern, arguments, keywords)
        return self._coloured(pattern, x.type, y.type, symmetric)

    def _is_symmetric(self, pattern: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
        """Whether a Hessian is: a gradient that a user's rules or ``stop_gradient`` change need not come from any
        function.
        """
        if (pattern != pattern.T).nnz:
            return False
        traced = trace(self._original, *arguments, **keywords)
        return not any(
            isinstance(node, Operation) and node.operator.name in CHANGING
            for node in every_node(traced.graph)
        )

    def _coloured(self, pattern: Any, x: Type, y: Type, symmetric: bool) -> _Plan:
        """Columns, rows or both by colour, whichever takes the fewest products."""
        rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
        columns = pattern.indices
        colours = column_colours(pattern)
        if symmetric:
            star = star_colours(pattern)
            if _count(star) < _count(colours):
                alone = _alone(rows, columns, star, pattern.shape[0])
                places = np.where(alone, star[columns] * x.size + rows, star[rows] * x.size + columns)
                return _Plan(pattern, _seeds(star, x), places, jit(self._by_columns))
        if not self._symmetric:
            own = column_colours(pattern.T.tocsr())
            if _count(own) < _count(colours):
                return _Plan(pattern, _seeds(own, y), own[rows] * x.size + columns, jit(self._by_rows))
        return _Plan(pattern, _seeds(colours, x), colours[columns] * y.size + rows, jit(self._by_columns))

    def _split(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Function, Any]:
        """The function of the one argument, and this."""
        chosen = choose(self._name, self._function, self._argnum, arguments, keywords)
        number = chosen.numbers[0]

        def function(x: Any) -> Any:
            given = [x if k == number else other for k, other in enumerate(chosen.arguments)]
            return chosen.function(*given, **chosen.keywords)

        return function, chosen.arguments[number]

    def _by_columns(self, seeds: Any, *arguments: Any, **keywords: Any) -> Any:
        _, push = linearize(*self._split(arguments, keywords))
        return vmap(push)(seeds)

    def _by_rows(self, seeds: Any, *arguments: Any, **keywords: Any) -> Any:
        _, pull = vjp(*self._split(arguments, keywords))
        return vmap(pull)(seeds)[0]


def _count(colours: np.ndarray) -> int:
    return int(colours.max(initial=-1)) + 1


def _seeds(colours: np.ndarray, type: Type) -> np.ndarray:
    """For each colour 1 at the elements that have it, and 0 elsewhere."""
    count = _count(colours)
    seeds = np.zeros((count, colours.size), type.dtype)
    seeds[colours, np.arange(colours.size)] = 1
    return seeds.reshape((count, *type.shape))


def _alone(rows: np.ndarray, columns: np.ndarray, colours: np.ndarray, size: int) -> np.ndarray:
    """Of each entry, whether its column is the only one of its colour in its row."""
    count = max(_count(colours), 1)
    pairs = rows * count + colours[columns]
    _, which, numbers = np.unique(pairs, return_inverse=True, return_counts=True)
    alone: np.ndarray = numbers[which] == 1
    return alone


def _checked(name: str, pattern: Any, shape: tuple[int, int]) -> Any:
    """``pattern`` as a ``csr_array`` of bools with sorted columns."""
    from scipy import sparse

    found = sparse.csr_array(pattern)
    if found.shape != shape:
        raise ShapeError(f"{name}: the pattern has shape {found.shape}, the derivative {shape}")
    found = found.astype(bool)
    found.eliminate_zeros()
    found.sum_duplicates()
    return found


def sparse_jacobian(function: Function, argnums: int | str = 0, *, pattern: Any = None) -> SparseDerivative:
    r"""The Jacobian of a function of an array as a ``scipy.sparse.csr_array``, from a few products with it.

    .. math:: J_{ij} = (J S)_{i, c(j)}, \qquad S_{jk} = [c(j) = k]

    The colour :math:`c` of columns is such that none has an element in a row with another of its colour, so one
    product by forward mode gives all columns of a colour. Where fewer colours do for rows, they are found by reverse
    mode. The result has the shape ``(result.size, argument.size)`` and a dtype that is the result's or the argument's.

    Where elements may be is found in the function's graph at the first call with arguments of these types, operator by
    operator, and never too tight: what is gathered at places that depend on values, factorised, sorted or carried
    through a loop counts as full. ``pattern``, anything that ``csr_array`` takes, says it instead; what it leaves out
    would be added to other elements, so it must leave out nothing. ``.pattern(x)`` gives the one in use,
    ``.colours(x)`` the number of products.

    The products are compiled. Raises ``TreeError`` unless argument and result are single arrays, ``DerivativeError``
    inside other transformations and where a pattern is beyond bounds, ``MissingExtra`` without SciPy.

    Source: Curtis, Powell & Reid, *On the estimation of sparse Jacobian matrices*, J. Inst. Maths Applics 13, 1974;
    Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapters 7 and 8.

    >>> slopes = sparse_jacobian(lambda x: np.diff(x**2))
    >>> x = np.linspace(0.0, 1.0, 1000)
    >>> slopes(x).shape, slopes(x).nnz, slopes.colours(x)
    ((999, 1000), 1998, 2)
    """
    return SparseDerivative(function, argnums, False, pattern)


def sparse_hessian(function: Function, argnums: int | str = 0, *, pattern: Any = None) -> SparseDerivative:
    r"""The Hessian of a scalar function of an array as a ``scipy.sparse.csr_array``, from a few products with it.

    .. math:: H_{ij} = H_{ji} = (H S)_{i, c(j)}, \qquad S_{jk} = [c(j) = k]

    As ``sparse_jacobian`` of the gradient, with colours that make use of the symmetry (a star colouring) where these
    are fewer; the shape is ``(argument.size, argument.size)``.

    With ``stop_gradient`` or a rule of the user's in the function the derivative of its gradient need not be
    symmetric, and symmetry is made no use of.

    Source: Gebremedhin, Manne & Pothen, *What color is your Jacobian?*, SIAM Review 47, 2005.

    >>> def rosenbrock(x):
    ...     return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    >>> curvature = sparse_hessian(rosenbrock)
    >>> curvature(np.array([1.0, 2.0, 3.0])).toarray()
    array([[ 402., -400.,    0.],
           [-400., 3802., -800.],
           [   0., -800.,  200.]])
    >>> curvature.colours(np.zeros(1000))
    3
    """
    return SparseDerivative(function, argnums, True, pattern)
