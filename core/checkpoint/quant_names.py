"""Which modules the names and patterns of a `quantization_config` mean."""

import re
from typing import NamedTuple

from jackfield.core.checkpoint.quant_scheme import Scheme

PATTERN = "re:"
EVERY_PRODUCT = "Linear"


class Rule(NamedTuple):
    """How the modules that `targets` name are quantized."""

    targets: tuple[str, ...]
    scheme: Scheme

    def is_for(self, module: str) -> bool:
        return any(t == EVERY_PRODUCT or names_module(t, module) for t in self.targets)


def names_module(name: str, module: str) -> bool:
    """Whether `name` is a pattern that matches the beginning of the module's path, or is one or
    several whole parts of it, so that "gate" does not mean "gate_proj"."""
    if name.startswith(PATTERN):
        return re.match(name.removeprefix(PATTERN), module) is not None
    return f".{name}." in f".{module}."
