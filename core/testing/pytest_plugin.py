"""For authors of plugins. It arrives in every pytest run beside an installed Jackfield.

Without a test file, `pytest --jackfield-scheduler package.module:Policy` adds one item per law that
a scheduler plugin has to keep, and `--jackfield-cache package.module:Plugin` does so for a plugin
of the KV cache. In test files there are fixtures:

    def test_my_policy(check_scheduler):
        check_scheduler(MyPolicy)

Nothing but pytest is imported until one of them is used. The checks need hypothesis.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jackfield.core.engine.loop import Engine
    from jackfield.core.testing.clock import ManualClock


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that name plugins to the fixtures and to the laws."""
    group = parser.getgroup("jackfield")
    group.addoption(
        "--jackfield-scheduler",
        metavar="NAME",
        help="scheduler plugin whose laws are checked: module:Class, name or distribution:name; "
        "the fixture jackfield_scheduler gives it too",
    )
    group.addoption(
        "--jackfield-config",
        metavar="JSON",
        help='section of that scheduler plugin, such as \'{"weights": {"gold": 4}}\'',
    )
    group.addoption(
        "--jackfield-examples",
        metavar="N",
        type=int,
        default=25,
        help="random lives per law; default: 25",
    )
    group.addoption(
        "--jackfield-cache",
        metavar="NAME",
        help="cache plugin whose laws are checked: module:Class, name or distribution:name; the "
        "fixture jackfield_cache gives it too",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the laws, before -k and its like choose among all items."""
    options = ("--jackfield-scheduler", "--jackfield-cache")
    named = [option for option in options if session.config.getoption(option) is not None]
    if not named:
        return
    try:
        import hypothesis  # noqa: F401
    except ModuleNotFoundError:
        raise pytest.UsageError(f"{named[0]} needs hypothesis; install it beside pytest") from None
    from jackfield.core.testing.law_items import items_of

    items += items_of(session)


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
    """Checks all laws on a cache plugin: its class, a function that makes it, or an instance.

    See `jackfield.core.testing.cache.check_cache`.
    """
    pytest.importorskip("hypothesis", reason="the checks of caches need hypothesis")
    from jackfield.core.testing.cache import check_cache as check

    return check


def _installed(request: pytest.FixtureRequest, kind: str) -> type[Any]:
    name = request.config.getoption(f"--jackfield-{kind}")
    if name is None:
        pytest.skip(f"no plugin is named with --jackfield-{kind}")
    from jackfield.core.testing.law_items import find

    return find(name, kind)
