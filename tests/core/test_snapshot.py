"""What metrics show of an engine."""

import pytest

from jackfield.core.engine.metrics import Reservoir


@pytest.mark.parametrize("added", [0, 3, 8, 9, 13, 16, 21])
@pytest.mark.parametrize("count", [1, 4, 8, 100])
def test_recent_values_are_the_last_ones(added: int, count: int) -> None:
    reservoir = Reservoir(capacity=8)
    values = [float(number) for number in range(added)]
    for value in values:
        reservoir.add(value)
    assert sorted(reservoir.recent(count)) == values[-min(count, 8) :]
