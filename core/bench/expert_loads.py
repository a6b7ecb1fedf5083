"""How evenly the tokens of a run went to experts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class ExpertLoad(NamedTuple):
    """Of one layer. tokens: that its experts got, each as often as it has experts. busiest, least:
    the share of the expert that got most, and least, in units of what all would get if they got
    equally many. idle: experts that got none."""

    layer: int
    experts: int
    tokens: int
    busiest: float
    least: float
    idle: int


Counts = Mapping[int, Sequence[int]]


def expert_loads(before: Counts, after: Counts) -> list[ExpertLoad]:
    """What came between the two, of layers that got anything."""
    found = {
        layer: [end - begin for begin, end in zip(before[layer], counts, strict=True)]
        for layer, counts in after.items()
    }
    return [_load(layer, counts) for layer, counts in found.items() if sum(counts)]


def _load(layer: int, counts: Sequence[int]) -> ExpertLoad:
    total, number = sum(counts), len(counts)
    fair = total / number
    busiest, least = round(max(counts) / fair, 3), round(min(counts) / fair, 3)
    return ExpertLoad(layer, number, total, busiest, least, counts.count(0))
