"""What the HTTP face needs of an engine, wherever it runs."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from jackfield.core.api.request import RequestContext
    from jackfield.core.api.sampling import SamplingParams
    from jackfield.core.engine.decisions import Decision
    from jackfield.core.engine.listing import RequestPage
    from jackfield.core.engine.snapshot import Snapshot
    from jackfield.core.front.outputs import RequestOutput
    from jackfield.core.front.running import Health
    from jackfield.core.summary import Summary
    from jackfield.core.text.tokenizer import Tokenizer


class Patience(NamedTuple):
    """Seconds. silence: without a sign of life, after which an engine counts as frozen.

    longest_step: that a step may take; the first one may have to compile kernels.
    """

    silence: float = 10.0
    longest_step: float = 120.0


PATIENCE = Patience()


class Backend(Protocol):
    """`AsyncLLM` and `RemoteLLM` are backends.

    All methods are called in one event loop, except `render_chat`, which any thread may call.
    """

    summary: "Summary"

    @property
    def tokenizer(self) -> "Tokenizer | None":
        """None for a model that works with token ids only."""

    @property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """Fields of `SamplingParams` that a request gets which does not set them."""

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> tuple[str, list[int]]:
        """A conversation as text and ids. Raises `RequestError` and `TokenizerError`."""

    def follow(
        self,
        prompt: Mapping[str, Any],
        sampling_params: "SamplingParams | None" = None,
        *,
        request_id: str | None = None,
        context: "RequestContext | None" = None,
    ) -> "AsyncGenerator[RequestOutput, None]":
        """Yield one output again and again while it grows; closing it early aborts the request.

        Raises `RequestError` before the first output, `EngineStoppedError` at any time.
        """

    async def explain(self, request_id: str) -> "list[Decision]":
        """What was decided about a request, oldest first; empty for an unknown id."""

    async def requests(
        self,
        *,
        state: str | None = None,
        tenant: str | None = None,
        request_id: str | None = None,
        limit: int = 100,
    ) -> "RequestPage":
        """Who is in the engine. state: "running", "waiting" or "parked"."""

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. False, and nothing is forgotten, while any is in use."""

    def metrics(self) -> "Snapshot":
        """The engine's counters and gauges, at once."""

    def health(self) -> "Health":
        """Whether the engine lives, at once."""

    async def close(self) -> None:
        """Stop; open answers raise `EngineStoppedError`. May be called twice."""


def trouble(backend: Backend, patience: Patience = PATIENCE) -> str | None:
    """Why answers do not come: the engine has ended, or is stuck. None while all is well."""
    health = backend.health()
    if health.reason is not None:
        return health.reason
    if health.heartbeat_age > patience.silence:
        return f"the engine's process has been silent for {health.heartbeat_age:.0f} s"
    if health.busy > patience.longest_step:
        return f"a step of the engine has taken {health.busy:.0f} s and is not done"
    return None
