"""What tests/http does a few times, done many times: its fixtures, and its test files by name."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HTTP = Path(__file__).parents[1] / "http"


def _load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"soak_{name}", HTTP / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_http = _load("conftest")
folder, serve = _http.folder, _http.serve


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    text = "how long an engine is kept busy on a GPU (600)"
    group.addoption("--churn-seconds", type=float, default=600.0, metavar="SECONDS", help=text)
    text = "the model that it has: a name of core/bench/shapes.py (qwen3-0.6b)"
    group.addoption("--churn-shape", default=None, metavar="NAME", help=text)


@pytest.fixture(scope="session")
def http_tests() -> Callable[[str], Any]:
    """The module of a test file of tests/http."""
    return _load
