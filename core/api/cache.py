"""Cache policies: what a plugin of the KV cache stack declares."""

from enum import StrEnum
from typing import Any, NamedTuple

from jackfield.core.api.scheduler import PolicyConfig


class CacheAxis(StrEnum):
    """What a cache plugin decides. Exclusive axes have one owner in a stack."""

    ALLOCATOR = "allocator"


class CacheLayout(NamedTuple):
    """How the pool is cut: `block_size` token positions per block."""

    block_size: int


class CachePlugin:
    """Base of a cache plugin. `axis` says what it decides; the order in the stack never matters."""

    Config: type[PolicyConfig] = PolicyConfig
    axis: CacheAxis

    def __init__(self, config: Any) -> None:
        self.config = config
