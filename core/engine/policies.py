"""What the stack decides, as the engine takes it."""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.engine.advice import Advice
from jackfield.core.engine.branch import Branch
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.services import Services


class Policies(NamedTuple):
    """Levels of the tree, folded advice, and everybody's guard.

    services: what the policies were told of the engine that is to come.
    """

    branch: Branch
    advice: Advice
    guards: Sequence[Guard]
    services: Services
