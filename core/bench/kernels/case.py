"""One operation at one size, and what came out."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from jackfield.core.bench.machine import Ceilings


class Work(NamedTuple):
    """What is timed: calls one after another, each on what the one before did not touch.

    begin: called before them, once. capturable: whether a CUDA graph may hold all of it. bytes,
    flops: of one call. in_cache: there were not enough copies of what is read to fill the cache.
    """

    calls: Sequence[Callable[[], object]]
    capturable: bool
    bytes: float
    flops: float
    in_cache: bool
    begin: Callable[[], object] | None = None

    def run(self) -> None:
        """All of it."""
        if self.begin is not None:
            self.begin()
        for call in self.calls:
            call()


class Case(NamedTuple):
    """operation: its name in the table. build: makes the tensors, when its turn has come."""

    operation: str
    size: str
    owner: str
    build: Callable[[], Work]


@dataclass(frozen=True, slots=True)
class OperationTime:
    """us: microseconds of one call. share: of the ceiling that is nearer, `limit`: the time that
    reading and writing ("memory") or computing ("products") would take of the time it took.

    captured: inside a CUDA graph. in_cache: as in `Work`. problem: why there are no figures.
    """

    operation: str
    size: str
    owner: str
    us: float | None = None
    bytes: float | None = None
    flops: float | None = None
    bytes_per_second: float | None = None
    flops_per_second: float | None = None
    share: float | None = None
    limit: str | None = None
    captured: bool = False
    in_cache: bool = False
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, case: Case, work: Work, seconds: float, ceilings: Ceilings) -> "OperationTime":
        """seconds: of one call."""
        memory, products = work.bytes / ceilings.bandwidth, work.flops / ceilings.flops
        return cls(
            case.operation,
            case.size,
            case.owner,
            us=round(1e6 * seconds, 2),
            bytes=round(work.bytes),
            flops=round(work.flops),
            bytes_per_second=round(work.bytes / seconds),
            flops_per_second=round(work.flops / seconds),
            share=round(max(memory, products) / seconds, 4),
            limit="memory" if memory >= products else "products",
            captured=work.capturable,
            in_cache=work.in_cache,
        )
