"""Fixtures for authors of plugins. They arrive in every pytest run beside an installed Jackfield.

    def test_my_policy(check_scheduler):
        check_scheduler(MyPolicy)

Nothing but pytest is imported until a fixture is used. The checks of schedulers need hypothesis.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jackfield.core.engine.loop import Engine
    from jackfield.core.testing.clock import ManualClock


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that name installed plugins to the fixtures."""
    group = parser.getgroup("jackfield")
    for kind in ("scheduler", "cache"):
        group.addoption(
            f"--jackfield-{kind}",
            metavar="NAME",
            help=f"installed {kind} plugin that the fixture jackfield_{kind} gives",
        )


@pytest.fixture
def jackfield_clock() -> "ManualClock":
    """A clock at 0 that only moves when told."""
    from jackfield.core.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def jackfield_engine(jackfield_clock: "ManualClock") -> "Callable[..., Engine]":
    """Makes engines without a model, on `jackfield_clock`; takes what `make_engine` takes."""
    from functools import partial

    from jackfield.core.testing.engines import make_engine

    return partial(make_engine, clock=jackfield_clock)


@pytest.fixture
def jackfield_scheduler(request: pytest.FixtureRequest) -> type[Any]:
    """The scheduler plugin of the option --jackfield-scheduler."""
    return _installed(request, "scheduler")


@pytest.fixture
def jackfield_cache(request: pytest.FixtureRequest) -> type[Any]:
    """The cache plugin of the option --jackfield-cache."""
    return _installed(request, "cache")


@pytest.fixture
def check_scheduler() -> Callable[..., None]:
    """Checks all laws on a scheduler plugin: its class, or a factory of a whole stack.

    A factory takes a `PolicyContext` and returns new plugins, from the root to the leaf; it is
    called many times. See `jackfield.core.testing.conformance.check_scheduler`.
    """
    pytest.importorskip("hypothesis", reason="the checks of schedulers need hypothesis")
    from jackfield.core.testing.conformance import check_scheduler as check

    return check


@pytest.fixture
def check_cache() -> Callable[..., None]:
    """Checks a cache plugin of the allocator axis: its class, or an instance."""
    from jackfield.core.testing.cache import check_cache as check

    return check


def _installed(request: pytest.FixtureRequest, kind: str) -> type[Any]:
    name = request.config.getoption(f"--jackfield-{kind}")
    if name is None:
        pytest.skip(f"no plugin is named with --jackfield-{kind}")
    from jackfield.core.host.discover import discover
    from jackfield.core.host.loader import load

    found: type[Any] = load(f"{kind}s", name, discover(f"{kind}s")).cls
    return found
