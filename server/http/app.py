"""The application: routes over one engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from jackfield import __version__
from jackfield.core.api.errors import JackfieldError
from jackfield.server.http.backend import Backend
from jackfield.server.http.body import Body
from jackfield.server.http.cache_routes import CacheRoutes
from jackfield.server.http.chat_request import ChatRequest
from jackfield.server.http.chat_route import ChatRoute
from jackfield.server.http.completion_request import CompletionRequest
from jackfield.server.http.completion_route import CompletionRoute
from jackfield.server.http.debug_routes import FILTERS, DebugRoutes
from jackfield.server.http.edge import Edge
from jackfield.server.http.model_routes import ModelRoutes
from jackfield.server.http.operation_routes import OperationRoutes
from jackfield.server.http.problem import problem_of
from jackfield.server.http.schema import describe, describe_body, errors
from jackfield.server.http.service import Service
from jackfield.server.http.settings import HttpSettings
from jackfield.server.http.token_routes import DetokenizeRequest, TokenizeRequest, TokenRoutes


def create_app(backend: Backend, settings: HttpSettings | None = None) -> FastAPI:
    """The HTTP face of `backend`, which the application closes when it ends."""
    service = Service(backend, settings or HttpSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await backend.close()

    app = FastAPI(
        title="Jackfield", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url=None, responses=errors(),
    )  # fmt: skip
    app.state.service = service
    _add_posts(app, service)
    _add_gets(app, service)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(JackfieldError, _refused)
    app.add_middleware(Edge, service=service)
    describe(app, (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest))
    return app


def _add_posts(app: FastAPI, service: Service) -> None:
    tokens = TokenRoutes(service)
    posts = (
        ("/v1/completions", CompletionRoute(service).complete, CompletionRequest),
        ("/v1/chat/completions", ChatRoute(service).chat, ChatRequest),
        ("/tokenize", tokens.tokenize, TokenizeRequest),
        ("/detokenize", tokens.detokenize, DetokenizeRequest),
    )
    for path, handler, kind in posts:
        body: type[Body] = kind
        app.add_api_route(path, handler, methods=["POST"], openapi_extra=describe_body(body))
    app.add_api_route("/reset_prefix_cache", CacheRoutes(service).reset, methods=["POST"])


def _add_gets(app: FastAPI, service: Service) -> None:
    models, operations = ModelRoutes(service), OperationRoutes(service)
    gets = (
        ("/v1/models", models.listing),
        ("/v1/models/{model_id:path}", models.one),
        ("/tokenizer_info", TokenRoutes(service).info),
        ("/live", operations.live),
        ("/health", operations.health),
        ("/ready", operations.ready),
        ("/version", operations.version),
        ("/metrics", operations.metrics),
    )
    for path, handler in gets:
        app.add_api_route(path, handler, methods=["GET"])
    for path, handler in (("/live", operations.live), ("/health", operations.health),
                          ("/ready", operations.ready)):  # fmt: skip
        app.add_api_route(path, handler, methods=["HEAD"], include_in_schema=False)
    debugging = DebugRoutes(service)
    app.add_api_route(
        "/debug/requests", debugging.listing, methods=["GET"], openapi_extra=FILTERS
    )
    app.add_api_route("/debug/requests/{request_id:path}", debugging.explain, methods=["GET"])


async def _refused(request: Request, error: Exception) -> Response:
    return problem_of(error).response()
