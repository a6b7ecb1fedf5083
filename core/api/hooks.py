"""The hooks that a plugin may implement, and the version of the contract.

A scheduler plugin that limits (an advisor) marks methods with `hookimpl`; the engine checks
their signatures when it is built and then calls each implementation alone: one that raises is
contained and loses nobody else's answer. Hooks are synchronous, run in the engine's thread and
must return within their budget. A hook that nobody implements costs nothing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

from jackfield.core.api.cache import CacheLayout
from jackfield.core.api.scheduler import (
    Event,
    LoadView,
    Quota,
    QuotaView,
    Shape,
    StepView,
    Verdict,
    VictimView,
)

if TYPE_CHECKING:
    from jackfield.core.api.request import RequestView

PROJECT = "jackfield"
API_VERSION = 1
"""The version of the plugin contract that this host speaks; it is part of the group names."""

KINDS = ("schedulers", "caches", "kernels", "models")
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
        keeps one position. Budget: 15 us.
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


SPECIFICATIONS: Mapping[str, tuple[type, ...]] = {
    "schedulers": (SchedulerHooks,),
    "caches": (CacheHooks,),
}
"""Kind of plugin -> classes that hold its hook specifications."""
