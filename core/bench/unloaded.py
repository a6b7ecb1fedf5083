"""The plugins of a configuration and their cache, without a model and its executor."""

from typing import NamedTuple

from jackfield.core.api import TierSpec
from jackfield.core.assemble import contexts
from jackfield.core.cache_stack import cache_stack
from jackfield.core.engine.clock import Clock
from jackfield.core.engine.guard import Guard
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.services import Services
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import Stack, build_stack
from jackfield.core.kv.build import Memory, build_cache
from jackfield.core.kv.pool import BlockPool

BLOCK_SIZE = 16
NO_MODEL = "no model"


class Room(NamedTuple):
    """A pool that exists on paper. Nothing lies below it: tiers hold what an executor computes."""

    num_blocks: int
    pool_bytes: int
    encoding_id: bytes = b""
    tiers: tuple[TierSpec, ...] = ()


class Unloaded(NamedTuple):
    """guards: of the cache's plugins."""

    stack: Stack
    services: Services
    memory: Memory
    guards: list[Guard]


def unloaded(resolved: Resolved, limits: Limits, clock: Clock, num_blocks: int) -> Unloaded:
    """Build the stack and an empty cache of blocks of 16. Raises `JackfieldError`s."""
    config, services = resolved.config, Services()
    make_context = contexts(config, limits, clock, services, BLOCK_SIZE)
    stack = build_stack(config, make_context=make_context, origins=resolved.origins)
    cached = cache_stack(config, stack, Room(num_blocks, num_blocks), NO_MODEL)
    pool, recompute = BlockPool(num_blocks, BLOCK_SIZE), services.recompute_seconds
    memory = build_cache(pool, cached.policies, cached.settings, recompute)
    return Unloaded(stack, services, memory, cached.guards)
