"""What a policy may know of a request."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from jackfield.core.api.cache_hints import NO_HINTS, CacheHints

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Trust(StrEnum):
    """How far a caller is believed.

    anonymous: nobody was asked who they are. user: a known caller, who may make their requests
    less urgent, never more. operator: whoever runs the server; sees and orders everything.
    """

    ANONYMOUS = "anonymous"
    USER = "user"
    OPERATOR = "operator"


class RequestContext(NamedTuple):
    """Who asks, and what they were promised. Filled once at the edge; immutable afterwards.

    tenant: the authenticated caller, never what the request body claims. priority: lower goes
    first. deadline: engine clock, seconds, as `LLM.deadline` makes it; None = none. labels: free
    text for policies. cache: what the request asks of the KV cache.
    """

    tenant: str = "default"
    tier: str = "default"
    priority: int = 0
    deadline: float | None = None
    labels: Mapping[str, str] = NO_LABELS
    trust: Trust = Trust.ANONYMOUS
    cache: CacheHints = NO_HINTS


class RequestView(Protocol):
    """A read-only view of one request. It stays valid, and follows the request, until it ends.

    Writing to it raises. `handle` is unique in the life of an engine; `id` is the caller's.
    Times are seconds of the engine's clock.
    """

    @property
    def handle(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def arrival(self) -> float: ...
    @property
    def context(self) -> RequestContext: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_output_tokens(self) -> int:
        """Tokens of the answer that are known on the host; with overlap it lags a step or two."""
    @property
    def num_computed_tokens(self) -> int:
        """Positions whose keys and values are computed or planned; 0 after a preemption."""
    @property
    def num_prompt_tokens_left(self) -> int:
        """Positions of the prompt that were never computed or planned, nor found in a cache. A
        preemption does not change it.
        """
    @property
    def num_preemptions(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
