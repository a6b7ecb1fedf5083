"""Whose requests these were, for those who ask about them later."""

from jackfield.core.api.request import RequestContext, Trust

KEPT = 65_536
"""As many as the engine's log has entries by default, which is several per request."""


class Owners:
    """The tenants of the latest requests, by id. An id that two tenants used is nobody's."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._tenants: dict[str, str | None] = {}

    def note(self, request_id: str, context: RequestContext) -> None:
        """A request of that id was made."""
        known = self._tenants.pop(request_id, context.tenant)
        self._tenants[request_id] = known if known == context.tenant else None
        if len(self._tenants) > self._kept:
            del self._tenants[next(iter(self._tenants))]

    def may_see(self, request_id: str, context: RequestContext) -> bool:
        """Whether the caller may know of the request; an operator may know of all."""
        if context.trust is Trust.OPERATOR:
            return True
        return self._tenants.get(request_id) == context.tenant
