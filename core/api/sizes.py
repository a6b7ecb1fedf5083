"""Sizes in bytes, as people write them and as messages tell them."""

import re
from typing import Any

UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
STEPS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def parse_bytes(value: Any) -> Any:
    """Bytes of a text such as "4GiB" or "500 MB"; what is no text is returned as it is.

    For pydantic's `BeforeValidator`. Raises `ValueError`.
    """
    if not isinstance(value, str):
        return value
    found = SIZE.fullmatch(value.strip())
    if found is None or found[2].lower() not in UNITS:
        raise ValueError('should be a number of bytes, or a text such as "4GiB" or "500MB"')
    return int(float(found[1]) * UNITS[found[2].lower()])


def format_bytes(count: int) -> str:
    """In the largest unit that gives 1 or more, such as "3 MiB" or "1.5 GiB"."""
    step = min(max(count.bit_length() - 1, 0) // 10, len(STEPS) - 1)
    if step == 0:
        return f"{count} bytes"
    return f"{count / 2 ** (10 * step):.2f}".rstrip("0").rstrip(".") + f" {STEPS[step]}"
