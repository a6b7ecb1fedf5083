"""Which steps the kernel that reads all layers does not launch like others."""

from collections.abc import Iterable

from jackfield.core.api import KvLayout, PluginContractError
from jackfield.core.engine.graphs import NO_SHORT_STEPS, ShortSteps


def short_steps(kernel: str, layouts: Iterable[KvLayout]) -> ShortSteps:
    """Those that all layer groups name, or none. kernel: whose layouts."""
    found = {_checked(kernel, layout.short_steps) for layout in layouts}
    return found.pop() if len(found) == 1 else NO_SHORT_STEPS


def _checked(kernel: str, told: tuple[int, int]) -> ShortSteps:
    if len(told) != 2 or any(type(number) is not int or number < 0 for number in told):
        raise PluginContractError(
            f"kernel plugin {kernel}: the short_steps of its layout are {told!r}; expected numbers "
            f"of decodes and of positions, 0 or more"
        )
    return ShortSteps(*told)
