"""An end for templates that have none: turns of loops and characters are counted."""

from collections.abc import Iterable, Mapping
from typing import Any

from jinja2 import Environment, Template, TemplateError, nodes

MAX_TURNS = 100_000
"""Turns of loops and calls of macros in one rendering; they take up to a second."""
MAX_CHARACTERS = 1 << 26
TURN = "turn_of_a_loop"
"""The name by which a template calls its budget; no message or variable can take it."""


class _Budget:
    """Of one rendering."""

    def __init__(self) -> None:
        self._turns = 0

    def turn(self) -> None:
        self._turns += 1
        if self._turns > MAX_TURNS:
            raise TemplateError(f"it takes more than {MAX_TURNS} turns of its loops")


def bounded(environment: Environment, source: str) -> Template:
    """Compile `source` so that `render` can end it. Raises `TemplateSyntaxError`."""
    tree = environment.parse(source)
    for loop in tree.find_all(nodes.For):
        loop.body.insert(0, _count(loop.lineno))
    for macro in tree.find_all(nodes.Macro):
        macro.body.insert(0, _count(macro.lineno))
    # What was inserted has not come through the parser, which gives nodes their environment.
    tree.set_environment(environment)
    return environment.from_string(tree)


def _count(line: int) -> nodes.Node:
    call = nodes.Call(nodes.Name(TURN, "load"), [], [], None, None)
    counted: nodes.Node = nodes.ExprStmt(call)
    return counted.set_lineno(line, override=True)


def render(template: Template, variables: Mapping[str, Any]) -> str:
    """The text. Raises `TemplateError` for one that does not end, beside what a template raises."""
    return "".join(_limited(template.generate({**variables, TURN: _Budget().turn})))


def _limited(pieces: Iterable[str]) -> Iterable[str]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_CHARACTERS:
            raise TemplateError(f"its text is longer than {MAX_CHARACTERS} characters")
        yield piece
