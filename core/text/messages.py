"""The checks and the plain form of chat messages, before a template sees them."""

from collections.abc import Sequence
from typing import Any, NoReturn

from jackfield.core.api.errors import RequestError

Message = dict[str, Any]
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def checked_messages(messages: Any, *, join_parts: bool) -> list[Message]:
    """Fresh messages, safe to change; raises RequestError(param="messages") for a malformed one.

    A field that is None is left out, since templates test whether it is there. A list of text
    parts stays a list, or becomes one text, its parts on lines of their own, with `join_parts`.
    Reasoning is given under both names that templates read.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        refuse("messages must be a non-empty list of messages")
    return [_checked(message, place, join_parts) for place, message in enumerate(messages)]


def refuse(problem: str, *, code: str = "invalid_value") -> NoReturn:
    """Raise the RequestError of a bad message."""
    raise RequestError(problem, param="messages", code=code)


def _checked(message: Any, place: int, join_parts: bool) -> Message:
    if not isinstance(message, dict):
        refuse(f"messages[{place}] must be an object with role and content")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        refuse(f"messages[{place}].role must be a non-empty string")
    result = {name: value for name, value in message.items() if value is not None}
    if "content" in result:
        result["content"] = _content(result["content"], place, join_parts)
    return _with_reasoning(result)


def _content(content: Any, place: int, join_parts: bool) -> Any:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        refuse(f"messages[{place}].content must be a string or a list of text parts")
    parts = [_part(part, f"messages[{place}].content[{n}]") for n, part in enumerate(content)]
    return "\n".join(part["text"] for part in parts) if join_parts else parts


def _part(part: Any, name: str) -> Message:
    if not isinstance(part, dict) or part.get("type") != "text":
        refuse(f'{name} must be {{"type": "text", "text": ...}}; this model reads text only')
    if not isinstance(part.get("text"), str):
        refuse(f"{name}.text must be a string")
    return dict(part)


def _with_reasoning(message: Message) -> Message:
    reasoning = next((message[name] for name in REASONING_FIELDS if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning} | message | {"reasoning_content": reasoning}
