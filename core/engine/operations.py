"""Binds the operation table: for each operation the first plugin of the stack that supports it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from jackfield.core.api import (
    COLLECTIVES,
    JOINED,
    OPERATIONS,
    OPTIONAL_OPERATIONS,
    RANK_OPERATIONS,
    ConfigError,
    KernelPlugin,
    KvSpec,
    Operations,
    OpSpec,
    PluginContractError,
)

ATTENTION = "attention"
WRITE = "qk_norm_rope_write"
INPUTS = "step_inputs"
SAMPLE, SAMPLE_PART = "sample", "sample_part"
JOINT: Mapping[str, tuple[str, ...]] = {
    "all_reduce_add_rms_norm": ("all_reduce", "add_rms_norm"),
    "quant_matmul_silu_mul": ("quant_matmul", "silu_mul"),
}
"""Operations that stand for others, and which."""
OPTIONAL_OF_RANKS = RANK_OPERATIONS - COLLECTIVES


class Passed(NamedTuple):
    """A plugin that could have served an operation, and why it does not."""

    operation: str
    plugin: str
    reasons: tuple[str, ...]


class Table(NamedTuple):
    """The bound operations, who serves which, and who was passed over.

    foreign: plugins that are made for other devices, and for which.
    """

    operations: Operations
    owners: Mapping[str, str]
    passed: Sequence[Passed]
    foreign: Mapping[str, str]


def bind(
    kernels: Sequence[tuple[str, KernelPlugin]],
    spec: OpSpec,
    groups: Sequence[KvSpec],
    device: torch.device,
    encoder: str = "",
) -> Table:
    """Ask the plugins in the order of the stack. Raises `ConfigError` if nobody serves one. Where
    there are ranks, all of them bind at the same time.

    encoder: the cache plugin that chose how the groups are stored, for messages.
    """
    foreign = _foreign(kernels, device)
    offered = [(name, _offer(name, plugin)) for name, plugin in kernels if name not in foreign]
    owners: dict[str, str] = {}
    bound: dict[str, Any] = {}
    passed: list[Passed] = []
    unwanted = frozenset() if spec.ranks else RANK_OPERATIONS
    for operation in (name for name in OPERATIONS if name not in unwanted):
        for name, offer in offered:
            if operation not in offer:
                continue
            reasons = _reasons(operation, offer[operation], spec, groups, device)
            reasons = _unfit(operation, name, owners) or reasons
            if not reasons:
                owners[operation], bound[operation] = name, offer[operation]
                break
            passed.append(Passed(operation, name, tuple(reasons)))
        else:
            if operation in OPTIONAL_OPERATIONS | OPTIONAL_OF_RANKS:
                continue
            if operation == ATTENTION:
                _refuse_encoding(offered, spec, groups, device, encoder)
            raise ConfigError(_nobody(operation, passed, [name for name, _ in kernels], foreign))
    for operation in sorted(JOINED & bound.keys()):  # the same order on all ranks
        bound[operation].join(spec.ranks, device)
    return Table(Operations(**bound), owners, passed, foreign)


def _unfit(operation: str, name: str, owners: Mapping[str, str]) -> list[str]:
    """Why this plugin cannot serve it beside those who serve what goes with it."""
    if operation == WRITE and name != owners[ATTENTION]:
        return [f"{owners[ATTENTION]!r} serves attention, and lays out what it writes"]
    if operation == SAMPLE_PART and name != owners[SAMPLE]:
        return [f"{owners[SAMPLE]!r} serves sample, and its draws are its own"]
    apart = [one for one in JOINT.get(operation, ()) if owners.get(one) != name]
    return [f"{_server(one, owners)} serves {one}, and it stands for that, too" for one in apart]


def _server(operation: str, owners: Mapping[str, str]) -> str:
    return repr(owners[operation]) if operation in owners else "nobody"


def _foreign(
    kernels: Sequence[tuple[str, KernelPlugin]], device: torch.device
) -> Mapping[str, str]:
    types = {name: plugin.device_types() for name, plugin in kernels}
    return {
        name: f"it is made for {' and '.join(made_for)}, not for {device.type}"
        for name, made_for in types.items()
        if made_for and device.type not in made_for
    }


def uncapturable(
    table: Table, max_seqs: int, max_len: int, unused: Collection[str] = ()
) -> frozenset[str]:
    """The operations that cannot be part of a CUDA graph. A missing optional one is, if graphs
    need it. unused: those that the model never calls, which do not count."""
    found = set()
    for name in table.owners.keys() - set(unused):
        serves = getattr(table.operations, name)
        able = (
            serves.capturable(max_seqs, max_len) if name == ATTENTION else serves.capturable()
        )
        if not able:
            found.add(name)
    return frozenset(found | ({INPUTS} - table.owners.keys()))


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


def _refuse_encoding(
    offered: Sequence[tuple[str, Mapping[str, Any]]],
    spec: OpSpec,
    groups: Sequence[KvSpec],
    device: torch.device,
    encoder: str,
) -> None:
    """Raise `ConfigError` if somebody would serve but for the encoding of keys and values."""
    plain = [group._replace(encoding=None) for group in groups]
    able = [
        name
        for name, offer in offered
        if ATTENTION in offer and not _reasons(ATTENTION, offer[ATTENTION], spec, plain, device)
    ]
    forms = sorted({group.encoding.name for group in groups if group.encoding is not None})
    if able and forms:
        raise ConfigError(
            f"{encoder} needs a kernel that reads {' and '.join(forms)}; 'torch' does, "
            f"{' and '.join(map(repr, able))} does not. Add 'torch' to kernel.stack, or take "
            f"{encoder!r} out of cache.stack"
        )


def _nobody(
    operation: str, passed: Sequence[Passed], stack: Sequence[str], foreign: Mapping[str, str]
) -> str:
    reasons = [f"{name}: {reason}" for name, reason in foreign.items()]
    reasons += [f"{p.plugin}: {'; '.join(p.reasons)}" for p in passed if p.operation == operation]
    why = ". ".join(reasons) or "none of them provides it"
    return (
        f"no kernel of the stack {list(stack)} serves {operation!r}. {why}. "
        f"Add a kernel that does to kernel.stack; 'torch' serves every device"
    )
