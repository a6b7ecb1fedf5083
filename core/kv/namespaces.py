"""Which space the blocks of a request belong to: what it must have in common to share them."""

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.core.api import RequestView
from jackfield.core.kv.contained import Hook
from jackfield.core.kv.keys import space_of

ENDLESS = 2**31
NOTHING = b""


class Namespaces:
    """Makes spaces of tagged parts. The tenant is the authenticated one, unless isolation is off.

    parts: of every block of this engine: how it is encoded, whose model it is. shared_tokens: at
    the start of each prompt, common to all tenants, if the request does not say otherwise.
    alike_prompts: see `ModelSpec`.
    """

    def __init__(
        self,
        parts: Mapping[str, bytes],
        block_size: int,
        salts: Sequence[Hook] = (),
        *,
        isolates: bool = True,
        shared_tokens: int = 0,
        alike_prompts: int | None = None,
    ) -> None:
        self._parts = dict(parts)
        self._block_size = block_size
        self._salts = list(salts)
        self._isolates = isolates
        self._shared_tokens = shared_tokens
        self._alike_prompts = alike_prompts

    def of(self, request: RequestView) -> tuple[tuple[int, bytes], ...]:
        """(end, space): up to which block, and what space it is. Asked once per request."""
        common = self._parts | self._salted(request) | self._length(request)
        own = dict(common)
        hints = request.context.cache
        if self._isolates:
            own["tenant"] = request.context.tenant.encode()
        if hints.salt:
            own["cache_salt"] = hints.salt.encode()
        last = (ENDLESS, space_of(own))
        wanted = hints.shared_prefix_tokens
        shared = (self._shared_tokens if wanted is None else wanted) // self._block_size
        if not shared or own == common:
            return (last,)
        return ((shared, space_of({**common, "shared": NOTHING})), last)

    def alone(self, request: RequestView) -> tuple[tuple[int, bytes], ...]:
        """The space of a request that shares with nobody."""
        handle = str(request.handle).encode()
        return ((ENDLESS, space_of({**self._parts, "request": handle})),)

    def _length(self, request: RequestView) -> dict[str, bytes]:
        """What keeps prompts of other lengths away, where keys depend on them."""
        length, alike = request.num_prompt_tokens, self._alike_prompts
        return {} if alike is None or length <= alike else {"prompt": str(length).encode()}

    def _salted(self, request: RequestView) -> dict[str, bytes]:
        found = {}
        for guard, call in self._salts:
            # A plugin that fails must not make requests alike that it would keep apart.
            failed = f"failed:{request.handle}".encode()
            salt = failed if guard.off else guard.ask(failed, _bytes, call, request)
            if salt:
                found[f"salt:{guard.plugin}"] = salt
        return found


def _bytes(answer: Any) -> bytes:
    if not isinstance(answer, bytes):
        raise ValueError(f"it returned {answer!r}, not bytes")
    return answer
