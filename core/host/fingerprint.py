"""What every process of one engine must agree on: the selected plugins and their versions."""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from jackfield.core.api import PluginError
from jackfield.core.host.discover import Found, noun


class Identity(NamedTuple):
    """One selected plugin, as another process can compare it."""

    kind: str
    name: str
    value: str
    distribution: str
    version: str


class Fingerprint(NamedTuple):
    """The selected plugins in the order of the configuration, and a hash over them."""

    digest: str
    plugins: tuple[Identity, ...]

    @staticmethod
    def of(selected: Iterable[Found], branches: str = "") -> "Fingerprint":
        """The fingerprint of a selection; equal in every process that selected the same.

        branches: the scheduler stack as it is written, if it branches.
        """
        plugins = tuple(
            Identity(found.kind, found.name, found.value, found.distribution, found.version)
            for found in selected
        )
        text = "\n".join([*("\t".join(plugin) for plugin in plugins), *filter(None, (branches,))])
        return Fingerprint(sha256(text.encode()).hexdigest(), plugins)

    def check_same(self, other: "Fingerprint") -> None:
        """Raise `PluginError` that names what the other process has otherwise."""
        if self.digest != other.digest:
            raise PluginError(
                f"the processes of this engine selected different plugins: "
                f"{_difference(self.plugins, other.plugins)}; install the same packages everywhere"
            )


def _difference(ours: tuple[Identity, ...], theirs: tuple[Identity, ...]) -> str:
    mine = {(plugin.kind, plugin.name): plugin for plugin in ours}
    other = {(plugin.kind, plugin.name): plugin for plugin in theirs}
    found = [_compare(key, mine.get(key), other.get(key)) for key in sorted({*mine, *other})]
    return "; ".join(filter(None, found)) or "the order of the stack differs"


def _compare(key: tuple[str, str], ours: Identity | None, theirs: Identity | None) -> str:
    if ours == theirs:
        return ""
    kind, name = key
    return f"the {noun(kind)} {name!r} is {_shown(ours)} here and {_shown(theirs)} there"


def _shown(plugin: Identity | None) -> str:
    if plugin is None:
        return "missing"
    return f"{plugin.distribution} {plugin.version} ({plugin.value})"
