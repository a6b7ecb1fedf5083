"""The methods that a class marked with `hookimpl`."""

from collections.abc import Mapping
from inspect import getattr_static
from typing import Any

from jackfield.core.api import PROJECT


def hook_marks(cls: type) -> Mapping[str, Mapping[str, Any]]:
    """Method name -> the options of its mark. Descriptors are looked at, never run."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in dir(cls):
        member = getattr_static(cls, name, None)
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        options = getattr(function, f"{PROJECT}_impl", None) if callable(function) else None
        if isinstance(options, Mapping):
            found[name] = options
    return found
