"""The configuration of an engine that is made in Python."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.core.host.sources import Resolved, load_config


def resolve_settings(
    model: str | Path | None, config: str | Path | None, aliases: Mapping[str, Any]
) -> Resolved:
    """Arguments over environment over file over defaults. Raises `ConfigError`."""
    flags = dict(aliases)
    if model is not None:
        flags["model"] = model
    return load_config(None if config is None else Path(config), os.environ, flags)
