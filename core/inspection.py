"""What a front end may ask before there is an engine: the configuration and the plugins.

Nothing here imports torch, except `check_plugins` and `select_all`, which import plugins.
"""

from jackfield.core.host.alias_kinds import AliasKind, alias_kinds
from jackfield.core.host.aliases import alias_names
from jackfield.core.host.config import HIDDEN
from jackfield.core.host.discover import discover_all
from jackfield.core.host.environment import OPERATOR_KEYS, read_text
from jackfield.core.host.identifiers import build_identifiers
from jackfield.core.host.manager import Implementation
from jackfield.core.host.origin import Layer, Origin
from jackfield.core.host.report import CheckRow, PluginRow, check_plugins, list_plugins
from jackfield.core.host.schema import config_schema
from jackfield.core.host.selection import effective, select_all
from jackfield.core.host.sources import Resolved, load_config

__all__ = [
    "HIDDEN", "OPERATOR_KEYS", "AliasKind", "CheckRow", "Implementation", "Layer", "Origin",
    "PluginRow",
    "Resolved", "alias_kinds", "alias_names", "build_identifiers", "check_plugins",
    "config_schema", "discover_all", "effective", "list_plugins", "load_config", "read_text",
    "select_all",
]  # fmt: skip
