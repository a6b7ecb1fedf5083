"""What `plugins list` and `plugins check` show, and the schema of the configuration."""

from random import Random
from typing import Any, NamedTuple

from jackfield.core.api import KINDS, OPERATIONS, JackfieldError, PluginContractError, PolicyContext
from jackfield.core.host.config import Config
from jackfield.core.host.contract import config_class
from jackfield.core.host.disciplines import LEAF
from jackfield.core.host.discover import Catalogue, Catalogues, Found
from jackfield.core.host.loader import Loaded, cause, conflict, foreign_reason, load_found
from jackfield.core.host.manager import Manager
from jackfield.core.host.ordering import names_in
from jackfield.core.host.selection import Selected
from jackfield.core.host.stack import construct


class PluginRow(NamedTuple):
    """One installed plugin. reason: why it is active, or why not."""

    kind: str
    name: str
    distribution: str
    version: str
    api: int
    active: bool
    reason: str


class CheckRow(NamedTuple):
    """One plugin after it was imported. message: what is wrong. provides: hooks or operations."""

    kind: str
    name: str
    distribution: str
    version: str
    ok: bool
    message: str
    provides: tuple[str, ...]


def list_plugins(config: Config, catalogues: Catalogues) -> list[PluginRow]:
    """Every installed plugin, of any version; nothing is imported."""
    return [
        _row(found, catalogues[kind], config)
        for kind in KINDS
        for found in (*catalogues[kind].usable, *catalogues[kind].foreign)
    ]


def _row(found: Found, catalogue: Catalogue, config: Config) -> PluginRow:
    active, reason = _state(found, catalogue, config)
    return PluginRow(
        found.kind, found.name, found.distribution, found.version, found.api_version, active, reason
    )


def _state(found: Found, catalogue: Catalogue, config: Config) -> tuple[bool, str]:
    if found in catalogue.foreign:
        return False, foreign_reason(found)
    for place, names in _places(config)[found.kind].items():
        for name in names:
            candidates = catalogue.named(name)
            if found in candidates:
                alone = len(candidates) == 1
                return alone, f"in {place}" if alone else conflict(candidates)
    if found.kind == "models":
        return False, "chosen by the checkpoint"
    if (found.kind, found.name) == ("schedulers", LEAF):
        return True, "the leaf, unless the last discipline has an order of its own"
    return False, f"not in {' or '.join(_places(config)[found.kind])}"


def _places(config: Config) -> dict[str, dict[str, list[str]]]:
    """Kind -> where the configuration names plugins of it, and which."""
    architecture = config.model.architecture
    return {
        "schedulers": {
            "scheduler.stack": names_in(config.scheduler.stack),
            "scheduler.advisors": config.scheduler.advisors,
        },
        "caches": {"cache.stack": config.cache.stack},
        "kernels": {"kernel.stack": config.kernel.stack},
        "models": {"model.architecture": [] if architecture is None else [architecture]},
        "server": {"server.identify": config.server.identify},
    }


def check_plugins(catalogues: Catalogues) -> list[CheckRow]:
    """Import every installed plugin, construct it with its default section, and check its hooks."""
    return [row for kind in KINDS for row in _checked(catalogues[kind])]


def _checked(catalogue: Catalogue) -> list[CheckRow]:
    """All usable plugins, and the foreign ones that have no usable twin of another version."""
    usable = {(found.distribution, found.name) for found in catalogue.usable}
    rows = [_check(found) for found in catalogue.usable]
    for found in catalogue.foreign:
        if (found.distribution, found.name) not in usable:
            rows.append(_failed(found, foreign_reason(found)))
    return rows


def _failed(found: Found, message: str) -> CheckRow:
    return CheckRow(
        found.kind, found.name, found.distribution, found.version, False, message, ()
    )


def _check(found: Found) -> CheckRow:
    try:
        provides = _provides(load_found(found))
    except JackfieldError as error:
        return _failed(found, str(error))
    return CheckRow(
        found.kind, found.name, found.distribution, found.version, True, "", tuple(provides)
    )


def _provides(loaded: Loaded) -> list[str]:
    if loaded.found.kind == "models":
        return []
    instance = _default_instance(loaded)
    if loaded.found.kind == "kernels":
        return _operations(instance, loaded.found)
    manager = Manager()
    manager.register(instance, loaded.found)
    return manager.hooks_of(loaded.found)


def _default_instance(loaded: Loaded) -> Any:
    try:
        settings = config_class(loaded.cls)()
    except ValueError as error:
        raise PluginContractError(
            f"{loaded.found} has no complete default section: {cause(error)}"
        ) from error
    context = (_context(),) if loaded.found.kind == "schedulers" else ()
    return construct(Selected(loaded.found.kind, loaded, settings), *context)


def _context() -> PolicyContext:
    return PolicyContext(Random(0), lambda: 0.0, 256, 8192, 8192, 16)


def _operations(kernel: Any, found: Found) -> list[str]:
    try:
        names = sorted(kernel.operations())
    except Exception as error:
        raise PluginContractError(f"{found}: operations() raised {cause(error)}") from error
    unknown = [name for name in names if name not in OPERATIONS]
    if unknown:
        raise PluginContractError(
            f"{found} provides unknown operations: {', '.join(unknown)}. "
            f"Known: {', '.join(OPERATIONS)}."
        )
    return names
