"""Who is asked who a caller is: the plugins of `server.identify`, constructed."""

from typing import NamedTuple

from jackfield.core.api import ConfigError, PluginContractError
from jackfield.core.host.discover import Catalogues, discover_all
from jackfield.core.host.manager import Implementation, Manager
from jackfield.core.host.selection import Selected, select_server
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import construct

KEYS = "keys"


class Identifiers(NamedTuple):
    """plugins: the implementations of `identify`, in the order of the configuration.

    let_everybody_in: nobody is asked for a key.
    """

    plugins: list[Implementation]
    let_everybody_in: bool


def build_identifiers(resolved: Resolved, catalogues: Catalogues | None = None) -> Identifiers:
    """Import, validate and construct the plugins of `server.identify`.

    Raises `PluginError`s and `ConfigError`. No engine is needed, and torch is not imported.
    """
    config, installed = resolved.config, catalogues or discover_all()
    selected = select_server(config, installed, resolved.origins)
    let_everybody_in = any(_has_no_keys(one) for one in selected)
    if let_everybody_in and len(selected) > 1:
        raise ConfigError(
            f"server.identify names {KEYS!r} beside others, but server.{KEYS} has no keys, so "
            f"that it would let everybody in; give it keys, or take it out of server.identify"
        )
    manager = Manager()
    for one in selected:
        manager.register(construct(one), one.found)
        if "identify" not in manager.hooks_of(one.found):
            raise PluginContractError(
                f"server.identify names {one.found}, which does not implement the hook 'identify'"
            )
    return Identifiers(manager.implementations("identify"), let_everybody_in)


def _has_no_keys(one: Selected) -> bool:
    """Whether it is the table of keys, and an empty one: that lets everybody in."""
    return one.found.name == KEYS and not any(one.settings.model_dump().values())
