"""The body of /v1/chat/completions."""

from typing import Any, Literal

from pydantic import Field

from jackfield.core.api.errors import RequestError
from jackfield.server.http.body import Body
from jackfield.server.http.request_fields import RequestFields

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TOOL_FIELDS = ("tools", "functions")
CHOICES = (None, "none", "auto")
SILENT: dict[str, Any] = {
    "store": (False,),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
}
"""Values of fields without effect that ask for nothing, so nobody needs to be told."""
MOST_TOKENS = 2**31 - 1
TAKEN = frozenset({"add_generation_prompt", "continue_final_message", "messages", "tools", "self"})


class ResponseFormat(Body):
    """Which form an answer has; only "text"."""

    type: str


class Conversation(Body):
    """Messages, and how the model's template is to show them."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def template_options(self) -> dict[str, Any]:
        """Keyword arguments for rendering; a message that is continued gets no prompt after it."""
        continues = self.continue_final_message is True
        begins = self.add_generation_prompt
        further = self.chat_template_kwargs or {}
        for name in sorted(further.keys() & TAKEN):
            raise RequestError(
                f"chat_template_kwargs must not set {name!r}", param="chat_template_kwargs"
            )
        return {
            **further,
            "add_generation_prompt": not continues if begins is None else begins,
            "continue_final_message": continues,
        }

    def check_roles(self) -> None:
        """Raise `RequestError` for a role that no conversation has."""
        for place, message in enumerate(self.messages):
            role = message.get("role")
            if role not in ROLES:
                raise RequestError(
                    f"messages[{place}].role is {str(role)[:40]!r}; it must be one of "
                    f"{', '.join(ROLES)}",
                    param=f"messages[{place}].role",
                )


class ChatRequest(RequestFields, Conversation):
    """OpenAI's fields and those of the engine. What is refused is not available yet."""

    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    echo: bool | None = None
    metadata: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None

    def check(self) -> None:
        """Raise `RequestError` for what is contradictory or not available."""
        self.check_stream()
        self.check_text()
        self.check_roles()
        self._check_tools()
        if self.response_format is not None and self.response_format.type != "text":
            raise RequestError(
                'response_format other than {"type": "text"} is not available yet',
                param="response_format",
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs=true", param="top_logprobs")

    def _check_tools(self) -> None:
        for name in TOOL_FIELDS:
            if getattr(self, name):
                raise RequestError(f"{name} are not available yet; leave them out", param=name)
        if self.tool_choice not in CHOICES:
            raise RequestError(
                "tool_choice needs tools, which are not available yet", param="tool_choice"
            )

    def most_tokens(self) -> int | None:
        """The limit on the answer, by either name. Raises `RequestError`."""
        newer, older = self.max_completion_tokens, self.max_tokens
        if newer is not None and older is not None and newer != older:
            raise RequestError(
                "max_tokens and max_completion_tokens are both given and differ; keep one",
                param="max_tokens",
            )
        limit, name = (older, "max_tokens") if newer is None else (newer, "max_completion_tokens")
        if limit is not None and not 1 <= limit <= MOST_TOKENS:
            raise RequestError(f"{name} must be between 1 and {MOST_TOKENS}", param=name)
        return limit

    @property
    def answer_limit(self) -> int | None:
        """The tokens that the request itself allows for an answer."""
        return self.most_tokens()

    def unknown(self, prefix: str = "") -> list[str]:
        """As of any body, without values that ask for nothing."""
        given = self.model_extra or {}
        return [
            name for name in super().unknown(prefix) if given.get(name) not in SILENT.get(name, ())
        ]

    def echoed(self) -> str:
        """With `echo`, the message that the answer continues; its parts on lines of their own."""
        last = self.messages[-1]
        if not self.echo or last.get("role") != "assistant":
            return ""
        content = last.get("content") or ""
        return content if isinstance(content, str) else "\n".join(part["text"] for part in content)

    @property
    def top(self) -> int | None:
        """How many of the likeliest tokens are told at each place; None = no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None
