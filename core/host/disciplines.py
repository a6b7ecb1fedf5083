"""The disciplines that the scheduler stack names, imported and put in order."""

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.core.api import ConfigError, Discipline
from jackfield.core.host.contract import orders
from jackfield.core.host.discover import Catalogue
from jackfield.core.host.loader import Loaded, load
from jackfield.core.host.ordering import OTHERS, Ordering

LEAF = "fcfs"
LEAF_METHODS = ("key", "keep", "pick")


def load_order(entries: Sequence[Any], catalogue: Catalogue) -> Ordering[Loaded]:
    """The disciplines from the root down; every way ends in fcfs if nobody else orders there.

    Raises `PluginError`s, and `ConfigError` for an order that makes no sense.
    """
    if not entries:
        return Ordering(load("schedulers", LEAF, catalogue))
    name, *rest = entries
    plugin = load("schedulers", name, catalogue)
    if not orders(plugin.cls):
        raise ConfigError(
            f"scheduler.stack names {plugin.found}, which orders nothing; name it in "
            f"scheduler.advisors"
        )
    if not rest:
        is_leaf = plugin.found.name == LEAF or _orders_requests(plugin.cls)
        return Ordering(plugin, None if is_leaf else load_order((), catalogue))
    _check_upper(plugin, rest)
    if isinstance(rest[0], Mapping):
        return _branches(plugin, rest[0], catalogue)
    return Ordering(plugin, load_order(rest, catalogue))


def _branches(
    plugin: Loaded, table: Mapping[str, Any], catalogue: Catalogue
) -> Ordering[Loaded]:
    if not _makes_classes(plugin.cls):
        raise ConfigError(
            f"scheduler.stack has a table below {plugin.found}, which makes no classes that it "
            f"could branch on; put a discipline with a classify method before the table"
        )
    inner = {key: load_order(stack, catalogue) for key, stack in table.items() if key != OTHERS}
    return Ordering(plugin, load_order(table.get(OTHERS, ()), catalogue), inner)


def _check_upper(plugin: Loaded, below: Sequence[Any]) -> None:
    """Refuse something below a plugin that orders only in a leaf."""
    if plugin.found.name == LEAF:
        raise ConfigError(
            f"scheduler.stack should end in {LEAF!r}, which orders only in a leaf; nothing of "
            f"what is below it would be asked"
        )
    if _orders_requests(plugin.cls) and not _makes_classes(plugin.cls):
        name = below[0] if isinstance(below[0], str) else "a table"
        raise ConfigError(
            f"scheduler.stack has {name} below {plugin.found}, which orders requests and makes no "
            f"classes, so that its order would never be asked; put {plugin.found.name} last"
        )


def _makes_classes(cls: Any) -> bool:
    """Whether it tells requests apart."""
    return cls.classify is not Discipline.classify


def _orders_requests(cls: Any) -> bool:
    """Whether it orders requests, not only classes of them."""
    return any(getattr(cls, name) is not getattr(Discipline, name) for name in LEAF_METHODS)
