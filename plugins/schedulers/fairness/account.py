"""What one tenant was served."""

from dataclasses import dataclass
from typing import Self


@dataclass(slots=True)
class Account:
    """served: by weight, so far. owed: prompts of running requests that are still to come."""

    served: float = 0.0
    owed: float = 0.0
    weight: float = 1.0

    def __lt__(self, other: Self) -> bool:
        return self.served < other.served
