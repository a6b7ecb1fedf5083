"""One call of the engine at a time: a hook must not call the engine that calls it."""

from collections.abc import Iterator
from contextlib import contextmanager

from jackfield.core.api import PluginContractError


class Turn:
    """Refuses a call that comes from inside another one."""

    def __init__(self) -> None:
        self._taken = False

    @contextmanager
    def take(self, method: str) -> Iterator[None]:
        """For the time of one call. Raises `PluginContractError` if another one is under way."""
        if self._taken:
            raise PluginContractError(
                f"a hook called {method}() of the engine that runs it; a hook acts only through "
                f"what it returns"
            )
        self._taken = True
        try:
            yield
        finally:
            self._taken = False
