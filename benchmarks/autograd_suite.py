"""HIPS autograd's own tests, run on Pullback: ``python benchmarks/autograd_suite.py PATH [pytest arguments]``.

PATH is a checkout of https://github.com/HIPS/autograd, or its unpacked source distribution (``pip download autograd
--no-binary :all: --no-deps``); nothing of it is part of this repository. Its modules are replaced: ``autograd.numpy``
is NumPy with the names of ``pullback.numpy`` before it, the operators are Pullback's transformations, and of its
own code only the test helpers are read. Every test that fails is printed; a test that needs a function which is not
there is left out and named with it, after all of its cases that are supported have run. The exit status is 1 if a test
fails.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import inspect
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DTypeError
from pullback.graph import Node
from pullback.tracing import flatten

LEFT_OUT_FILES = {
    "test_performance.py": "autograd's timing",
}
LEFT_OUT_TESTS = {
    "test_isinstance": "autograd.builtins.isinstance of traced lists",
    "test_numpy_version": "autograd.numpy.__version__",
    "test_custom_where": "autograd.numpy.where with keywords",
    "test_custom_where_dtypes": "autograd.numpy.where of Python numbers",
    "test_wrapped_name_and_docs": "names of autograd's functions",
    "test_unimplemented_falseyness": "autograd's table of derivatives",
    "test_rfftn_odd_not_implemented": "that rfftn of odd lengths is missing",
    "test_convolve_generalization": "autograd's convolve with axes",
    "test_convolve_ignore": "autograd's convolve with axes",
    "test_convolve_ignore_dot": "autograd's convolve with axes",
    "test_cast_to_int": "np.int64 as a function of traced values",
}
"""Tests of what autograd adds to NumPy or to Python itself."""
MISSING = (
    (re.compile(r"(np\.[\w.]+) (?:on|cannot take) a traced value"), r"\1"),
    (re.compile(r"(np\.[\w.]+) has no derivative"), r"\1"),
    (re.compile(r"traced value .* has no attribute '(\w+)'"), r"ndarray.\1"),
    (re.compile(r"(norm) of order .* has no derivative"), r"np.linalg.\1 with singular values"),
    (re.compile(r"(\w+) takes no complex"), r"complex \1"),
    (re.compile(r"(np\.[\w.]+) of .* (?:has no rule here|would depend on values)"), r"\1"),
    (re.compile(r"dtype (float128|complex256)"), r"\1"),
    (re.compile(r"(sqrtm): the root of this real matrix is complex"), r"complex \1 of real matrices"),
    (re.compile(r"Python needs one (truth value|integer)"), "control flow on values"),
    (re.compile(r"change .* in place"), "assignment in place"),
)
"""What errors say of a function that is not there."""


class Missing(Exception):
    """A test needs something of autograd's that Pullback has not."""


