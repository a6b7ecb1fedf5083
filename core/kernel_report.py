"""Who would serve each operation on this machine, and why the others would not."""

from typing import NamedTuple

from jackfield.core.api import KvSpec, OpSpec
from jackfield.core.assemble import contexts
from jackfield.core.engine.clock import SystemClock
from jackfield.core.engine.operations import bind
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.services import Services
from jackfield.core.executors.device import choose_device, choose_dtype
from jackfield.core.executors.encoder import encode, encoder_of
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import build_stack

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 32, 8, 128, 16
HIDDEN, VOCABULARY = 4096, 128_000
STORED = "bfloat16"


class OperationRow(NamedTuple):
    """One operation. passed: "plugin: reason" of each plugin before the owner."""

    operation: str
    owner: str
    passed: tuple[str, ...]


class KernelReport(NamedTuple):
    """The bound table for a usual model: heads of 128, stored in bfloat16."""

    device: str
    dtype: str
    rows: tuple[OperationRow, ...]


def kernel_report(resolved: Resolved) -> KernelReport:
    """Bind the configured kernel stack. Raises `JackfieldError` if an operation has no server."""
    config = resolved.config
    device = choose_device(config.engine.device)
    dtype = choose_dtype(config.model.dtype, STORED, device)
    make_context = contexts(config, Limits(1, 1, 1), SystemClock(), Services(), BLOCK_SIZE)
    stack = build_stack(config, make_context=make_context, origins=resolved.origins)
    kernels = [(kernel.name, kernel.plugin) for kernel in stack.kernels]
    encoder = encoder_of(stack.manager)
    spec = encode(KvSpec(HEADS, KV_HEADS, HEAD_DIM, dtype, BLOCK_SIZE), encoder)
    asker = encoder.plugin if encoder else ""
    table = bind(kernels, OpSpec(dtype, HIDDEN, HEAD_DIM, VOCABULARY), [spec], device, asker)
    rows = tuple(
        OperationRow(
            operation,
            owner,
            (
                *(f"{name}: {reason}" for name, reason in table.foreign.items()),
                *(
                    f"{entry.plugin}: {'; '.join(entry.reasons)}"
                    for entry in table.passed
                    if entry.operation == operation
                ),
            ),
        )
        for operation, owner in table.owners.items()
    )
    return KernelReport(str(device), str(dtype).removeprefix("torch."), rows)
