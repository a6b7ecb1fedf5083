"""Shorter answers while many wait: everybody gets something, soon, instead of all of it, late."""

from collections.abc import Sequence

from pydantic import Field, PositiveInt

from jackfield.core.api import (
    LoadView,
    PolicyConfig,
    PolicyContext,
    RequestView,
    Verdict,
    hookimpl,
)


class ShorterWhenBusyConfig(PolicyConfig):
    """waiting: from so many waiting requests on, new answers have at most `most` tokens."""

    waiting: int = Field(8, ge=0)
    most: PositiveInt = 64


class ShorterWhenBusy:
    """Degrades what arrives while the queue is long. It refuses nobody."""

    Config = ShorterWhenBusyConfig

    def __init__(self, config: ShorterWhenBusyConfig, context: PolicyContext) -> None:
        self._config = config

    @hookimpl
    def admit(self, requests: Sequence[RequestView], load: LoadView) -> Sequence[Verdict]:
        if load.waiting < self._config.waiting:
            return [Verdict.accept()] * len(requests)
        return [Verdict.degrade(self._config.most, "busy")] * len(requests)
