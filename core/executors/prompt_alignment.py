"""Where the kernel that reads all layers wants prompts to be cut."""

from collections.abc import Iterable
from math import lcm

from jackfield.core.api import KvLayout, PluginContractError


def prompt_alignment(kernel: str, layouts: Iterable[KvLayout]) -> int:
    """The smallest that suits all layer groups. kernel: whose layouts."""
    return lcm(*(_checked(kernel, layout.prompt_alignment) for layout in layouts))


def _checked(kernel: str, alignment: int) -> int:
    if type(alignment) is not int or alignment < 1:
        raise PluginContractError(
            f"kernel plugin {kernel}: the prompt_alignment of its layout is {alignment!r}; "
            f"expected a number of positions, 1 or more"
        )
    return alignment
