"""Who is in the engine, and why a request took its time."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jackfield.core.api.errors import RequestError
from jackfield.core.api.request import RequestContext, Trust
from jackfield.server.http.json_text import dump
from jackfield.server.http.problem import Refusal
from jackfield.server.http.service import Service
from jackfield.server.http.timeline import summary_of

STATES = ("running", "waiting", "parked")
ROWS = 100
MOST_ROWS = 1000
FILTERS: dict[str, Any] = {
    "parameters": [
        {"name": "state", "in": "query", "schema": {"type": "string", "enum": list(STATES)}},
        {"name": "tenant", "in": "query", "schema": {"type": "string"}},
        {
            "name": "limit", "in": "query",
            "schema": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS},
        },
    ]
}  # fmt: skip
"""The `openapi_extra` of the list."""


class DebugRoutes:
    """The engine is asked between two steps. An operator sees all, others their tenant's."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def listing(self, request: Request) -> Response:
        """Running requests, the queue in its order, and parked ones; each with its reason."""
        given = request.query_params
        state = given.get("state")
        if state is not None and state not in STATES:
            raise RequestError(
                f"state is {state[:40]!r}; it must be one of {', '.join(STATES)}", param="state"
            )
        tenant = _tenant(request.state.context, given.get("tenant"))
        limit = _limit(given.get("limit"))
        page = await self._service.backend.requests(state=state, tenant=tenant, limit=limit)
        shown = page._asdict()
        shown["requests"] = [row._asdict() for row in shown.pop("rows")]
        return _json(shown)

    async def explain(self, request: Request) -> Response:
        """Why a request waited, ran, lost its seat or ended, as far back as the log reaches."""
        name, context = request.path_params["request_id"], request.state.context
        seen = self._service.owners.may_see(name, context)
        backend = self._service.backend
        decisions = await backend.explain(name) if seen else []
        if not decisions:
            raise Refusal(
                f"Nothing is known of a request {name[:128]!r}; ask with the id of an answer, "
                f"soon enough.",
                status=404,
                code="request_not_found",
                param="request_id",
            )
        page = await backend.requests(tenant=_tenant(context), request_id=name, limit=MOST_ROWS)
        summary = summary_of(decisions, page.rows)
        return _json(
            {"id": name, "summary": summary, "decisions": [one._asdict() for one in decisions]}
        )


def _tenant(context: RequestContext, wanted: str | None = None) -> str | None:
    """Whose requests are shown; None = everybody's. Raises `Refusal` for those of others."""
    if context.trust is Trust.OPERATOR:
        return wanted
    if wanted not in (None, context.tenant):
        raise Refusal(
            "Only an operator may see the requests of another tenant; leave tenant out.",
            status=403,
            code="not_allowed",
            param="tenant",
        )
    return context.tenant


def _limit(text: str | None) -> int:
    if text is None:
        return ROWS
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MOST_ROWS):
        raise RequestError(f"limit must be an integer from 1 to {MOST_ROWS}", param="limit")
    return int(text)


def _json(found: dict[str, Any]) -> Response:
    return Response(dump(found), media_type="application/json")
