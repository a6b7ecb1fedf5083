"""A token bucket whose contents can be reserved first and settled later."""

from collections import OrderedDict
from math import floor, inf
from typing import NamedTuple

NO_TIME = 1e-6
"""Seconds that rounding may make of nothing."""


class Bucket:
    """Amounts are counted in seconds of the rate. As time passes, what was settled is paid off
    first, then what is reserved, by age: so most of a reservation can still be given back.

    most: what the bucket holds, at least 1. per_minute: None = any amount.
    """

    def __init__(self, per_minute: float | None, burst: float) -> None:
        self._cost = 60 / per_minute if per_minute else 0.0
        self._burst = max(burst, self._cost)
        self.most = floor(self._burst / self._cost + NO_TIME) if per_minute else inf
        self._settled = 0.0
        self._reserved: OrderedDict[int, float] = OrderedDict()
        self._total = 0.0
        self._updated = 0.0

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much can be reserved, if nobody else does meanwhile."""
        self._pass(now)
        wait = self._settled + self._total + amount * self._cost - self._burst
        return wait if wait > NO_TIME else 0.0

    def reserve(self, handle: int, amount: float) -> None:
        """Right after `wait` was 0."""
        self._reserved[handle] = amount * self._cost
        self._total += amount * self._cost

    def settle(self, handle: int, reserved: float, used: float, now: float) -> None:
        """Give back what was reserved and not used, unless time has paid for it already."""
        self._pass(now)
        left = self._reserved.pop(handle, 0.0)
        self._total = self._total - left if self._reserved else 0.0
        self._settled += max(left - (reserved - used) * self._cost, 0.0)

    def is_full(self, now: float) -> bool:
        """Whether it is as good as a new one."""
        self._pass(now)
        return not self._settled and not self._reserved

    def _pass(self, now: float) -> None:
        left = now - self._updated
        if left <= 0:
            return
        self._updated = now
        paid = min(left, self._settled)
        self._settled -= paid
        left -= paid
        while left > 0 and self._reserved:
            handle, owed = next(iter(self._reserved.items()))
            paid = min(left, owed)
            left -= paid
            self._total -= paid
            if paid < owed:
                self._reserved[handle] = owed - paid
            else:
                del self._reserved[handle]


class Buckets(NamedTuple):
    """Of one tenant."""

    requests: Bucket
    tokens: Bucket

    def wait(self, requests: int, tokens: int, now: float) -> float:
        """Seconds until both can be reserved."""
        return max(self.requests.wait(requests, now), self.tokens.wait(tokens, now))

    def reserve(self, handle: int, tokens: int) -> None:
        """One request that may take so many tokens."""
        self.requests.reserve(handle, 1)
        self.tokens.reserve(handle, tokens)

    def are_full(self, now: float) -> bool:
        """Whether they are as good as new ones."""
        return self.requests.is_full(now) and self.tokens.is_full(now)
