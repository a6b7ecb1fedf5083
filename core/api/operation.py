"""What every operation of a kernel plugin beside attention answers."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from jackfield.core.api.collective import Ranks

if TYPE_CHECKING:
    import torch


class OpSpec(NamedTuple):
    """What the operations beside attention must serve. ranks: None = there is only one."""

    dtype: "torch.dtype"
    hidden_size: int
    head_dim: int
    vocab_size: int
    ranks: Ranks | None = None


class Operation(Protocol):
    """Any operation beside attention."""

    def unsupported(self, spec: OpSpec, device: "torch.device") -> list[str]:
        """Reasons why it cannot serve; empty = fine. Asked once at start."""

    def capturable(self) -> bool:
        """Whether a CUDA graph may hold it: it never waits for the device, and nothing that it does
        on the host depends on the content of a tensor. Asked once at start."""
