"""Cache policies: what a plugin of the KV cache stack declares."""

from enum import StrEnum
from typing import Any, NamedTuple

from jackfield.core.api.scheduler import PolicyConfig


class CacheAxis(StrEnum):
    """What a cache plugin decides.

    allocator, encoding and identity have one owner in a stack; namespace, retention and tier any
    number. eviction: named in `cache.eviction`, per tier, and not in `cache.stack`.
    """

    ALLOCATOR = "allocator"
    ENCODING = "encoding"
    IDENTITY = "identity"
    NAMESPACE = "namespace"
    RETENTION = "retention"
    TIER = "tier"
    EVICTION = "eviction"


class CacheLayout(NamedTuple):
    """How the pool is cut: `block_size` token positions per block."""

    block_size: int


class CachePlugin:
    """Base of a cache plugin. `axis` says what it decides; the order in the stack never matters.

    It may implement hooks of other axes beside that of its own.
    """

    Config: type[PolicyConfig] = PolicyConfig
    axis: CacheAxis

    def __init__(self, config: Any) -> None:
        self.config = config
