"""Sizes are told in the unit that people would choose."""

import pytest

from jackfield.core.api import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (1536, "1.5 KiB"),
        (3 * 2**20, "3 MiB"), (2**30 - 2**20, "1023 MiB"), (100 * 2**40, "100 TiB"),
        (5000 * 2**40, "5000 TiB"), (10 * 2**30, "10 GiB"),
    ],
)  # fmt: skip
def test_in_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert format_bytes(count) == text
    assert parse_bytes(text.replace(" bytes", "b")) == count
