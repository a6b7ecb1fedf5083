"""Bytes of messages, and messages of the engine's own types."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from jackfield.core.api import RequestContext, RequestError, SamplingParams, errors
from jackfield.core.api.sampling import FIELDS
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.wire.messages import (
    Add,
    Command,
    Context,
    DeltaMessage,
    Deltas,
    Failed,
    News,
    Refused,
)

T = TypeVar("T")
DEFAULTS = SamplingParams()


def plain(value: Any) -> Any:
    """What callers may give in place of the built-in types."""
    if isinstance(value, str):  # a subclass, such as an enumeration's; it is a sequence too
        return str.__str__(value)
    if isinstance(value, Sequence):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, int | float):  # a subclass, such as numpy's float64
        return float(value) if isinstance(value, float) else int(value)
    raise TypeError(f"a {type(value).__name__} has no form in a message")


_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_news: msgspec.msgpack.Decoder[News] = msgspec.msgpack.Decoder(News)


def encode(message: Command | News) -> bytes:
    """One message as msgpack."""
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """A message to the engine. Raises `msgspec.DecodeError`."""
    return _commands.decode(data)


def decode_news(data: bytes) -> News:
    """A message from the engine. Raises `msgspec.DecodeError`."""
    return _news.decode(data)


def encode_request(new: NewRequest, now: float) -> bytes:
    """An `Add`. Raises `RequestError` for values that no message can hold.

    now: the clock of this process, by which the request's deadline is meant.
    """
    context = new.context._asdict()
    if new.context.deadline is not None:
        context["deadline"] = new.context.deadline - now
    context["labels"] = dict(new.context.labels)
    context["trust"] = str(new.context.trust)
    try:
        context["cache"] = tuple(new.context.cache)
        checked = msgspec.convert(list(context.values()), Context)
        banned = [list(ids) for ids in new.banned_sequences]
        params = given_params(new.params)
        return encode(Add(new.id, list(new.prompt), params, checked, banned, new.keys))
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"the request cannot be sent to the engine: {error}") from error


def given_params(params: SamplingParams) -> dict[str, Any]:
    """The fields that are not the default, which make an equal object."""
    values = ((name, getattr(params, name)) for name in FIELDS)
    return {name: value for name, value in values if value != getattr(DEFAULTS, name)}


def request_of(add: Add, now: float) -> NewRequest:
    """The engine's form. now: the engine's clock. Raises `RequestError`."""
    context = add.context
    deadline = None if context.deadline is None else now + context.deadline
    return NewRequest(
        add.id,
        add.prompt,
        SamplingParams(**add.params),
        RequestContext(
            context.tenant, context.tier, context.priority, deadline, context.labels,
            context.trust, context.cache,
        ),
        add.banned,
        add.keys,
    )


def encode_deltas(deltas: Sequence[Delta]) -> bytes:
    """The `Deltas` of one step."""
    return encode(
        Deltas(
            [
                DeltaMessage(
                    delta.id,
                    delta.index,
                    delta.tokens,  # type: ignore[arg-type]  # any sequence becomes an array
                    delta.finish,
                    delta.stop,
                    delta.scores,  # type: ignore[arg-type]
                    delta.prompt_scores,  # type: ignore[arg-type]
                    delta.error,
                    delta.num_cached,
                    delta.timings,
                    delta.rejection,
                )
                for delta in deltas
            ]
        )
    )


def deltas_of(message: Deltas) -> list[Delta]:
    """The engine's form."""
    return [
        Delta(
            delta.id,
            delta.index,
            delta.tokens,
            delta.finish,
            delta.stop,
            delta.scores,
            delta.prompt_scores,
            delta.error,
            delta.num_cached,
            delta.timings,
            delta.rejection,
        )
        for delta in message.deltas
    ]


def refusal(request_id: str, error: Exception) -> Refused:
    """A message of which `error_of` makes an equal error."""
    return Refused(
        request_id,
        _kind(error),
        _message(error),
        getattr(error, "param", None),
        getattr(error, "code", None),
        getattr(error, "retry_after", None),
    )


def failure(error: Exception) -> Failed:
    """A message of which `error_of` makes an equal error."""
    return Failed(_kind(error), _message(error))


def error_of(message: Refused | Failed) -> errors.JackfieldError:
    """An error of the same class, with the same sentence and fields."""
    cls: type[errors.JackfieldError] = getattr(errors, message.kind)
    error = cls.__new__(cls, message.message)
    if isinstance(error, errors.RequestError) and isinstance(message, Refused):
        error.param = message.param
        error.code = message.code or "invalid_value"
    if isinstance(error, errors.RequestRejected) and isinstance(message, Refused):
        error.retry_after = message.retry_after or 0.0
    return error


def _kind(error: Exception) -> str:
    """The nearest class that both processes know; others are defects of the engine."""
    known = (cls for cls in type(error).__mro__ if cls.__module__ == errors.__name__)
    return next((cls.__name__ for cls in known), errors.JackfieldError.__name__)


def _message(error: Exception) -> str:
    expected = isinstance(error, errors.JackfieldError)
    return str(error) if expected else f"{type(error).__name__}: {error}"
