"""From chat messages to the prompt that a model was trained on."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, Template, TemplateSyntaxError, nodes

from jackfield.core.api.errors import RequestError, TokenizerError
from jackfield.core.text.messages import Message, checked_messages, refuse
from jackfield.core.text.template_budget import bounded, render
from jackfield.core.text.template_environment import sandbox

# Ends in a space so that a template which trims the message gives itself away.
END_OF_MESSAGE = "\ue000end of the last message\ue001 "


class ChatTemplate:
    """The chat template of a model, compiled once; any thread may render.

    A model may bring several templates by name: "tool_use" is taken when a request has tools,
    "default" otherwise. They run sandboxed, and see the special tokens as variables.
    """

    def __init__(
        self,
        templates: str | Mapping[str, str],
        *,
        special_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Raises TokenizerError for a template that does not compile."""
        sources = {"default": templates} if isinstance(templates, str) else dict(templates)
        environment = sandbox(now)
        self._templates = {name: _compile(environment, name, sources[name]) for name in sources}
        self._iterates = {name: _iterates_content(environment, sources[name]) for name in sources}
        self._special_tokens = dict(special_tokens or {})

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt. `kwargs` are variables of the template, such as enable_thinking.

        Content that is a list of text parts reaches a template that loops over content as it
        is; any other template gets one text. `continue_final_message` leaves the last message
        open, so that the model goes on with it; it excludes `add_generation_prompt`. Raises
        RequestError(param="messages") in the template's own words when it refuses or fails.
        """
        if "messages" in kwargs:
            raise RequestError(
                "chat_template_kwargs must not set 'messages'.", param="chat_template_kwargs"
            )
        name = self._choose(tools)
        chat = checked_messages(messages, join_parts=not self._iterates[name])
        last = self._open_last(chat, add_generation_prompt) if continue_final_message else None
        variables = {"documents": None, **self._special_tokens, **kwargs}
        variables |= {"messages": chat, "tools": list(tools) if tools is not None else None}
        variables["add_generation_prompt"] = add_generation_prompt
        text = _render(self._templates[name], variables)
        return text if last is None else _cut_at_end(text, last)

    def trial(self) -> str | None:
        """What the template says against one plain message of a user; None if it renders."""
        try:
            self.render([{"role": "user", "content": "Hello"}])
        except RequestError as error:
            return str(error)
        return None

    def _choose(self, tools: object) -> str:
        if tools is not None and "tool_use" in self._templates:
            return "tool_use"
        if "default" not in self._templates:
            names = ", ".join(sorted(self._templates))
            refuse(f"the model has no default chat template, only {names}", code="no_template")
        return "default"

    @staticmethod
    def _open_last(chat: list[Message], add_generation_prompt: bool) -> str:
        """Mark where the last message ends; gives the text that it had."""
        if add_generation_prompt:
            raise RequestError(
                "continue_final_message goes on with the last message, add_generation_prompt "
                "starts a new one; set only one of them.",
                param="continue_final_message",
            )
        content = chat[-1].get("content")
        if isinstance(content, str):
            chat[-1]["content"] = content + END_OF_MESSAGE
            return content
        if not content:
            refuse("continue_final_message needs a last message with content")
        text: str = content[-1]["text"]
        content[-1]["text"] = text + END_OF_MESSAGE
        return text


def _compile(environment: Environment, name: str, source: str) -> Template:
    try:
        return bounded(environment, source)
    except TemplateSyntaxError as error:
        raise TokenizerError(
            f"The chat template {name!r} does not compile, line {error.lineno}: {error.message}; "
            f"mend it in the model folder or give another one."
        ) from error


def _iterates_content(environment: Environment, source: str) -> bool:
    loops = environment.parse(source).find_all(nodes.For)
    return any(_is_content(loop.iter) for loop in loops)


def _is_content(node: nodes.Node) -> bool:
    """Whether an expression is `content`, `x.content` or `x["content"]`, filtered or not."""
    if isinstance(node, nodes.Filter) and node.node is not None:
        return _is_content(node.node)
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return isinstance(node, nodes.Name) and node.name == "content"


def _render(template: Template, variables: dict[str, Any]) -> str:
    try:
        return render(template, variables)
    except Exception as error:  # whatever a template does wrong is told to the caller it concerns
        raise RequestError(
            f"The chat template refuses the messages: {str(error) or type(error).__name__}",
            param="messages",
            code="chat_template_error",
        ) from error


def _cut_at_end(text: str, last: str) -> str:
    end = text.rfind(END_OF_MESSAGE.rstrip())
    if end < 0 or last.strip() not in text:
        refuse("continue_final_message: the chat template does not show the whole last message")
    trimmed = not text.startswith(END_OF_MESSAGE, end)
    return text[:end].rstrip() if trimmed else text[:end]
