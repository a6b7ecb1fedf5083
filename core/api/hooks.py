"""The hooks that a plugin may implement, and the version of the contract.

A scheduler plugin that limits (an advisor) marks methods with `hookimpl`; the engine checks
their signatures when it is built and then calls each implementation alone: one that raises is
contained and loses nobody else's answer. Hooks are synchronous and must return within their
budget; they run in the engine's thread, those of server plugins in the HTTP process. A hook that
nobody implements costs nothing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

from jackfield.core.api.advisor import (
    Event,
    LoadView,
    PlanBuilder,
    Quota,
    QuotaView,
    Shape,
    StepView,
    Verdict,
    VictimView,
)
from jackfield.core.api.block_index import BlockIndex
from jackfield.core.api.cache import CacheLayout
from jackfield.core.api.identity import Caller
from jackfield.core.api.retention import Keep, Released
from jackfield.core.api.tier import Move, MoveView, TierSpace, TierSpec, TierStore

if TYPE_CHECKING:
    from jackfield.core.api.encoding import KvEncoding
    from jackfield.core.api.kernel import BatchLimits, KvSpec
    from jackfield.core.api.request import RequestContext, RequestView

PROJECT = "jackfield"
API_VERSION = 1
"""The version of the plugin contract that this host speaks; it is part of the group names."""

KINDS = ("schedulers", "caches", "kernels", "models", "server")
"""The kinds of plugins. The entry-point group of a kind is `jackfield.v1.<kind>`."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class SchedulerHooks:
    """Hooks of `jackfield.v1.schedulers` plugins. Each folds commutatively: order never matters."""

    @hookspec
    def admit(self, requests: "Sequence[RequestView]", load: LoadView) -> Sequence[Verdict]:
        """Judge new requests, one verdict each, in order.

        Called once per batch of arrivals, and again for requests whose deferral is over.
        Fold: the most restrictive verdict of all advisors. Budget: 3 us and 1 us per request.
        """
        raise NotImplementedError

    @hookspec
    def shape(self, step: StepView) -> Shape:
        """Limit the coming step. Called once per step. Fold: the tightest value of each field.

        The core never goes above its own limits, and plans at least one position when something
        is runnable. Budget: 5 us.
        """
        raise NotImplementedError

    @hookspec
    def quota(self, plan: QuotaView) -> Quota:
        """Limit how much of each prompt the step computes.

        Called at most twice per step: for prompts of running requests, then for those of requests
        that are being admitted.

        Fold: the smallest number per request. Decodes are never listed. At least one request
        keeps one position. A prompt gets just what it is limited to; only where the step has room
        for less, the core ends its part where that suits the kernel. Budget: 15 us.
        """
        raise NotImplementedError

    @hookspec
    def victims(self, shortage: VictimView) -> Sequence[int]:
        """Choose whom to preempt: handles, first victim first. One owner at most.

        Called when the pool is short of blocks. The core takes from the front until there is
        room, ignores handles that are no candidates, and goes on by itself if they do not
        suffice. Budget: 30 us.
        """
        raise NotImplementedError

    @hookspec
    def plan(self, step: StepView, planner: PlanBuilder) -> None:
        """Plan the whole step in place of the core. One owner at most; for research policies.

        Called once per step, after `shape`, whose limits hold here too; `quota`, `victims` and
        the order of the tree are not asked. A step that it leaves empty while somebody could run,
        or in which it raises, is planned by the core as if the hook were not there, and counted:
        as a stall, or as a fault. Grants are taken back then; who was admitted or preempted stays
        so. When it has left out the oldest running request for 64 steps, the core plans the next
        one. The starvation valve has no say. Budget: 100 us.
        """
        raise NotImplementedError

    @hookspec
    def observe(self, events: Sequence[Event]) -> None:
        """See what happened in the last step, in order. Called once per step that had events.

        Budget: 15 us.
        """
        raise NotImplementedError


