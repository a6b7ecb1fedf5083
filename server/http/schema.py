"""What /openapi.json says of bodies that are read by hand, and of the answers."""

import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response

from jackfield.server.http.answer_schemas import ANSWERS, ERROR
from jackfield.server.http.body import Body
from jackfield.server.http.edge import OPEN_PATHS
from jackfield.server.http.field_schemas import narrow
from jackfield.server.http.json_text import dump

PLACE = "#/components/schemas/"
PARAMETER = re.compile(r"\{(\w+)\}")
ID_HEADER = {"x-request-id": {"required": True, "schema": {"type": "string"}}}


def describe_body(kind: type[Body]) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads a body of this kind."""
    content = {"application/json": {"schema": {"$ref": f"{PLACE}{kind.__name__}"}}}
    return {"requestBody": {"required": True, "content": content}}


def errors() -> dict[int | str, dict[str, Any]]:
    """The `responses` of every route: all errors have one shape."""
    content = {"application/json": {"schema": {"$ref": f"{PLACE}Error"}}}
    return {
        "4XX": {"description": "The request is refused.", "content": content},
        "5XX": {"description": "The server failed.", "content": content},
    }


def describe(app: FastAPI, kinds: tuple[type[Body], ...]) -> None:
    """Make the document once, with the bodies' schemas, and serve it at /openapi.json."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Error"] = ERROR
    for kind in kinds:
        schema = kind.model_json_schema(ref_template=f"{PLACE}{{model}}")
        schemas.update(schema.pop("$defs", {}))
        narrow(kind.__name__, schema)
        schemas[kind.__name__] = schema
    for path, methods in document["paths"].items():
        for operation in methods.values():
            _complete(path, operation)
    if app.state.service.settings.needs_key:
        _lock(document)
    text = dump(document)

    async def openapi(request: Request) -> Response:
        return Response(text, media_type="application/json")

    app.add_api_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)


def _complete(path: str, operation: dict[str, Any]) -> None:
    """Tell the parts of the path, and what comes back."""
    if path in ANSWERS:
        operation["responses"]["200"]["content"] = ANSWERS[path]
    for response in operation["responses"].values():
        response["headers"] = ID_HEADER
    names = PARAMETER.findall(path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]


def _lock(document: dict[str, Any]) -> None:
    """Say where a key is asked for."""
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    for path in OPEN_PATHS:
        document["paths"][path]["get"]["security"] = []
