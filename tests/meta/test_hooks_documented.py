"""Every hook is documented with exactly its arguments, and a test implements it."""

import ast
import re
from collections.abc import Iterator
from inspect import isfunction, signature
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import PROJECT, SPECIFICATIONS, Discipline

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hooks.md").read_text()
HEADING = re.compile(r"^#### `(.*)`$", re.MULTILINE)


def hooks() -> Iterator[tuple[str, Any]]:
    for specifications in SPECIFICATIONS.values():
        for specification in specifications:
            for name, function in vars(specification).items():
                if hasattr(function, f"{PROJECT}_spec"):
                    yield name, function


def methods() -> list[tuple[str, Any]]:
    own = vars(Discipline).items()
    return [(name, each) for name, each in own if isfunction(each) and not name.startswith("_")]


def arguments(function: Any) -> list[str]:
    return [name for name in signature(function).parameters if name != "self"]


def documented() -> list[tuple[str, list[str]]]:
    """Name and arguments of every heading that is a signature."""
    headings = [heading for heading in HEADING.findall(PAGE) if "(" in heading]
    functions = [ast.parse(f"def {heading}: ...").body[0] for heading in headings]
    return [
        (function.name, [argument.arg for argument in function.args.args])
        for function in functions
        if isinstance(function, ast.FunctionDef)
    ]


@pytest.mark.parametrize(("name", "function"), [*hooks(), *methods()])
def test_documented_with_its_arguments(name: str, function: Any) -> None:
    assert (name, arguments(function)) in documented()


@pytest.mark.parametrize(("name", "function"), [*hooks()])
def test_says_when_it_is_called(name: str, function: Any) -> None:
    assert re.search(r"Called|Budget", function.__doc__), name


@pytest.mark.parametrize(("name", "function"), [*hooks(), *methods()])
def test_a_test_implements_it(name: str, function: Any) -> None:
    first = arguments(function)[0]
    implementation = re.compile(rf"def {name}\(\s*self,\s*{first}\b")
    sources = (path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert any(map(implementation.search, sources)), f"no class in tests implements {name}"
