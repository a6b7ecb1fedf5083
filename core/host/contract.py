"""What the entry point of each kind must give: a class that keeps the contract of its kind."""

from inspect import isclass, isfunction, ismodule
from typing import Any

from jackfield.core.api import (
    CacheAxis,
    CachePlugin,
    Discipline,
    KernelPlugin,
    PluginContractError,
    PolicyConfig,
)
from jackfield.core.host.discover import Found
from jackfield.core.host.marks import hook_marks

MODEL_METHODS = ("describe", "forward", "logits")


def check_class(found: Found, given: Any) -> type:
    """What the entry point gave, if it is a class of its kind; else `PluginContractError`."""
    if not isclass(given):
        raise PluginContractError(f"{found} is {_what(given)}, but should be a class")
    problem = _PROBLEMS[found.kind](given)
    if problem is None and found.kind != "models":
        problem = _config_problem(given)
    if problem is not None:
        raise PluginContractError(f"{found}: the class {given.__name__} {problem}")
    return given


def _what(given: Any) -> str:
    if ismodule(given):
        return f"the module {given.__name__}; the entry point should end in ':Class'"
    if isfunction(given):
        return f"the function {given.__name__}"
    return f"an instance of {type(given).__name__}"


def orders(cls: type) -> bool:
    """Whether a scheduler plugin is a discipline."""
    return issubclass(cls, Discipline)


def limits(cls: type) -> bool:
    """Whether a scheduler plugin implements hooks."""
    return bool(hook_marks(cls))


def _scheduler_problem(cls: type) -> str | None:
    if orders(cls) or limits(cls):
        return None
    return "is no Discipline and has no method marked with hookimpl"


def _cache_problem(cls: type) -> str | None:
    if not issubclass(cls, CachePlugin):
        return "is no CachePlugin"
    if not isinstance(getattr(cls, "axis", None), CacheAxis):
        return f"has no axis; it should be one of {', '.join(CacheAxis)}"
    return None


def _kernel_problem(cls: type) -> str | None:
    return None if issubclass(cls, KernelPlugin) else "is no KernelPlugin"


def _server_problem(cls: type) -> str | None:
    return None if hook_marks(cls) else "has no method marked with hookimpl"


def _model_problem(cls: type) -> str | None:
    missing = [name for name in MODEL_METHODS if not callable(getattr(cls, name, None))]
    return f"has no {', '.join(missing)}" if missing else None


def config_class(cls: type) -> type[PolicyConfig]:
    """The class that validates the plugin's section."""
    config: type[PolicyConfig] = getattr(cls, "Config", PolicyConfig)
    return config


def _config_problem(cls: type) -> str | None:
    config: Any = config_class(cls)
    if isclass(config) and issubclass(config, PolicyConfig):
        return None
    return "has a Config that is no subclass of PolicyConfig"


_PROBLEMS = {
    "schedulers": _scheduler_problem,
    "caches": _cache_problem,
    "kernels": _kernel_problem,
    "models": _model_problem,
    "server": _server_problem,
}
