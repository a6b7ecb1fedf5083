"""What operators ask: life, health, readiness, version, metrics."""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from jackfield import __version__
from jackfield.server.http.backend import trouble
from jackfield.server.http.json_text import dump
from jackfield.server.http.problem import Problem
from jackfield.server.http.service import Service


class OperationRoutes:
    """Answered from memory; none of them waits for the engine's steps."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def live(self, request: Request) -> Response:
        """200 as long as this process answers, whatever the engine does."""
        return _json({"status": "live", "meaning": "the HTTP process answers"})

    async def health(self, request: Request) -> Response:
        """200 while the engine works; 503 tells why it does not."""
        reason = self._trouble()
        return _json({"status": "ok"}) if reason is None else _unavailable(reason)

    async def ready(self, request: Request) -> Response:
        """200 while new requests are welcome."""
        reason = self._trouble()
        if reason is None and self._service.draining:
            reason = "the server is about to stop"
        return _json({"status": "ready"}) if reason is None else _unavailable(reason)

    def _trouble(self) -> str | None:
        return trouble(self._service.backend, self._service.settings.patience)

    async def version(self, request: Request) -> Response:
        """The version of Jackfield."""
        return _json({"version": __version__})

    async def metrics(self, request: Request) -> Response:
        """In Prometheus' text format."""
        return Response(self._service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _json(found: dict[str, Any]) -> Response:
    return Response(dump(found), media_type="application/json")


def _unavailable(reason: str) -> Response:
    return Problem(503, reason, "service_unavailable", None, "unavailable").response()
