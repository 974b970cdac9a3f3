"""The example of ``docs/architecture.md`` runs, and the compiler's floors import as it says, in one direction."""

import ast
import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pullback
from pullback.graph import OPERATORS

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
COMPILER = Path(pullback.__file__).parent / "compiler"

ROW = re.compile(r"\| `(\w+)/?` \| [^|]+ \| ([^|]*)\|")


def told() -> dict[str, set[str]]:
    """The floors of the compiler as the page tells of them, the highest first, and what each imports."""
    table = PAGE.read_text(encoding="utf-8").partition("### The compiler's floors")[2].partition("###")[0]
    return {floor: set(re.findall(r"\w+", names)) for floor, names in ROW.findall(table)}


def test_the_example_of_the_page_runs():
    before = set(OPERATORS)
    try:
        failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    finally:  # other tests go through the table
        for name in set(OPERATORS) - before:
            del OPERATORS[name]
    assert attempted >= 9 and not failed


def imported(text: str) -> Iterator[str]:
    """The floors that a module's text imports from, wherever it does, by a name that is given as a string too."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
            names = [ast.literal_eval(argument) for argument in node.args[:1]]
        for name in names:
            if name.startswith("pullback.compiler."):
                yield name.split(".")[2]


def found() -> dict[str, set[str]]:
    """What each floor of the compiler imports of the others."""
    floors: dict[str, set[str]] = {}
    for path in COMPILER.rglob("*.py"):
        floor = path.relative_to(COMPILER).with_suffix("").parts[0]
        if floor != "__init__":
            floors.setdefault(floor, set()).update({*imported(path.read_text(encoding="utf-8"))} - {floor})
    return floors


def test_the_floors_of_the_compiler_import_as_the_page_says():
    assert found() == told()


def test_the_floors_of_the_compiler_import_from_those_below():
    floors = list(told())
    for number, floor in enumerate(floors):
        assert not found()[floor] - {*floors[number + 1 :]}, floor


@pytest.mark.parametrize(
    "text",
    [
        "from pullback.compiler.jit.named import NamedSizes",
        "from pullback.compiler.jit import named",
        "from pullback.compiler import jit, target",
        "def late():\n    import pullback.compiler.jit.named",
        "if TYPE_CHECKING:\n    from pullback.compiler.jit import Compiled",
        'import_module("pullback.compiler.jit.named")',
    ],
)
def test_an_import_is_found_wherever_it_stands(text):
    assert "jit" in imported(text)
