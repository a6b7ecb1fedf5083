"""The body of /v1/completions."""

from typing import Annotated, Any

from pydantic import WithJsonSchema

from jackfield.core.api.errors import RequestError
from jackfield.server.http.request_fields import RequestFields

MAX_TOKENS = 16
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
TEXT = {"type": "string", "minLength": 1}
PROMPT_SCHEMA = {
    "anyOf": [
        TEXT,
        {"type": "array", "items": TEXT, "minItems": 1},
        IDS,
        {"type": "array", "items": IDS, "minItems": 1},
    ]
}
Prompt = str | list[int]


class CompletionRequest(RequestFields):
    """`prompt` is read by `prompts`: its forms have more to tell than a type."""

    prompt: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)]
    echo: bool | None = None
    logprobs: int | None = None
    best_of: int | None = None
    suffix: str | None = None

    def check(self) -> None:
        """Raise `RequestError` for what this server does not do."""
        self.check_stream()
        self.check_text()
        if self.suffix:
            raise RequestError("suffix is not supported; leave it out", param="suffix")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise RequestError(
                "best_of is supported only equal to n; leave it out", param="best_of"
            )

    def prompts(self, limit: int) -> list[Prompt]:
        """All prompts, at most `limit`. Raises `RequestError`."""
        value = self.prompt
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list) or not value:
            raise RequestError(
                "prompt must be a string, a list of strings, a list of token ids or a list of "
                "such lists, and not empty",
                param="prompt",
            )
        if type(value[0]) is int:
            return [_ids(value, "prompt")]
        if len(value) > limit:
            raise RequestError(
                f"prompt has {len(value)} entries; at most {limit} answers are given to one "
                f"request, so send it in parts",
                param="prompt",
            )
        return [_entry(entry, place, type(value[0])) for place, entry in enumerate(value)]


def _entry(value: Any, place: int, expected: type) -> Prompt:
    name = f"prompt[{place}]"
    if isinstance(value, str) and expected is str:
        return value
    if isinstance(value, list) and expected is list:
        return _ids(value, name)
    raise RequestError(
        f"{name} is neither a string nor a list of token ids, or not of the same kind as the "
        f"entries before it",
        param="prompt",
    )


def _ids(value: list[Any], name: str) -> list[int]:
    for place, token in enumerate(value):
        if type(token) is not int:
            raise RequestError(
                f"{name}[{place}] is no token id; token ids are integers", param="prompt"
            )
    return value
