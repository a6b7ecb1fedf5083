"""Errors as clients of OpenAI's API know them."""

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from jackfield.core.api.errors import (
    EngineStoppedError,
    JackfieldError,
    RequestError,
    RequestRejected,
    TokenizerError,
)
from jackfield.server.http.json_text import dump

log = logging.getLogger("jackfield.http")
INVALID = "invalid_request_error"
NO_HEADERS: Mapping[str, str] = {}
CODES = {404: "not_found", 405: "method_not_allowed"}


class Refusal(RequestError):
    """A request that HTTP itself refuses. type: one of OpenAI's classes of errors."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        param: str | None = None,
        type: str = INVALID,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.status = status
        self.type = type
        self.headers = headers


class AnswerFailed(JackfieldError):
    """An answer that could not be completed."""


class Problem(NamedTuple):
    """A status and the four fields of an error body."""

    status: int
    message: str
    type: str
    param: str | None
    code: str | None
    headers: Mapping[str, str] = NO_HEADERS

    def body(self) -> dict[str, Any]:
        """The JSON object that clients expect."""
        return {
            "error": {
                "message": self.message, "type": self.type, "param": self.param, "code": self.code
            }
        }  # fmt: skip

    def response(self) -> Response:
        """As a whole answer. A client that repeats the request gets the same again, or not."""
        headers = dict(self.headers)
        if 400 <= self.status < 500 and "retry-after" not in headers:
            headers["x-should-retry"] = "false"
        return Response(dump(self.body()), self.status, headers, "application/json")


def problem_of(error: Exception) -> Problem:
    """What to tell the client. A defect of ours is logged, and its details are not told."""
    if isinstance(error, Refusal):
        return Problem(
            error.status, str(error), error.type, error.param, error.code, error.headers
        )
    if isinstance(error, RequestRejected):
        headers = _retry_after(error.retry_after)
        return Problem(429, str(error), "rate_limit_error", error.param, error.code, headers)
    if isinstance(error, RequestError):
        return Problem(400, str(error), INVALID, error.param, error.code)
    if isinstance(error, TokenizerError):
        return Problem(400, str(error), INVALID, None, "not_supported")
    if isinstance(error, EngineStoppedError):
        return Problem(503, str(error), "service_unavailable", None, "engine_stopped")
    if isinstance(error, AnswerFailed):
        return Problem(500, str(error), "server_error", None, "answer_failed")
    if isinstance(error, HTTPException):
        return _of_http(error)
    log.error("a request failed", exc_info=error)
    message = "The server failed to handle the request; its log has the reason."
    return Problem(500, message, "server_error", None, "internal_error")


def _retry_after(seconds: float) -> Mapping[str, str]:
    """Whole seconds for everybody, and milliseconds for clients that know them."""
    if seconds <= 0:
        return NO_HEADERS
    exact = str(math.ceil(1000 * seconds))
    return {"retry-after": str(math.ceil(seconds)), "retry-after-ms": exact}


def _of_http(error: HTTPException) -> Problem:
    status = error.status_code
    messages = {
        404: "There is nothing at this path; /openapi.json lists what there is.",
        405: "This path does not take that method; /openapi.json lists the methods.",
    }
    message = messages.get(status, error.detail or HTTPStatus(status).phrase)
    kind = INVALID if status < 500 else "server_error"
    return Problem(status, message, kind, None, CODES.get(status), error.headers or NO_HEADERS)
