"""Requests and tokens per minute of each tenant."""

from collections.abc import Sequence
from itertools import groupby

from pydantic import Field

from jackfield.core.api import (
    Event,
    EventKind,
    LoadView,
    PolicyConfig,
    PolicyContext,
    Rate,
    RequestContext,
    RequestView,
    Verdict,
    hookimpl,
)
from jackfield.plugins.schedulers.rate_limit.bucket import Bucket, Buckets
from jackfield.plugins.schedulers.rate_limit.limit import EVERYBODY, Limit, limit_of

ENDS = frozenset({EventKind.FINISHED, EventKind.ABORTED, EventKind.FAILED, EventKind.REJECTED})
MOST_BUCKETS = 10_000
"""From so many on, and from twice those that were left then, full buckets are forgotten."""


class RateLimitConfig(PolicyConfig):
    """limits: of a tenant, else those in its labels `requests_per_minute` and `tokens_per_minute`,
    else of its tier, else of "*". Without one of these: no limit.
    """

    limits: dict[str, Limit] = Field(default_factory=dict)


class RateLimit:
    """Refuses requests of tenants that are over their rate, and says when they would fit.

    An arriving request reserves its prompt and max_tokens; when it ends, what it did not use is
    given back. All answers of one call are judged together. A call that could take more tokens
    than the burst is worth gets shorter answers, and is refused for good if that leaves none. Keys
    that share a tenant share its limits.

    Guarantee: in any time t, what is let in takes no more than burst + t of the rate, counted in
    tokens that were used; who comes back after exactly the time that a refusal tells is let in,
    if the tenant used nothing else meanwhile.

    Source: token buckets, Turner, New Directions in Communications (or Which Way to the
    Information Age?), IEEE Communications Magazine 24(10), 1986; tokens are metered in two phases.
    """

    Config = RateLimitConfig

    def __init__(self, config: RateLimitConfig, context: PolicyContext) -> None:
        self._limits = config.limits
        one = Limit() if len(config.limits) > 1 else config.limits.get(EVERYBODY, Limit())
        self.claims = Rate.per_minute(one.tokens_per_minute, one.burst)
        self._buckets: dict[tuple[str, str], Buckets] = {}
        self._reserved: dict[int, tuple[Buckets, int]] = {}
        self._sweep_at = MOST_BUCKETS

    @hookimpl
    def admit(self, requests: Sequence[RequestView], load: LoadView) -> Sequence[Verdict]:
        calls = [list(answers) for _, answers in groupby(requests, lambda request: request.id)]
        return [verdict for answers in calls for verdict in self._judge(answers, load.now)]

    def _judge(self, answers: list[RequestView], now: float) -> list[Verdict]:
        first, count = answers[0], len(answers)
        if first.handle not in self._reserved:  # else it was let in, and deferred by others
            buckets, prompt = self._of(first.context, now), first.num_prompt_tokens
            amount = int(min(prompt + first.max_tokens, buckets.tokens.most / count))
            if count > buckets.requests.most or amount < prompt + min(first.max_tokens, 1):
                return [Verdict.reject("rate_limit_too_small")] * count
            wait = buckets.wait(count, amount * count, now)
            if wait:
                return [Verdict.reject("rate_limit_exceeded", wait)] * count
            for answer in answers:
                buckets.reserve(answer.handle, amount)
                self._reserved[answer.handle] = buckets, amount
        return [self._let_in(answer) for answer in answers]

    def _let_in(self, answer: RequestView) -> Verdict:
        most = self._reserved[answer.handle][1] - answer.num_prompt_tokens
        fits = answer.max_tokens <= most
        return Verdict.accept() if fits else Verdict.degrade(most, "rate_limit")

    def _of(self, context: RequestContext, now: float) -> Buckets:
        name, limit = limit_of(context, self._limits)
        found = self._buckets.get((context.tenant, name))
        if found is None:
            self._sweep(now)
            rates = (limit.requests_per_minute, limit.tokens_per_minute)
            found = Buckets(*(Bucket(rate, limit.burst) for rate in rates))
            self._buckets[context.tenant, name] = found
        return found

    def _sweep(self, now: float) -> None:
        if len(self._buckets) >= self._sweep_at:
            self._buckets = {k: v for k, v in self._buckets.items() if not v.are_full(now)}
            self._sweep_at = max(MOST_BUCKETS, 2 * len(self._buckets))

    @hookimpl
    def observe(self, events: Sequence[Event]) -> None:
        for kind, request, now, num_tokens in events:
            if kind in ENDS and request.handle in self._reserved:
                buckets, amount = self._reserved.pop(request.handle)
                ran = request.num_computed_tokens or request.num_preemptions
                used = request.num_prompt_tokens + num_tokens if ran else 0
                buckets.requests.settle(request.handle, 1, kind is not EventKind.REJECTED, now)
                buckets.tokens.settle(request.handle, amount, used, now)
