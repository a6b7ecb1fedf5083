"""GET /v1/models and /v1/models/{id}."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jackfield.server.http.json_text import dump
from jackfield.server.http.service import Service


class ModelRoutes:
    """The one model there is, under each of its names."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def listing(self, request: Request) -> Response:
        """All names."""
        found = {"object": "list", "data": [self._card(name) for name in self._service.names]}
        return Response(dump(found), media_type="application/json")

    async def one(self, request: Request) -> Response:
        """One name, or 404."""
        name = self._service.check_model(request.path_params["model_id"])
        return Response(dump(self._card(name)), media_type="application/json")

    def _card(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._service.created,
            "owned_by": "jackfield",
            "root": self._service.backend.summary.model,
            "parent": None,
            "max_model_len": self._service.max_model_len,
        }
