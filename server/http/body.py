"""From the bytes of a request to a checked object."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from jackfield.core.api.errors import RequestError, nearest
from jackfield.server.http.problem import Refusal
from jackfield.server.http.settings import HttpSettings

DISCARDED = 8
"""So many times the limit is read and dropped, for clients that listen only when they have sent."""
SHOWN_FIELDS = 32
SHOWN_NAME = 64
SURROGATE = re.compile(rb"\\u[dD][89A-Fa-f]")
"""What half a character, or a whole one beyond the first 65 536, looks like in JSON."""
CLOSE = {"connection": "close"}
IGNORED = "x-jackfield-ignored-fields"


class Body(BaseModel):
    """Base of all request bodies: exact types, unknown fields are kept by name."""

    model_config = ConfigDict(
        strict=True, extra="allow", allow_inf_nan=False, hide_input_in_errors=True
    )

    def unknown(self, prefix: str = "") -> list[str]:
        """Fields that were set and have no effect, those of inner objects with a dotted name."""
        extra = self.model_extra or {}
        found = [f"{prefix}{name}" for name, value in extra.items() if value is not None]
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Body):
                found += value.unknown(f"{prefix}{name}.")
        return found


Kind = TypeVar("Kind", bound=Body)


async def read_body(request: Request, kind: type[Kind], settings: HttpSettings) -> Kind:
    """The body as `kind`. Raises `RequestError` that names the field, and `Refusal`."""
    _check_content_type(request.headers.get("content-type", ""))
    data = await _read_in_time(request, settings)
    document = _parse(data)
    if not isinstance(document, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    if SURROGATE.search(data):
        _check_characters(document)
    try:
        body = kind.model_validate({name: _whole(value) for name, value in document.items()})
    except ValidationError as error:
        _refuse(error)
    unknown = body.unknown()
    if unknown and settings.strict:
        raise _unknown(unknown[0][:SHOWN_NAME], kind)
    request.state.ignored = unknown
    return body


def _unknown(name: str, kind: type[Body]) -> RequestError:
    hint = nearest(name, kind.model_fields)
    if not hint.startswith("Did you mean"):
        hint = "This server knows no such field; leave it out."
    return RequestError(f"Unknown field {name!r}. {hint}", param=name, code="unknown_field")


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """The header that names the fields without effect; empty if there are none."""
    shown = [name.encode("ascii", "replace").decode()[:SHOWN_NAME] for name in names[:SHOWN_FIELDS]]
    text = ", ".join("".join(c if c.isprintable() else "?" for c in name) for name in shown)
    return {IGNORED: text} if text else {}


def _check_content_type(given: str) -> None:
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refusal(
            f"The content type is {kind[:80] or 'missing'}; send application/json.",
            status=415,
            code="unsupported_media_type",
        )


async def _read_in_time(request: Request, settings: HttpSettings) -> bytes:
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _read(request, settings.max_body)
    except TimeoutError:
        raise Refusal(
            f"The body was not complete after {settings.body_seconds:g} seconds, which is the "
            f"limit; send it faster, or less at once.",
            status=408,
            code="request_timeout",
            headers=CLOSE,
        ) from None


async def _read(request: Request, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > limit * DISCARDED:
            break
        else:
            parts.clear()
    if size > limit:
        raise Refusal(
            f"The body is larger than {limit} bytes, which is the limit; send less at once.",
            status=413,
            code="request_too_large",
            headers=CLOSE if size > limit * DISCARDED else {},
        )
    return b"".join(parts)


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise RequestError(f"The body is no valid JSON: {error}", code="invalid_json") from error


def _check_characters(document: Mapping[str, Any]) -> None:
    """Halves of characters have no bytes, so neither a tokenizer nor the engine could take them."""
    for name, value in document.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except RecursionError as error:
            raise _too_deep() from error
        except UnicodeEncodeError as error:
            shown = name.encode("ascii", "backslashreplace").decode()[:SHOWN_NAME]
            raise RequestError(
                f"{shown} has a lone surrogate, which is half a character; send valid Unicode.",
                param=shown,
            ) from error


def _too_deep() -> RequestError:
    return RequestError("The body is nested too deeply.", code="invalid_json")


def _whole(value: Any, depth: int = 2) -> Any:
    """A number such as 1.0 is an integer in JSON, in lists and lists of lists too."""
    if isinstance(value, list) and depth:
        return [_whole(one, depth - 1) if type(one) in (float, list) else one for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _refuse(error: ValidationError) -> NoReturn:
    """Tell the first wrong field; several messages about it are the forms that it may have."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    top = found[0]["loc"][:1]
    same = [one for one in found if one["loc"][:1] == top]
    places = [_place(one["loc"]) for one in same]
    param = places[0] if len(set(places)) == 1 else str(top[0])
    texts = dict.fromkeys(one["msg"][:1].lower() + one["msg"][1:] for one in same[:4])
    raise RequestError(f"{param}: {' or '.join(texts)}", param=param) from error


def _place(path: tuple[int | str, ...]) -> str:
    name = str(path[0])
    for part in path[1:]:
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    return name[:SHOWN_NAME]
