"""Options that come in groups: a command has one parameter for a whole group of flags."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, NamedTuple

Command = Callable[..., None]


class Group(NamedTuple):
    """options: parameter name -> what typer makes a flag of; each of them is None by default.

    read: called with the values by parameter name; gives what the command's parameter gets.
    """

    options: Mapping[str, Any]
    read: Callable[[dict[str, Any]], Any]


def grouped(**groups: Group) -> Callable[[Command], Command]:
    """A decorator: the parameters of these names become all flags of their groups."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            read = {
                name: group.read({option: given.pop(option) for option in group.options})
                for name, group in groups.items()
            }
            command(**given, **read)

        found = signature(command)
        own = [one for one in found.parameters.values() if one.name not in groups]
        flags = [_flag(*item) for group in groups.values() for item in group.options.items()]
        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*own, *flags)]
        run.__signature__ = found.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _flag(name: str, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
