"""The sandbox that chat templates run in, with the functions that they expect."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationBlock(Extension):
    """`{% generation %}` marks the model's own words for training; here its content just stays."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Refuses, rather than hides, what a template must not touch."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        kind = type(obj).__name__
        raise SecurityError(f"the chat template may not read {attribute!r} of a {kind}")


def sandbox(now: Callable[[], datetime]) -> TemplateSandbox:
    """An environment for one model's templates; `now` answers `strftime_now`."""

    def strftime_now(format: str) -> str:
        return now().strftime(format)

    environment = TemplateSandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def raise_exception(message: object) -> NoReturn:
    """What a template calls to refuse the messages."""
    raise TemplateError(str(message))


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a model to read: nothing is escaped for HTML, as the built-in filter would do."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
