"""The evictors of all tiers, nested as `cache.eviction` names them."""

from collections.abc import Mapping, Sequence

from jackfield.core.api import (
    DEVICE,
    ConfigError,
    EvictionSpace,
    Evictor,
    EvictorPlugin,
    PluginContractError,
)
from jackfield.core.api.errors import nearest
from jackfield.core.host.config import CacheConfig


def build_evictors(
    config: CacheConfig, plugins: Mapping[str, EvictorPlugin], spaces: Sequence[EvictionSpace]
) -> dict[str, Evictor]:
    """Tier -> its evictor, for each space. Raises `ConfigError` for a tier that does not exist,
    for a wrapper that wraps nothing and for a base policy that would wrap another one.
    """
    tiers = [space.tier for space in spaces]
    for name in config.eviction:
        if name not in tiers:
            raise ConfigError(f"cache.eviction.{name} names no tier. {nearest(name, tiers)}")
    return {space.tier: _nest(config.evictors(space.tier), plugins, space) for space in spaces}


def _nest(
    names: Sequence[str], plugins: Mapping[str, EvictorPlugin], space: EvictionSpace
) -> Evictor:
    bare = [name.rpartition(":")[2] for name in names]
    _check_order(bare, plugins, space.tier)
    evictor: Evictor | None = None
    for name in reversed(bare):
        evictor = plugins[name].evictor(space, evictor)
        if not isinstance(evictor, Evictor):
            raise PluginContractError(f"{name}: evictor returned {evictor!r}, not an Evictor")
    assert evictor is not None
    return evictor


def _check_order(names: Sequence[str], plugins: Mapping[str, EvictorPlugin], tier: str) -> None:
    where = f"cache.eviction.{tier}" if tier == DEVICE else f"the evictors of tier {tier!r}"
    if plugins[names[-1]].wraps:
        raise ConfigError(
            f"{where}: {names[-1]!r} only changes the order of another plugin; name one behind "
            f"it, such as 'lru'"
        )
    for name in names[:-1]:
        if not plugins[name].wraps:
            raise ConfigError(
                f"{where}: {name!r} makes an order of its own, so that {names[-1]!r} behind it "
                f"would never be asked; keep one of them"
            )
