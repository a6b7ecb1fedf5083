"""Binds the operation table: for each operation the first plugin of the stack that supports it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from jackfield.core.api import (
    OPERATIONS,
    ConfigError,
    KernelPlugin,
    KvSpec,
    Operations,
    OpSpec,
    PluginContractError,
)

ATTENTION = "attention"


class Passed(NamedTuple):
    """A plugin that could have served an operation, and why it does not."""

    operation: str
    plugin: str
    reasons: tuple[str, ...]


class Table(NamedTuple):
    """The bound operations, who serves which, and who was passed over."""

    operations: Operations
    owners: Mapping[str, str]
    passed: Sequence[Passed]


def bind(
    kernels: Sequence[tuple[str, KernelPlugin]],
    spec: OpSpec,
    groups: Sequence[KvSpec],
    device: torch.device,
) -> Table:
    """Ask the plugins in the order of the stack. Raises `ConfigError` if nobody serves one."""
    offered = [(name, _offer(name, plugin)) for name, plugin in kernels]
    owners: dict[str, str] = {}
    bound: dict[str, Any] = {}
    passed: list[Passed] = []
    for operation in OPERATIONS:
        for name, offer in offered:
            if operation not in offer:
                continue
            reasons = _reasons(operation, offer[operation], spec, groups, device)
            if not reasons:
                owners[operation], bound[operation] = name, offer[operation]
                break
            passed.append(Passed(operation, name, tuple(reasons)))
        else:
            raise ConfigError(_nobody(operation, passed, [name for name, _ in offered]))
    return Table(Operations(**bound), owners, passed)


def _offer(name: str, plugin: KernelPlugin) -> Mapping[str, Any]:
    offer = plugin.operations()
    unknown = sorted(set(offer) - set(OPERATIONS))
    if unknown:
        raise PluginContractError(
            f"kernel plugin {name} provides {', '.join(unknown)}; operations are: "
            f"{', '.join(OPERATIONS)}"
        )
    return offer


def _reasons(
    operation: str, serves: Any, spec: OpSpec, groups: Sequence[KvSpec], device: torch.device
) -> list[str]:
    if operation != ATTENTION:
        return list(serves.unsupported(spec, device))
    found = [reason for group in groups for reason in serves.unsupported(group, device)]
    return list(dict.fromkeys(found))


def _nobody(operation: str, passed: Sequence[Passed], stack: Sequence[str]) -> str:
    reasons = [f"{p.plugin}: {'; '.join(p.reasons)}" for p in passed if p.operation == operation]
    why = ". ".join(reasons) or "none of them provides it"
    return (
        f"no kernel of the stack {list(stack)} serves {operation!r}. {why}. "
        f"Add a kernel that does to kernel.stack; 'torch' serves every device"
    )
