"""What a front end may ask before there is an engine: the configuration and the plugins.

Nothing here imports torch, except `check_plugins` and `select`, which import plugins.
"""

from jackfield.core.host.alias_kinds import AliasKind, alias_kinds
from jackfield.core.host.aliases import alias_names
from jackfield.core.host.discover import discover_all
from jackfield.core.host.environment import read_text
from jackfield.core.host.origin import Layer, Origin
from jackfield.core.host.report import CheckRow, PluginRow, check_plugins, list_plugins
from jackfield.core.host.schema import config_schema
from jackfield.core.host.selection import Selection, effective, select
from jackfield.core.host.sources import Resolved, load_config

__all__ = [
    "AliasKind", "CheckRow", "Layer", "Origin", "PluginRow", "Resolved", "Selection",
    "alias_kinds", "alias_names", "check_plugins", "config_schema", "discover_all", "effective",
    "list_plugins", "load_config", "read_text", "select",
]  # fmt: skip
