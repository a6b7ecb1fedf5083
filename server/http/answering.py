"""From calls of the engine to a response, whole or streamed."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from jackfield.server.http.body import ignored_header
from jackfield.server.http.calls import Call, follow_all
from jackfield.server.http.connection import unless_gone
from jackfield.server.http.envelope import DONE, Envelope, event
from jackfield.server.http.event_stream import EventStream
from jackfield.server.http.json_text import dump
from jackfield.server.http.problem import AnswerFailed, problem_of
from jackfield.server.http.server_timing import server_timing
from jackfield.server.http.service import Service
from jackfield.server.http.usage import usage_of

if TYPE_CHECKING:
    from jackfield.core.front.outputs import RequestOutput
    from jackfield.server.http.request_fields import RequestFields

log = logging.getLogger("jackfield.http")


class Reply(Protocol):
    """Writes answers in the form of one route."""

    envelope: Envelope

    def document(self, outputs: "list[RequestOutput]") -> dict[str, Any]: ...
    def frames(self, place: int, output: "RequestOutput") -> bytes: ...


async def answer(
    service: Service,
    request: Request,
    fields: "RequestFields",
    calls: Sequence[Call],
    reply: Reply,
) -> Response:
    """The response. What is refused is raised, before anything was sent, and `ClientGone`."""
    headers = ignored_header([*request.state.ignored, *request.state.unheard])
    for call in calls:
        service.owners.note(call.id, call.context)
    if not fields.stream:
        outputs = await unless_gone(request.receive, _collect(service, calls))
        headers |= server_timing(outputs)
        return Response(_document(calls, reply, outputs), 200, headers, "application/json")
    frames = _events(service, calls, reply, fields.include_usage)
    first = await unless_gone(request.receive, _first(frames))
    return EventStream(first, frames, headers)


def _document(calls: Sequence[Call], reply: Reply, outputs: "list[RequestOutput]") -> bytes:
    try:
        return dump(reply.document(outputs))
    except AnswerFailed as error:
        _note(calls, error)
        raise


def _note(calls: Sequence[Call], error: Exception) -> None:
    """A failed answer is one line in the log, so that it can be found by the client's id."""
    if isinstance(error, AnswerFailed):
        log.warning("request %r: %s", calls[0].id, error)


async def _first(frames: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(frames)


async def _collect(service: Service, calls: Sequence[Call]) -> "list[RequestOutput]":
    watch = service.metrics.stopwatch(len(calls))
    last: dict[int, RequestOutput] = {}
    async with aclosing(follow_all(service.backend, calls)) as news:
        async for place, output in news:
            watch.news(place, output)
            last[place] = output
    return [last[place] for place in range(len(calls))]


async def _events(
    service: Service, calls: Sequence[Call], reply: Reply, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """Frames of a stream. An error after the first one becomes a frame; one before is raised."""
    watch = service.metrics.stopwatch(len(calls))
    last: dict[int, RequestOutput] = {}
    begun = False
    try:
        async with aclosing(follow_all(service.backend, calls)) as news:
            async for place, output in news:
                watch.news(place, output)
                last[place] = output
                frames = reply.frames(place, output)
                if frames:
                    begun = True
                    yield frames
    except Exception as error:
        _note(calls, error)
        if not begun:
            raise
        yield event(problem_of(error).body()) + DONE
        return
    outputs = [last[place] for place in range(len(calls))]
    yield (reply.envelope.usage(usage_of(outputs)) if include_usage else b"") + DONE
