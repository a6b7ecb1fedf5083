"""Ranks that policies return, made comparable."""

import math
from typing import Any

Sortable = tuple[float, ...]
LAST: Sortable = (math.inf,)


def sortable(rank: Any) -> Sortable | None:
    """The rank as a tuple of floats; None if it is none (NaN included)."""
    if type(rank) is float:
        return (rank,) if rank == rank else None
    if type(rank) is tuple and len(rank) == 2:
        first, second = rank
        if type(first) is float and type(second) is float and first == first and second == second:
            return rank
    values = rank if isinstance(rank, tuple) else (rank,)
    if not values:
        return None
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            return None
    return tuple(values)
