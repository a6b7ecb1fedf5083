"""The tiers of a stack: which there are, and their stores on one rank."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from jackfield.core.api import (
    DEVICE,
    JackfieldError,
    PluginConflict,
    PluginContractError,
    TierSpace,
    TierSpec,
    TierStore,
)
from jackfield.core.executors.transfers import NoTransfers, Transfers
from jackfield.core.host.loader import cause
from jackfield.core.host.manager import Implementation
from jackfield.core.kv.copier import BlockCopier

METHODS = ("put", "get", "drop", "close")


class TierHooks(NamedTuple):
    """The hooks `tiers` and `store` of a stack, in the order of `cache.stack`."""

    tiers: Sequence[Implementation] = ()
    store: Sequence[Implementation] = ()


NO_TIERS = TierHooks()


class OpenTiers(NamedTuple):
    """The tiers below the device, the fastest first, and what copies to and from them."""

    specs: tuple[TierSpec, ...]
    transfers: Transfers | NoTransfers


def open_tiers(
    hooks: TierHooks, copier: BlockCopier, rank: int, *, pinned: bool, size: int = 1
) -> OpenTiers:
    """Ask for the tiers, open their stores, start their threads. Called when the pool is there.

    size: number of ranks, each of which holds a part of every block. pinned: whether the host's
    memory should be, since a GPU copies from it: buffers, and the memory of stores that it copies
    to and from directly.
    """
    specs = tier_specs(hooks.tiers, copier.block_bytes * size)
    if not specs:
        return OpenTiers((), NoTransfers())
    stores = open_stores(specs, hooks.store, TierSpace(rank, copier.block_bytes, 0, pinned))
    return OpenTiers(specs, Transfers(copier, stores, pinned=pinned))


def tier_specs(implementations: Sequence[Implementation], block_bytes: int) -> tuple[TierSpec, ...]:
    """What the hook `tiers` gives, checked. block_bytes: over all layers and ranks.

    Raises `PluginContractError` or `PluginConflict` naming the plugin, and what the plugin raises
    of our own errors.
    """
    owners: dict[str, str] = {}
    found: list[TierSpec] = []
    for plugin, call in implementations:
        specs = _call(plugin, "tiers", call, block_bytes)
        if not isinstance(specs, Sequence) or isinstance(specs, (str, bytes, TierSpec)):
            raise PluginContractError(
                f"the plugin {plugin!r}: tiers returned {specs!r}, not a list of TierSpec"
            )
        for spec in specs:
            _check_spec(plugin, spec)
            if spec.name in owners:
                raise PluginConflict(
                    f"two tiers are called {spec.name!r}, of the plugins {owners[spec.name]!r} "
                    f"and {plugin!r}; keep one of them in cache.stack"
                )
            owners[spec.name] = plugin
            found.append(spec)
    return tuple(found)


def _check_spec(plugin: str, spec: Any) -> None:
    problem = None
    if not isinstance(spec, TierSpec):
        problem = "which is no TierSpec"
    elif not isinstance(spec.name, str) or not spec.name.isidentifier():
        problem = "whose name should be one word of letters, digits and underscores"
    elif spec.name == DEVICE:
        problem = f"but {DEVICE!r} is the name of the pool itself"
    elif type(spec.num_slots) is not int or spec.num_slots < 1:
        problem = "whose num_slots should be a whole number, 1 or more"
    elif type(spec.checked) is not bool:
        problem = "whose checked should be True or False"
    if problem is not None:
        raise PluginContractError(f"the plugin {plugin!r}: tiers returned {spec!r}, {problem}")


def open_stores(
    specs: Sequence[TierSpec], implementations: Sequence[Implementation], space: TierSpace
) -> dict[str, TierStore]:
    """Each tier's store on one rank. space: its num_slots is replaced by those of each tier.

    Raises `PluginContractError` naming a tier that nobody opens, and what plugins raise of our own
    errors; what was opened until then is closed again.
    """
    stores: dict[str, TierStore] = {}
    try:
        for spec in specs:
            own = space._replace(num_slots=spec.num_slots)
            stores[spec.name] = _open(spec.name, implementations, own)
    except BaseException:
        for store in stores.values():
            with suppress(Exception):  # the first error says what is wrong
                store.close()
        raise
    return stores


def _open(name: str, implementations: Sequence[Implementation], space: TierSpace) -> TierStore:
    for plugin, call in implementations:
        store = _call(plugin, "store", call, name, space)
        if store is None:
            continue
        missing = [method for method in METHODS if not callable(getattr(store, method, None))]
        if missing:
            raise PluginContractError(
                f"the plugin {plugin!r}: store({name!r}) returned {store!r}, which is no "
                f"TierStore: it has no {', '.join(missing)}"
            )
        opened: TierStore = store
        return opened
    asked = ", ".join(repr(plugin) for plugin, _ in implementations) or "no plugin has that hook"
    raise PluginContractError(
        f"nobody opens the tier {name!r}: the hook store gave None for it ({asked}); the plugin "
        f"that brings a tier must open it"
    )


def _call(plugin: str, hook: str, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except (KeyboardInterrupt, JackfieldError):
        raise
    except BaseException as error:  # a plugin must not end the host unexplained
        raise PluginContractError(f"the plugin {plugin!r}: {hook} raised {cause(error)}") from error
