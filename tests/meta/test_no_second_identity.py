"""No class has two identities: the rooms are imported as parts of `jackfield` only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "plugins", "server")
FILES = [
    *(path for folder in (*ROOMS, "tests", "scripts") for path in (ROOT / folder).rglob("*.py")),
    ROOT / "src" / "jackfield" / "__init__.py",
    ROOT / "noxfile.py",
]


def imported(source: str) -> Iterator[str]:
    """Top-level names that a module imports; "." for a relative import."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else str(node.module).split(".")[0]


def test_rooms_are_imported_by_their_full_name() -> None:
    wrong = {
        str(path.relative_to(ROOT)): sorted(found)
        for path in FILES
        if (found := {*imported(path.read_text())} & {*ROOMS, "."})
    }
    assert wrong == {}


@pytest.mark.parametrize("line", ["import core.api", "from core import api", "from . import x"])
def test_a_wrong_import_is_found(line: str) -> None:
    assert {*imported(line)} & {*ROOMS, "."}