class CacheHooks:
    """Hooks of `jackfield.v1.caches` plugins."""

    @hookspec
    def layout(self, max_model_len: int) -> CacheLayout:
        """How the KV pool is cut into blocks. Called once, when the engine is built.

        Owned by the one plugin of the `allocator` axis.
        """
        raise NotImplementedError

    @hookspec
    def encode(self, spec: "KvSpec") -> "KvEncoding | None":
        """How the keys and values of one layer group are stored; None = as the model has them.

        Called once per layer group, when the model is loaded. Owned by the one plugin of the
        `encoding` axis. A kernel that cannot read it is passed over.
        """
        raise NotImplementedError

    @hookspec
    def identity(self, block_size: int) -> BlockIndex:
        """A new, empty index of cached blocks.

        Called when the engine is built, and again when the cache is reset. Owned by the one plugin
        of the `identity` axis; without one, requests share nothing.
        """
        raise NotImplementedError

    @hookspec
    def salt(self, request: "RequestView") -> bytes:
        """What a request must have in common with another one to share its blocks.

        Called once per request, when it arrives. Each plugin's answer counts under the plugin's
        name, so that two plugins never mean the same by accident; the tenant is the core's affair.
        b"" = nothing. Budget: 2 us.
        """
        raise NotImplementedError

    @hookspec
    def retain(self, released: Sequence[Released]) -> Sequence[Keep]:
        """What becomes of the blocks of requests that let them go, one answer each, in order.

        Called once per batch of releases. Fold: see `Keep`. At most `cache.pinned_share` of the
        pool is ever pinned. Budget: 10 us.
        """
        raise NotImplementedError

    @hookspec
    def tiers(self, block_bytes: int) -> Sequence[TierSpec]:
        """The tiers that the plugin brings, the fastest first. Called once, when the engine is
        built. Tiers of several plugins follow in the order of `cache.stack`. block_bytes: of one
        block over all layers and ranks.
        """
        raise NotImplementedError

    @hookspec
    def store(self, name: str, space: TierSpace) -> "TierStore | None":
        """Open a tier on one rank. Called once per tier and rank, when the pool is allocated; None
        for a tier that is another plugin's. Raises `ConfigError` or `CapacityError` with numbers.
        """
        raise NotImplementedError

    @hookspec
    def scratch(self, limits: "BatchLimits") -> int:
        """Bytes that the plugin will hold on the device beside the pool, at most.

        Called once per rank, before the pool is sized. Fold: sum. limits: the largest step.
        """
        raise NotImplementedError

    @hookspec
    def move(self, view: MoveView, byte_budget: int) -> Sequence[Move]:
        """Choose what is copied from a tier to the one below.

        Called once per step and tier that has one below. Of all answers those of the largest
        priority are done first, as many as the budget allows. Blocks that are no candidates are
        ignored. Budget: 10 us.
        """
        raise NotImplementedError


class ServerHooks:
    """Hooks of `jackfield.v1.server` plugins, which live in the HTTP process, without torch."""

    @hookspec
    def identify(self, caller: Caller) -> "RequestContext | None":
        """Say who a caller is, or None for one who is not known here.

        Called once per HTTP request, in the thread of the event loop, before the body is read, but
        not for the open routes; it must not block: read files and tables in the constructor.

        Fold: the first plugin in the order of `server.identify` that knows the caller decides. A
        caller whom nobody knows gets status 401. A raised `RequestError` is a refusal that the
        client is told, with `RequestRejected` as status 429. Anything else that is raised, or
        that is no `RequestContext`, counts as a fault of the plugin and as None. Budget: 200 us.
        """
        raise NotImplementedError


SPECIFICATIONS: Mapping[str, tuple[type, ...]] = {
    "schedulers": (SchedulerHooks,),
    "caches": (CacheHooks,),
    "server": (ServerHooks,),
}
"""Kind of plugin -> classes that hold its hook specifications."""