class Space:
    """What autograd calls the vector space of a value: a tree of arrays."""

    def __init__(self, value: Any) -> None:
        leaves, self.structure = flatten(value)
        self.leaves = [np.asarray(leaf) if not hasattr(leaf, "shape") else leaf for leaf in leaves]
        self.kinds = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in self.leaves]
        self.iscomplex = any(kind.kind == "c" for _, kind in self.kinds)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.kinds[0][0]  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        return sum(int(np.prod(shape)) * (1 + (kind.kind == "c")) for shape, kind in self.kinds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.kinds == other.kinds and self.structure.fits(other.structure)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Space({self.kinds})"

    def _filled(self, make: Callable[[tuple[int, ...]], Any]) -> Any:
        return self._of(make((self.size,)))

    def _of(self, numbers: Any) -> Any:
        """The tree that holds these numbers, one after the other."""
        leaves, start = [], 0
        for shape, kind in self.kinds:
            size = int(np.prod(shape))
            part = np.reshape(numbers[start : start + size], shape)
            start += size
            if kind.kind == "c":
                part = part + 1j * np.reshape(numbers[start : start + size], shape)
                start += size
            leaves.append(part.astype(kind)[()])
        return self.structure.unflatten(leaves)

    def zeros(self) -> Any:
        return self._filled(np.zeros)

    def ones(self) -> Any:
        return self._filled(np.ones)

    def randn(self) -> Any:
        return self._filled(lambda shape: np.random.randn(*shape))

    def standard_basis(self) -> Iterator[Any]:
        for place in range(self.size):
            yield self._of(np.eye(self.size)[place])

    def add(self, x: Any, y: Any) -> Any:
        return pb.map_tree(lambda a, b: a + b, x, y)

    def scalar_mul(self, x: Any, factor: float) -> Any:
        return pb.map_tree(lambda a: a * factor, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        return sum(np.sum(np.real(np.conj(a) * b)) for a, b in zip(flatten(x)[0], flatten(y)[0]))

    def covector(self, x: Any) -> Any:
        return pb.map_tree(np.conj, x)


def real(x: Any) -> Any:
    """``x`` with its integers as floats: autograd differentiates by them."""
    if type(x) in (int, bool):
        return float(x)
    if isinstance(x, (list, tuple, dict)):
        return pb.map_tree(real, x)
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biu":
        return x.astype(float)
    return x


def is_complex(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(is_complex, x))
    return np.iscomplexobj(x)


def make_vjp(function: Callable[[Any], Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    value, pull = pb.vjp(function, real(x))
    return lambda cotangent: pull(real(cotangent))[0], value


def make_jvp(function: Callable[[Any], Any], x: Any) -> Callable[[Any], tuple[Any, Any]]:
    return lambda tangent: pb.jvp(function, (real(x),), (real(tangent),))


def gradient(function: Callable[[Any], Any], x: Any) -> Any:
    return pb.grad(lambda x: np.reshape(function(x), ()))(real(x))


def value_and_gradient(function: Callable[[Any], Any], x: Any) -> Any:
    return pb.value_and_grad(lambda x: np.reshape(function(x), ()))(real(x))


def elementwise_gradient(function: Callable[[Any], Any], x: Any) -> Any:
    return pb.grad(lambda x: np.sum(function(x)))(real(x))


def derivative(function: Callable[[Any], Any], x: Any) -> Any:
    return make_jvp(function, x)(Space(real(x)).ones())[1]


def gradient_and_extra(function: Callable[[Any], Any], x: Any) -> Any:
    return pb.grad(function, has_aux=True)(real(x))


def hessian_vector(function: Callable[[Any], Any], x: Any) -> Any:
    return make_vjp(pb.grad(function), x)


def reverse_twice(function: Callable[[Any], Any], x: Any) -> Any:
    pull, value = make_vjp(function, x)
    return make_vjp(pull, Space(value).zeros())[0]


def grad_named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    return pb.grad(function, list(inspect.signature(function).parameters).index(name))


def hessian_tensor_product(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    def along(*arguments: Any) -> Any:
        *rest, vector = arguments
        return np.tensordot(pb.grad(function, argnum)(*rest), vector, np.ndim(vector))

    return pb.grad(along, argnum)


def tensor_jacobian_product(function: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    def along(*arguments: Any) -> Any:
        *rest, vector = arguments
        return np.tensordot(vector, function(*rest), np.ndim(vector))

    return pb.jacobian(along, argnum)


def make_ggnvp(
    function: Callable[..., Any],
    g: Callable[[Any], Any] = lambda x: 1.0 / 2 * np.sum(x**2, axis=-1),
    f_argnum: int = 0,
) -> Callable[..., Any]:
    def make(*arguments: Any) -> Any:
        def of_one(x: Any) -> Any:
            return function(*arguments[:f_argnum], x, *arguments[f_argnum + 1 :])

        x = arguments[f_argnum]
        value, pull = pb.vjp(of_one, x)

        def product(vector: Any) -> Any:
            moved = pb.jvp(of_one, (x,), (vector,))[1]
            return pull(pb.jvp(pb.grad(lambda y: np.sum(g(y))), (value,), (moved,))[1])[0]

        return product

    return make


class Shim(ModuleType):
    """A module of autograd; what it has not, fails when it is used, with its name."""

    def __init__(self, name: str, names: dict[str, Any], behind: ModuleType | None = None) -> None:
        super().__init__(name)
        self.__dict__.update(names)
        self.__path__: list[str] = []
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._behind, name, None) if self._behind is not None else None
        if found is not None:
            return found
        shown = f"{self.__name__}.{name}"

        def missing(*arguments: Any, **keywords: Any) -> Any:
            raise Missing(shown)

        return missing


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """autograd's own function: matrices whose last two axes have ``D`` on the diagonal."""
    if offset or {axis1, axis2} != {-1, -2}:
        raise NotImplementedError("the last two axes and no offset, as in autograd")
    return D[..., None] * np.eye(D.shape[-1])


def flat(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """``autograd.misc.flatten``: the numbers of a tree in one vector, and the way back."""
    leaves, structure = flatten(tree)
    shapes = [np.shape(leaf) for leaf in leaves]
    sizes = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes])

    def unflatten(vector: Any) -> Any:
        rows = [np.reshape(vector[a:b], shape) for a, b, shape in zip(sizes, sizes[1:], shapes)]
        return structure.unflatten([row if shape else row[()] for row, shape in zip(rows, shapes)])

    return (pb.numpy.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.zeros(0)), unflatten


def holomorphic_gradient(function: Callable[[Any], Any], x: Any) -> Any:
    return pb.grad(function, holomorphic=True)(x)


def scipy_modules() -> dict[str, ModuleType]:
    """``autograd.scipy``: ``pullback.scipy``, with SciPy's own ufuncs, which take traced values, behind it."""
    try:
        import scipy.integrate
        import scipy.linalg
        import scipy.signal
        import scipy.special
        import scipy.stats
    except ImportError:
        return {}
    import pullback.scipy as own

    modules: dict[str, ModuleType] = {"autograd.scipy": Shim("autograd.scipy", {})}
    for name in ("integrate", "linalg", "signal", "special", "stats"):
        names = {each: getattr(getattr(own, name), each) for each in getattr(own, name).__all__}
        if name == "integrate":  # as SciPy's, it takes the arguments of the function in a tuple
            names["odeint"] = lambda f, y, t, args=(), **options: own.integrate.odeint(
                f, y, t, *args, **options
            )
        modules[f"autograd.scipy.{name}"] = Shim(f"autograd.scipy.{name}", names, getattr(scipy, name))
    stats = modules["autograd.scipy.stats"]
    for name in ("beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"):
        key = f"autograd.scipy.stats.{name}"
        modules[key] = Shim(key, public(getattr(stats, name)), getattr(scipy.stats, name))
        setattr(stats, name, modules[key])
    return modules


def public(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}


def install(checkout: Path) -> None:
    """Put the shims in autograd's place."""
    vocabulary = {name: getattr(pb.numpy, name) for name in pb.numpy.__all__}
    vocabulary["make_diagonal"] = make_diagonal
    containers = {name: getattr(builtins, name) for name in ("dict", "isinstance", "list", "tuple", "type")}
    own = {"norm": pb.numpy.linalg.norm, "T": lambda x: np.swapaxes(x, -1, -2), "_dot": np.matmul}
    linalg = Shim("autograd.numpy.linalg", own, np.linalg)
    modules = {
        "autograd": Shim("autograd", containers),
        "autograd.numpy": Shim("autograd.numpy", vocabulary | {"linalg": linalg}, np),
        "autograd.numpy.linalg": linalg,
        "autograd.numpy.random": np.random,
        "autograd.numpy.fft": np.fft,
        "autograd.builtins": Shim("autograd.builtins", containers),
        "autograd.core": Shim("autograd.core", {"make_vjp": make_vjp, "make_jvp": make_jvp, "vspace": Space}),
        "autograd.extend": Shim("autograd.extend", {"vspace": Space}),
        "autograd.tracer": Shim("autograd.tracer", {"isbox": lambda x: isinstance(x, Node)}),
        "autograd.util": Shim("autograd.util", {"subvals": subvals}),
        "autograd.misc": Shim("autograd.misc", {"flatten": flat}),
    } | scipy_modules()
    sys.modules.update(modules)
    for name in ("wrap_util", "test_util"):  # autograd's own: they differentiate nothing themselves
        spec = importlib.util.spec_from_file_location(
            f"autograd.{name}", checkout / "autograd" / f"{name}.py"
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"autograd.{name}"] = module
        spec.loader.exec_module(module)
        modules[f"autograd.{name}"] = module
    util, nary = modules["autograd.test_util"], modules["autograd.wrap_util"].unary_to_nary
    util.combo_check = functools.partial(every_combination, util.check_grads)
    modules["autograd"].__dict__.update(
        grad=nary(gradient),
        value_and_grad=nary(value_and_gradient),
        jacobian=nary(lambda f, x: pb.jacobian(f)(real(x))),
        hessian=nary(lambda f, x: pb.hessian(f)(real(x))),
        elementwise_grad=nary(elementwise_gradient),
        deriv=nary(derivative),
        holomorphic_grad=nary(holomorphic_gradient),
        grad_and_aux=nary(gradient_and_extra),
        make_hvp=nary(hessian_vector),
        make_vjp=nary(make_vjp),
        make_jvp=nary(make_jvp),
        grad_named=grad_named,
        hessian_tensor_product=hessian_tensor_product,
        hessian_vector_product=hessian_tensor_product,
        tensor_jacobian_product=tensor_jacobian_product,
        vector_jacobian_product=tensor_jacobian_product,
        make_ggnvp=make_ggnvp,
    )
    modules["autograd.differential_operators"] = sys.modules["autograd.differential_operators"] = Shim(
        "autograd.differential_operators",
        dict(vars(modules["autograd"])) | {"make_jvp_reversemode": nary(reverse_twice)},
    )
    for name, module in modules.items():
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)


def subvals(x: tuple[Any, ...], pairs: Any) -> tuple[Any, ...]:
    values = list(x)
    for place, value in pairs:
        values[place] = value
    return tuple(values)


def every_combination(
    check_grads: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """autograd's ``combo_check``; what a complex argument is refused for is raised when all others have run."""

    def check(*columns: Any, **options: Any) -> None:
        choices = [[(name, value) for value in values] for name, values in options.items()]
        refused: DTypeError | None = None
        for row in itertools.product(*columns):
            for chosen in itertools.product(*choices):
                try:
                    check_grads(function, *args, **kwargs)(*row, **dict(chosen))
                except DTypeError as error:
                    if not is_complex(row):
                        raise
                    refused = error
        if refused is not None:
            raise refused

    return check


class Results:
    """A pytest plugin: which tests pass, which fail, and which are left out, with what they lack."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._raised: dict[str, BaseException] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
        if call.excinfo is not None:
            self._raised.setdefault(item.nodeid, call.excinfo.value)
        yield

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in list(items):
            why = LEFT_OUT_TESTS.get(item.originalname or item.name)
            if why is not None:
                self.left_out[item.nodeid] = why
                items.remove(item)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._enter(report.nodeid, report, self._raised.get(report.nodeid))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._enter(report.nodeid, report, Exception(str(report.longrepr)))

    def _enter(self, name: str, report: Any, error: BaseException | None) -> None:
        if report.outcome == "passed":
            self.passed.append(name)
        elif report.outcome == "skipped":
            self.left_out[name] = "skipped by autograd itself"
        else:
            lacks = missing(error)
            if lacks is None:
                self.failed[name] = f"{type(error).__name__}: {error}"
            else:
                self.left_out[name] = lacks


def missing(error: BaseException | None) -> str | None:
    """What a test that raised this lacks; None where it is a fault."""
    seen = error
    while seen is not None:
        if isinstance(seen, Missing):
            return str(seen)
        if isinstance(seen, (pb.errors.PullbackError, AttributeError)):
            for pattern, name in MISSING:
                match = pattern.search(str(seen))
                if match:
                    return match.expand(name)
        seen = seen.__cause__ or seen.__context__
    found = re.search(r"Missing: (\S+)", str(error))
    return found[1] if found else None


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    checkout = Path(arguments[0]).resolve()
    install(checkout)
    sys.path.insert(0, str(checkout / "tests"))
    results = Results()
    files = [
        path for path in sorted((checkout / "tests").glob("test_*.py")) if path.name not in LEFT_OUT_FILES
    ]
    options = ["-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider", "-c", "/dev/null"]
    options += ["--rootdir", str(checkout), "-W", "ignore", "--import-mode=importlib"]
    pytest.main([*options, *map(str, files), *arguments[1:]], plugins=[results])
    for name, why in LEFT_OUT_FILES.items():
        if (checkout / "tests" / name).exists():
            print(f"left out  {name}: {why}")
    for name, why in results.left_out.items():
        print(f"left out  {name}: {why}")
    for name, why in results.failed.items():
        print(f"FAILED    {name}: {why[:300]}")
    print(f"\n{len(results.passed)} passed, {len(results.failed)} failed, {len(results.left_out)} left out")
    for name, count in Counter(results.left_out.values()).most_common():
        print(f"  {count:4}  {name}")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
