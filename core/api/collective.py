"""What ranks do together: processes that hold a part of a model's weights each.

Shape suffix: S ranks.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Ranks(NamedTuple):
    """This rank among `size`. group: how the library that connects them knows them; for those who
    serve collectives with torch, a `torch.distributed.ProcessGroup`."""

    rank: int
    size: int
    group: Any = None


class Collective(Protocol):
    """An operation that all ranks call together. Only bound where there is more than one.

    Every rank makes the same calls in the same order, with tensors of one shape and type; nothing
    may hang on which rank it is, and what comes out has the same bits on each.
    """

    def unsupported(self, spec: Any, device: "torch.device") -> list[str]:
        """As of any operation; `spec.ranks` tells how many there are. All must answer alike."""

    def capturable(self) -> bool:
        """As of any operation."""

    def join(self, ranks: Ranks, device: "torch.device") -> None:
        """Called once, after it was bound and before the first call. Whatever makes a first call
        slow, or must not be captured, belongs here."""


class AllReduce(Collective, Protocol):
    """The sum over ranks."""

    def __call__(self, x: "Tensor") -> "Tensor":
        """Of the shape and type of `x`. May work in place; use what it returns."""


class AllGather(Collective, Protocol):
    """What each rank has, on every rank."""

    def __call__(self, x: "Tensor") -> "Tensor":
        """`[S, *x.shape]`, in the order of ranks; `x` is not changed."""


COLLECTIVES = frozenset({"all_reduce", "all_gather"})
"""Operations that somebody must provide where there is more than one rank."""
RANK_OPERATIONS = COLLECTIVES | {"sample_part"}
"""Those that nobody is asked for where there is only one."""
