"""The configuration of an engine that is made in Python."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.core.api import ConfigError
from jackfield.core.host.sources import Resolved, load_config


def resolve_settings(
    model: str | Path | None, config: str | Path | Resolved | None, aliases: Mapping[str, Any]
) -> Resolved:
    """Arguments over environment over file over defaults. Raises `ConfigError`.

    config: a file, or what was resolved before, to which nothing can be added.
    """
    if isinstance(config, Resolved):
        if model is not None or aliases:
            raise ConfigError(
                "the configuration is resolved, so that nothing can be added to it; give a model "
                "and aliases to load_config"
            )
        return config
    flags = dict(aliases)
    if model is not None:
        flags["model"] = model
    return load_config(None if config is None else Path(config), os.environ, flags)
