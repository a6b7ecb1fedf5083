"""One call of the engine at a time: a hook must not call the engine that calls it."""

from typing import Self

from jackfield.core.api import PluginContractError


class Turn:
    """Refuses a call that comes from inside another one. is_taken: one is under way."""

    __slots__ = ("is_taken",)

    def __init__(self) -> None:
        self.is_taken = False

    def take(self, method: str) -> Self:
        """For the time of one call. Raises `PluginContractError` if another one is under way."""
        if self.is_taken:
            raise PluginContractError(
                f"a hook called {method}() of the engine that runs it; a hook acts only through "
                f"what it returns"
            )
        return self

    def __enter__(self) -> None:
        self.is_taken = True

    def __exit__(self, *_: object) -> None:
        self.is_taken = False
