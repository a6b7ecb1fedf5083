"""What operators may do to the cache."""

from starlette.requests import Request
from starlette.responses import Response

from jackfield.core.api.request import Trust
from jackfield.server.http.json_text import dump
from jackfield.server.http.problem import Refusal
from jackfield.server.http.service import Service

LATER = {"retry-after": "1"}


class CacheRoutes:
    """The engine is asked between two steps."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def reset(self, request: Request) -> Response:
        """Forget all cached blocks. 409 while any of them is in use, and nothing is forgotten."""
        if request.state.context.trust is not Trust.OPERATOR:
            raise Refusal(
                "Only an operator may reset the cache; send the key of one.",
                status=403,
                code="not_allowed",
            )
        if not await self._service.backend.reset_prefix_cache():
            raise Refusal(
                "Requests are using cached blocks, so that nothing was forgotten; try again when "
                "they have ended.",
                status=409,
                code="cache_in_use",
                headers=LATER,
            )
        return Response(dump({"reset": True}), media_type="application/json")
