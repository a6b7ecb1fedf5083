"""Requests that wait until another one has computed what they have in common."""

from collections.abc import Iterable
from typing import NamedTuple

from jackfield.core.engine.planner import Planner
from jackfield.core.engine.request import Request
from jackfield.core.kv.request_chain import RequestChain

WORTH_WAITING = 64
"""Tokens that are worth a step's wait, however long the prompt is; or else half of it."""


class Leader(NamedTuple):
    """Who computes what a waiting request needs, and up to which position."""

    request: Request
    num_tokens: int


class Computing:
    """Running requests with known tokens that are not computed yet, by their first block."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._by_head: dict[bytes, list[Request]] = {}
        for request in requests:
            self.add(request)

    def add(self, request: Request) -> None:
        """One more; it has just got its seat."""
        chain = request.chain
        if chain is not None and chain.head:
            self._by_head.setdefault(chain.head, []).append(request)

    def beginning_like(self, chain: RequestChain) -> list[Request]:
        """Those whose first block is the same."""
        return self._by_head.get(chain.head, [])


def leader_for(request: Request, planner: Planner, computing: Computing) -> Leader | None:
    """Whom a request should rather wait for than compute the same; None = nobody."""
    chain, size = request.chain, planner.pool.block_size
    if chain is None or not planner.cache.shares:
        return None
    if request.wants_prompt_scores and not request.output:
        return None
    most = (request.total - 1) // size
    best: Leader | None = None
    for other in computing.beginning_like(chain):
        assert other.chain is not None
        if other.chain.closed or other.chain.tainted:
            continue
        further = other.computed if best is None else max(other.computed, best.num_tokens)
        if further // size >= most or not chain.is_alike(other.chain, further // size):
            continue
        end = min(chain.common_blocks(other.chain), most) * size
        if end > other.computed and (best is None or end > best.num_tokens):
            best = Leader(other, end)
    if best is None:
        return None
    have = planner.cached_tokens(request)
    gain = best.num_tokens - have
    is_worth = gain >= WORTH_WAITING or 2 * gain >= request.total - have
    return best if gain > 0 and is_worth else None


class Followers:
    """Parked requests by whom they wait for."""

    def __init__(self) -> None:
        self._waiting: dict[Request, list[tuple[int, Request]]] = {}

    def add(self, leader: Leader, follower: Request) -> None:
        """The follower waits for the leader."""
        self._waiting.setdefault(leader.request, []).append((leader.num_tokens, follower))

    def ready(self, leader: Request) -> list[Request]:
        """Who waits no longer: the leader has planned what they wait for, or has no seat."""
        waiting = self._waiting.get(leader)
        if waiting is None:
            return []
        done = [one for need, one in waiting if leader.computed >= need or not leader.blocks]
        left = [entry for entry in waiting if entry[1] not in done]
        if left:
            self._waiting[leader] = left
        else:
            del self._waiting[leader]
        return done
