"""One uniform number per row from a counter-based hash: no state, the same on every device.

Two rounds of the finaliser of splitmix64, in int64 arithmetic that wraps as uint64 does.
"""

from torch import Tensor

_GOLDEN = -0x61C8864680B583EB
_FIRST = -0x40A7B892E31B1A47
_SECOND = -0x6B2FB644ECCEEE15
_MANTISSA = 48


def uniform(seeds_R: Tensor, positions_R: Tensor) -> Tensor:
    """Float64 in [0, 1) with 48 random bits, so that a product with a total stays below it."""
    mixed = _mix(_mix(seeds_R + _GOLDEN) + (positions_R + 1) * _GOLDEN)
    return _shift(mixed, 64 - _MANTISSA).double() * 2.0**-_MANTISSA


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: int64 shifts copy the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
