"""The first and last thing that a request meets: its id, who asks, and what is counted."""

import re
from time import perf_counter
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jackfield.core.api.request import RequestContext
from jackfield.server.http.arrival import caller_of
from jackfield.server.http.connection import ClientGone
from jackfield.server.http.metrics import OTHER
from jackfield.server.http.problem import Refusal, problem_of
from jackfield.server.http.service import Service
from jackfield.server.http.turns import Turns
from jackfield.server.http.unheard import unheard

OPEN_PATHS = ("/live", "/health", "/ready", "/version")
SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
ANYBODY = RequestContext()
PER_TURN = 8
"""Requests for work that begin in one turn of the event loop."""


class Edge:
    """ASGI middleware. Sets `request_id`, `context`, `ignored` and `unheard` of the
    request's state."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._turns = Turns(PER_TURN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        name = given if SANE_ID.fullmatch(given) else f"req-{uuid4().hex}"
        scope.setdefault("state", {}).update(request_id=name, ignored=[], unheard=[])
        reply, started = _Reply(send, name), perf_counter()
        with self._service.metrics.in_flight():
            try:
                scope["state"]["context"] = self._identify(scope)
                if scope["method"] == "POST":
                    await self._turns.take()
                await self._app(scope, receive, reply.send)
            except (ClientGone, ClientDisconnect):
                reply.status = 0
            except Exception as error:
                if reply.status:
                    raise
                await problem_of(error).response()(scope, receive, reply.send)
            finally:
                self._count(scope, reply.status, perf_counter() - started)

    def _identify(self, scope: Scope) -> RequestContext:
        """Who asks. Raises `RequestError` for somebody who is not known, or not welcome."""
        if scope["path"] in OPEN_PATHS:
            return ANYBODY
        caller = caller_of(scope)
        found = self._service.identity.who(caller)
        if found is None:
            raise Refusal(
                "The API key is missing or wrong; send one as 'Authorization: Bearer KEY'.",
                status=401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        scope["state"]["unheard"] = unheard(caller, found)
        return found

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        path = getattr(route, "path", OTHER) if status not in (404, 405) else OTHER
        self._service.metrics.count(path, scope["method"], status, seconds)


class _Reply:
    """Sends on; adds the request's id. status: 0 until the response has started."""

    def __init__(self, send: Send, name: str) -> None:
        self._send = send
        self._name = name
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self._name
        await self._send(message)
