"""Every exception that Jackfield raises on purpose.

A message names the culprit, the limit and the way out. `exit_code` is what the command line
returns.
"""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the closest known one, or the whole list when none is close."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(names)}." if names else "None is known."


class JackfieldError(Exception):
    """Root of all errors raised on purpose."""

    exit_code = 1


class ConfigError(JackfieldError, ValueError):
    """A configuration value is missing, unknown, contradictory or out of range."""

    exit_code = 2


class PluginError(JackfieldError):
    """A plugin that the configuration selects cannot be used. Names plugin and distribution."""

    exit_code = 3


class PluginNotFound(PluginError):
    """The configuration names a plugin that nothing installed provides."""


class PluginConflict(PluginError):
    """Two distributions provide one name, or two plugins own what only one may own."""


class PluginVersionError(PluginError):
    """The plugin only speaks versions of the API that this host does not."""


class PluginLoadError(PluginError):
    """Importing or constructing a selected plugin failed."""


class PluginContractError(PluginError):
    """What the entry point gives does not keep its contract."""


class ModelError(JackfieldError):
    """A model cannot be served."""

    exit_code = 4


class ModelNotFound(ModelError):
    """No such folder, no such architecture, or no way to fetch it."""


class CheckpointError(ModelError):
    """A model's file is missing, cut short, or holds the wrong tensors. Names file and tensor."""


class TokenizerError(ModelError):
    """A tokenizer or chat template is missing or broken."""


class CapacityError(JackfieldError):
    """The device or the host has no room for what the configuration asks."""

    exit_code = 5


class EngineStoppedError(JackfieldError):
    """The engine is closed or dead; no request can be served any more."""

    exit_code = 6


class RequestError(JackfieldError, ValueError):
    """One request is refused; no other request notices.

    `param` names the offending field, `code` is machine-readable.
    """

    exit_code = 2

    def __init__(
        self, message: str, *, param: str | None = None, code: str = "invalid_value"
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthExceeded(RequestError):
    """The prompt, or prompt plus answer, is longer than the model's context."""

    def __init__(self, message: str, *, param: str | None = "prompt") -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class NeverFits(RequestError):
    """The request could not finish even if it had the whole KV pool to itself."""

    def __init__(self, message: str, *, param: str | None = "prompt") -> None:
        super().__init__(message, param=param, code="kv_capacity_exceeded")


class RequestRejected(RequestError):
    """An admission policy refused the request. `retry_after` in seconds; 0 = do not retry soon."""

    def __init__(self, message: str, *, code: str, retry_after: float = 0.0) -> None:
        super().__init__(message, param=None, code=code)
        self.retry_after = retry_after
