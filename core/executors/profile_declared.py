"""What plugins hold on the device beside the pool."""

from collections.abc import Callable, Sequence
from typing import Any

from jackfield.core.api import BatchLimits, JackfieldError, PluginContractError
from jackfield.core.host.loader import cause
from jackfield.core.host.manager import Implementation


def declared_scratch(implementations: Sequence[Implementation], limits: BatchLimits) -> int:
    """The sum of what the hook `scratch` gives, in bytes."""
    return sum(_ask(plugin, call, limits) for plugin, call in implementations)


def _ask(plugin: str, call: Callable[..., Any], limits: BatchLimits) -> int:
    try:
        count = call(limits)
    except (KeyboardInterrupt, JackfieldError):
        raise
    except BaseException as error:  # a plugin must not end the host unexplained
        raise PluginContractError(
            f"the plugin {plugin!r}: scratch raised {cause(error)}"
        ) from error
    if type(count) is not int or count < 0:
        raise PluginContractError(
            f"the plugin {plugin!r}: scratch returned {count!r}, not a number of bytes"
        )
    return count
