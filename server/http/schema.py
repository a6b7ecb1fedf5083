"""What /openapi.json says of bodies that are read by hand."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response

from jackfield.server.http.body import Body
from jackfield.server.http.json_text import dump

PLACE = "#/components/schemas/"
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


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
        schemas[kind.__name__] = schema
    text = dump(document)

    async def openapi(request: Request) -> Response:
        return Response(text, media_type="application/json")

    app.add_api_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)
