"""What ranks do together: processes that hold a part of a model's weights each.

Shape suffixes: S ranks, T tokens of the step, D model width.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def nobody_is_lost(leave: Callable[[], None]) -> None:
    """Where ranks end together, nobody waits for one that has gone."""


class Ranks(NamedTuple):
    """This rank among `size`. group: how the library that connects them knows them; for those who
    serve collectives with torch, a `torch.distributed.ProcessGroup`.

    hosts: that they are on, the same number on each. when_lost: has something called, once, when
    other ranks have gone, from any thread and while this one may wait for them. A collective that
    waits in a way of its own then no longer does; what it computes from then on means nothing.
    """

    rank: int
    size: int
    group: Any = None
    hosts: int = 1
    when_lost: Callable[[Callable[[], None]], None] = nobody_is_lost


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


class AllReduceAddRmsNorm(Collective, Protocol):
    """The sum of `x` over ranks, `residual +=` that, then the root mean square norm of it.

    Optional: without it `all_reduce` and `add_rms_norm` do the same, and it is only bound from the
    plugin that serves both. It rounds as they do: the sum over ranks to the type of `x`, then
    what is added. May work in place; use what it returns.
    """

    def __call__(
        self, x_TD: "Tensor", residual_TD: "Tensor", weight_D: "Tensor", eps: float
    ) -> "tuple[Tensor, Tensor]":
        """(normed, new residual)."""


COLLECTIVES = frozenset({"all_reduce", "all_gather"})
"""Operations that somebody must provide where there is more than one rank."""
JOINED = COLLECTIVES | {"all_reduce_add_rms_norm"}
"""Those that ranks call together."""
RANK_OPERATIONS = JOINED | {"sample_part"}
"""Those that nobody is asked for where there is only one."""
