"""``jit``: a Python function as one machine-code program for each combination of types and shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import numpy as np

from pullback.compiler.jit.any_size import AnySize, Sized
from pullback.compiler.jit.disabled import is_anywhere, is_here, watched
from pullback.compiler.jit.inside import Inside
from pullback.compiler.jit.parameters import (
    argument_numbers,
    count_positional,
    leaf_names,
    least_positional,
    most_traces,
    named_arguments,
)
from pullback.compiler.jit.request import ClosesOver, Request, Settings
from pullback.compiler.jit.retraces import note_retrace
from pullback.compiler.jit.specialised import Latest, Specialised
from pullback.compiler.programs.budget import budget_bytes, within
from pullback.compiler.programs.collector import young_collections_only
from pullback.compiler.programs.executable import Report, Requested, make_executable
from pullback.compiler.programs.nans import explain_nan, has_nan
from pullback.compiler.runtime.exported import CFunction
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.objects import CallableObject, called_directly, set_entry
from pullback.compiler.runtime.signature import Signature
from pullback.control.compiled import MOST_DERIVED
from pullback.control.schedules import without_segments
from pullback.errors import DonationError, NamedAxisError, ShapeError, TreeError
from pullback.graph import Node, Type
from pullback.graph.node import kind_of
from pullback.tracing.functions import check_function
from pullback.tracing.trace import is_apart, is_whole, leaf_type
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Static, Structure, flatten

__all__ = ["Compiled", "jit"]

P = ParamSpec("P")
R = TypeVar("R")


class _CalledAtOnce(CallableObject, Generic[P, R]):
    """An object with a ``__call__`` of its own, which may be compiled code: no Python in between."""

    if TYPE_CHECKING:

        def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> R: ...
    else:  # type checkers would take it for a value that is called without the object
        __slots__ = ("__call__",)


@called_directly
class Compiled(_CalledAtOnce[P, R]):
    """A function that is compiled when it meets new types; made by ``jit``.

    It is called by compiled code that knows the latest programs. What these do not take as it is goes to ``_call``.
    """

    def __init__(self, function: Callable[P, R], settings: Settings) -> None:
        self.function = function
        self.settings = settings
        self.__name__ = getattr(function, "__name__", "function")
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = getattr(function, "__module__", __name__)
        self._requested = Request(function, self.__name__, settings)
        self._any_size = None if settings.shapes is None else AnySize(self._requested, settings.shapes)
        self._programs: dict[Any, Specialised] = {}
        self._inside = Inside(function, settings)
        self._transformed: dict[Any, Compiled[..., Any]] = {}
        self._calls = Latest("pullback_entry", self._call)
        self._runs: dict[Any, Latest] = {}
        self.slow_path()
        watched(self)
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """In the body of a class it is a method, as functions are: the object is the first argument.

        >>> import numpy as np
        >>> from pullback import nn
        >>> class Doubled(nn.Module):
        ...     weight: np.ndarray
        ...     @jit
        ...     def __call__(self, x):
        ...         return 2 * self.weight * x
        >>> Doubled(np.array(3.0))(1.5)
        np.float64(9.0)
        """
        return self if owner is None else MethodType(self, owner)

    def slow_path(self) -> None:
        """Have the next call go through Python."""
        object.__setattr__(self, "__call__", self._call)

    def __reduce__(self) -> Any:
        """How it is pickled and copied: as functions are, by name, where its name is that of a decorated function; else
        as the function and the settings, of which a new one is made.
        """
        named: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            named = getattr(named, name, None)
        if named is self:
            return self.__qualname__
        return type(self), (self.function, self.settings)

    def __transformed__(
        self,
        transformation: Callable[..., Any],
        settings: tuple[Any, ...],
        named: Mapping[str, Any],
        same_arguments: bool,
    ) -> Compiled[..., Any] | None:
        """What a transformation makes of the function, compiled in the same way; the same object each time.

        ``None`` where axes have names, which may be others then, where static arguments have no numbers any more, and
        for settings that cannot be compared.
        """
        static = self.settings.static_argnums or self.settings.static_argnames
        if self._any_size is not None or (static and not same_arguments):
            return None
        key = transformation, settings, tuple(sorted(named.items()))
        try:
            found = self._transformed.get((key, kind_of(key)))
        except TypeError:
            return None
        if found is None:
            undonated = replace(self.settings, donate_argnums=(), watch=None)
            found = Compiled(transformation(self.function, *settings, **named), undonated)
            for old in list(self._transformed)[: 1 - MOST_DERIVED]:
                self._transformed.pop(old, None)
            self._transformed[key, kind_of(key)] = found
        return found

    @property
    def traces(self) -> int:
        """For how many structures and types of arguments the function has been compiled.

        Why it was compiled again the logger ``pullback.jit`` says, at its level ``INFO``.

        >>> import numpy as np
        >>> double = jit(lambda x: 2 * x)
        >>> _ = double(np.ones(3)), double(np.zeros(3)), double(np.ones(4))
        >>> double.traces
        2
        """
        return len({*self._programs, *self._inside.known})

    @shows_users_frames
    def _call(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the program for these arguments, compiling it first if their types are new."""
        if is_here():
            return self.function(*arguments, **keywords)
        leaves, structure = flatten(self._marked(arguments, keywords))
        if any(isinstance(leaf, Node) for leaf in leaves):
            if is_whole() or self.settings.memory is not None or self._any_size is not None:
                return self.function(*arguments, **keywords)
            return self._inside.call(leaves, structure, self._note)
        try:
            special, sized = self._fitting(tuple([leaf_type(leaf) for leaf in leaves]), structure)
        except ClosesOver as closure:
            if self._any_size is not None:
                raise
            return closure.traced.evaluate(leaves)
        if self.settings.check_nan or self._any_size is not None:
            return self._run(special, leaves, sized)
        fast = self._calls.including(special.signature(None))
        if not is_anywhere():
            object.__setattr__(self, "__call__", fast)
            set_entry(self, machine().code.address("pullback_forward"))
        return special.unflatten(special.executable.program(*leaves))

    @shows_users_frames
    def run_steps(
        self, arguments: Sequence[Any], steps: int, sliced_argnums: int | Iterable[int] = ()
    ) -> Any:
        """Run the program ``steps`` times in one call; returns the results and how many steps were done.

        Every array of the arguments in ``sliced_argnums`` has a leading axis of length ``steps``: step ``s`` is given
        row ``s``. Donated arguments, which must come back as the first results in the same order, carry their values
        from step to step in place; all others stay the same. Every result that is not carried has a leading axis of
        length ``steps``.

        With ``watch`` the run ends after the first step whose watched result is not finite. ``KeyboardInterrupt`` is
        raised between two steps.

        >>> import numpy as np
        >>> count = jit(lambda total, x: (total + x, total), donate_argnums=0)
        >>> (total, before), done = count.run_steps((np.array([0.0]), np.array([[1.0], [2.0], [4.0]])), 3, 1)
        >>> total, before.tolist(), done
        (array([7.]), [[0.0], [1.0], [3.0]], 3)
        """
        hashable = type(sliced_argnums) in (int, tuple) and not is_apart()
        runs = self._runs.get(sliced_argnums) if hashable else None
        if runs is not None:
            outcome = runs.function(*arguments, steps)
            if outcome is not NotImplemented:
                return outcome
        outcome, signature = self._run_steps(arguments, steps, sliced_argnums)
        if hashable and signature is not None:
            self._runs.setdefault(sliced_argnums, Latest("pullback_run_entry")).including(signature)
        return outcome

    def _run_steps(
        self, arguments: Sequence[Any], steps: int, sliced_argnums: int | Iterable[int]
    ) -> tuple[Any, Signature | None]:
        """What ``run_steps`` returns, and how compiled code does the same the next time."""
        sliced = set(argument_numbers("sliced_argnums", sliced_argnums, len(arguments)))
        marked, _ = self._marked(arguments, {})
        leaves, structure = flatten((marked, {}))
        slices: list[bool] = []
        for number, argument in enumerate(marked):
            slices += [number in sliced] * len(flatten(argument)[0])
        arrays = [np.asarray(leaf) if cut else leaf for leaf, cut in zip(leaves, slices)]
        types = []
        for leaf, cut in zip(arrays, slices):
            kind = leaf_type(leaf)
            if cut and (not kind.shape or kind.shape[0] != steps):
                raise ShapeError(
                    f"run_steps of {steps} steps was given {kind}: sliced arrays need one row for each step"
                )
            types.append(kind.with_shape(kind.shape[1:]) if cut else kind)
        special, sized = self._fitting(tuple(types), structure)
        program = special.executable.program
        if special.requested.uncarried:
            raise TreeError(
                "run_steps: the donated arguments must be the first results, in the same order and structure; "
                + special.requested.uncarried
            )
        sliced_leaves = frozenset(k for k, cut in enumerate(slices) if cut)
        if sized is None:
            final, done = program.run(arrays, steps, sliced_leaves)
        else:
            final, done = sized.run(program, arrays, steps, sliced_leaves)
        signature = special.signature(sliced_leaves) if sized is None else None
        return (special.requested.out_structure.unflatten(final), done), signature

    @shows_users_frames
    def inspect(self, *arguments: Any, **keywords: Any) -> Report:
        """The program for these arguments as each stage of the way leaves it, from the graph to the assembly.

        The program is run some times on copies of donated arguments, to tell how long each of its regions takes.

        >>> import numpy as np
        >>> report = jit(lambda x: np.exp(x).sum(axis=1)).inspect(np.zeros((2, 3)))
        >>> print(report.stages["canonicalise"])
        for i<2:
            result0[i] = sum[r1<3](exp(argument0[3*i + r1]))
        >>> len(report.region_seconds)
        1
        """
        leaves, special, sized = self._specialised(arguments, keywords)
        executable = special.executable
        return executable.report(leaves if sized is None else sized.arguments(executable.program, leaves))

    def _run(self, special: Specialised, leaves: Sequence[Any], sized: Sized | None) -> Any:
        """The results, where Python has something to do for them; with ``check_nan`` unless there is NaN among them."""
        program = special.executable.program
        before = list(leaves)
        if self.settings.check_nan:
            before = program.with_copies(leaves)
        results = program(*leaves) if sized is None else sized.run(program, leaves)[0]
        if self.settings.check_nan and any(map(has_nan, results)):
            types = special.types if sized is None else sized.call.types
            with without_segments():
                graph = self._requested(special.structure, types).graph
            explain_nan(graph, before)
        return special.unflatten(results)

    @shows_users_frames
    def memory_bytes(self, *arguments: Any, **keywords: Any) -> int:
        """The bytes that a call with these arguments takes for itself: what ``memory`` bounds.

        >>> import numpy as np
        >>> gradient = jit(lambda x: np.tanh(x @ x).sum(axis=1) @ x)
        >>> gradient.memory_bytes(np.ones((1000, 1000))) >= 8_000
        True
        """
        return self._specialised(arguments, keywords)[1].executable.memory_bytes

    @property
    def address(self) -> int:
        """Where the function lies that C calls with a ``double`` for each parameter without a default.

        Of a function of numbers that gives one it is ``double f(double x0, …)``; ``c_function`` says more, and takes
        examples of arguments of other types.

        >>> import numpy as np
        >>> slope = jit(lambda x: np.cos(np.cos(x)) * -np.sin(x))
        >>> import ctypes
        >>> round(ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(slope.address)(1.0), 6)
        -0.721606
        """
        return self.c_function(
            *[np.float64(1)] * least_positional(self.function, self.settings.static_argnums)
        ).address

    @shows_users_frames
    def c_function(self, *arguments: Any, **keywords: Any) -> CFunction:
        """The function that C calls, compiled for arguments of these types: for SciPy, Numba, ctypes, and C itself.

        Its parameters are the leaves of the arguments in their order, numbers by value and arrays by the address of
        their first element, which lie row by row. A function of numbers whose one result is a float without axes
        returns that. Any other takes the addresses of its results behind those of its arguments, in memory of the
        caller's that overlaps nothing, and returns an ``int``. What is wrong with the values, such as an index outside
        its axis, gives NaN, or an ``int`` that is not 0; a call from Python says what it was.

        It runs in the thread that calls it, with or without the interpreter lock, in any number of threads at once, and
        gives the same bits as a call from Python. Its address is good as long as it is held, or ``self`` is.

        Raises ``AddressError`` of functions that call Python, that donate arguments, or of dtypes that C does not have,
        and ``NamedAxisError`` of functions with ``shapes``, as no size is given to a C function.

        >>> import numpy as np
        >>> norm = jit(lambda x, p: (np.sum(x**p) ** (1 / p), x / p)).c_function(np.zeros(2), 2.0)
        >>> norm.signature
        'int function(const double *x0, double x1, double *y0, double *y1)'
        """
        if self._any_size is not None:
            raise NamedAxisError(
                f"{self.__name__} is compiled with shapes=, and C functions have arrays of the sizes that they are "
                f"compiled for, as no size is given to them; make one for each size of the function itself, "
                f"jit({self.__name__}).c_function(…) with an example of that size"
            )
        _, special, _ = self._specialised(arguments, keywords)
        if not special.exported:
            special.exported.append(CFunction(special.executable.program, self.__name__))
        return special.exported[0]

    def _marked(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        numbers, names = self.settings.static_argnums, self.settings.static_argnames
        if numbers:
            arguments = [Static(a) if k in numbers else a for k, a in enumerate(arguments)]
        if names:
            keywords = {name: Static(a) if name in names else a for name, a in keywords.items()}
        return tuple(arguments), keywords

    def _specialised(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[list[Any], Specialised, Sized | None]:
        """The leaves of these arguments, and the program for them."""
        leaves, structure = flatten(self._marked(arguments, keywords))
        return leaves, *self._fitting(tuple(map(leaf_type, leaves)), structure)

    def _fitting(self, types: tuple[Type, ...], structure: Structure) -> tuple[Specialised, Sized | None]:
        """The program for such arguments; where it is one for any size, how it is called."""
        sized = None if self._any_size is None else self._any_size.sized(structure, types)
        key: Any = structure, types
        if sized is not None:
            types = sized.instance.types
            key = sized.instance
        if is_apart():
            key = key, "apart"
        known = self._programs.get(key)
        if known is None:
            self._note(structure, types)
            with young_collections_only():
                known = self._programs[key] = self._compile(structure, types, sized)
        return known, sized

    def _note(self, structure: Structure, types: tuple[Type, ...]) -> None:
        """Say why the function is compiled for these types, unless it has been, alone or within a transformation."""
        if (structure, types) not in self._programs and (structure, types) not in self._inside.known:
            known = [*((each.structure, each.types) for each in self._programs.values()), *self._inside.known]
            note_retrace(
                self.__name__, list(dict.fromkeys(known)), structure, types, self.settings.max_traces
            )

    def _compile(self, structure: Structure, types: tuple[Type, ...], sized: Sized | None) -> Specialised:
        def request() -> Requested:
            return self._requested(structure, types) if sized is None else sized.again()

        if self.settings.memory is None:
            made, levels = request() if sized is None else sized.instance.requested, None
        else:
            given = sum(type.nbytes for type in types)
            made, levels = within(self.settings.memory, request, self.__name__, given)
        executable = make_executable(
            made.graph,
            made.offered,
            made.watched,
            levels,
            flush_subnormals=self.settings.flush_subnormals,
            names=leaf_names(self.function, structure),
        )
        results = enumerate(made.graph.outputs)
        scalars = tuple(k for k, node in results if not node.shape and k not in made.offered)
        return Specialised(structure, types, made, executable, scalars)


def jit(
    function: Callable[P, R],
    donate_argnums: int | Iterable[int] = (),
    static_argnums: int | Iterable[int] = (),
    watch: int | None = None,
    memory: int | str | None = None,
    check_nan: bool = False,
    static_argnames: str | Iterable[str] = (),
    max_traces: int | None = None,
    flush_subnormals: bool = False,
    shapes: Mapping[str, Sequence[Any]] | None = None,
) -> Compiled[P, R]:
    """``function`` compiled to machine code: traced once for each combination of structures, dtypes and shapes.

    Arguments and results are trees of NumPy arrays. Each call returns new ones; the memory of those that nobody uses
    any more, up to 128 MB of it, is kept for those of later calls. Arguments in ``donate_argnums`` give their memory to
    the results: they are updated in place and come back as results. Arguments in ``static_argnums`` are values that the
    program is compiled for, such as a number of layers; they must be hashable. Negative numbers count from the end.
    ``static_argnames`` names such arguments, which may be given by position or by keyword. ``watch`` is the position in
    the returned tuple of a scalar float that ends ``run_steps`` if it is not finite.

    A loop of Python whose steps do the same is compiled once if it is long, as ``scan`` is; a short one is written out.

    Within transformations that are called from Python it runs compiled as well: ``vmap(grad(jit(f)))`` is a compiled
    function itself, and of a call within other code batches and derivatives are programs, remembered by types. Nothing
    is donated there.

    ``memory`` is a budget, in bytes or as text such as ``"200MB"`` or ``"1.5GiB"``, for what a call takes for itself:
    the program's arena and the scratch memory of its threads. Arguments, results and constants are not counted. Where
    the program would take more, the backward pass of scans that do not say ``checkpoint`` by themselves runs some
    steps again instead of keeping something of each, as few as the budget allows. The function is traced several times.

    With ``check_nan`` a call whose results have NaN raises ``NaNError``: it is computed again, operator by operator,
    which takes its time, and the error names the first operator that gives NaN, the line, and the steps of loops.
    Donated arguments are copied for that. ``run_steps`` is not checked; it has ``watch``.

    With ``max_traces`` a call that needs one program more than these raises ``RetraceError``, which says what is new
    about its arguments: for tests, and for services that must not stop to compile. A function that has been compiled
    for 16 sizes of its arguments, and again whenever that number has doubled, says so by the logger ``pullback.jit``.

    With ``flush_subnormals`` floats of a magnitude below the least normal number (``np.finfo(dtype).tiny``) count as
    zeros, where the processor has a mode for that (x86-64, AArch64): as operands, and as results of each operation.
    Many processors take a hundred times as long for them, and the gradients of a long recurrence vanish through them.
    Without it they are what they are in NumPy. Functions out of the program, NumPy's and LAPACK's, keep them.

    ``shapes`` names axes of arguments: ``jit(f, shapes={"x": ("batch", 784), "y": ("batch",)})`` is traced once for all
    sizes of ``batch`` and compiled for a capacity (8, 16, 24, 32, 48, 64, 96, …), for all sizes up to it. Keys
    are parameters, or paths to leaves below them (``"data.images"``); axes without a name are extents, ``None`` for any
    that the program is compiled for, or ``...`` last. One name is one size in all arguments. Results equal those of a
    program for that very size up to rounding, and depend on the arguments alone. Inside, ``x.shape[0]`` is a traced
    number; where Python needs an integer it is refused, as are operations that have no rule for padding:
    ``NamedAxisError``. Each size that is met is traced, and compared with the program: where the function is another
    one at that size, it has a program of its own, as sizes 0 and 1 have, and the logger ``pullback.jit`` says why.

    It can be pickled, for other processes, and copied as far as the function can: a function of a module, decorated or
    not, a bound method, a ``partial``. The programs stay behind; the code cache has their code.

    Raises what tracing raises, ``DonationError`` for donated memory that cannot be written in place,
    ``MemoryBudgetError`` with the least memory that can be reached where that is beyond the budget, and
    ``IndexRangeError`` for an index outside its axis, before anything donated is changed.

    >>> import numpy as np
    >>> @jit
    ... def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> float(norm(np.array([3.0, 4.0])))
    5.0
    >>> power = jit(lambda x, n: x**n, static_argnames="n")
    >>> power(np.array([2.0, 3.0]), n=3)
    array([ 8., 27.])
    >>> square = jit(lambda x: x * x, flush_subnormals=True)
    >>> square(np.array([3.0, 1e-20], np.float32))
    array([9., 0.], dtype=float32)
    >>> centred = jit(lambda x: x - x.sum(axis=0) / x.shape[0], shapes={"x": ("batch", 2)})
    >>> [centred(np.ones((n, 2))).shape for n in (5, 6, 7)], centred.traces
    ([(5, 2), (6, 2), (7, 2)], 1)
    """
    check_function("jit", function)
    positional = count_positional(function, donate_argnums, static_argnums)
    donated = argument_numbers("donate_argnums", donate_argnums, positional)
    names, named = named_arguments(function, static_argnames)
    static = dict.fromkeys([*argument_numbers("static_argnums", static_argnums, positional), *named])
    both = sorted({*donated} & {*static})
    if both:
        raise DonationError(
            f"jit: argument {both[0]} is static and donated; a static value is part of the program and has "
            "no memory to give: leave it out of donate_argnums or of static_argnums"
        )
    settings = Settings(
        donate_argnums=donated,
        static_argnums=tuple(static),
        static_argnames=names,
        watch=watch,
        memory=None if memory is None else budget_bytes(memory),
        check_nan=check_nan,
        max_traces=most_traces(max_traces),
        flush_subnormals=flush_subnormals,
        shapes=shapes,
    )
    return Compiled(function, settings)
