"""Fair shares: who was served least, by weight, goes first."""

import logging
from collections.abc import Hashable
from math import inf
from typing import Literal

from pydantic import Field, PositiveFloat

from jackfield.core.api import (
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    Rank,
    RequestContext,
    RequestView,
    Work,
    counted_tokens,
)
from jackfield.plugins.schedulers.fairness.account import Account

log = logging.getLogger("jackfield.plugins")
LABEL = "weight"


class FairnessConfig(PolicyConfig):
    """by: whose shares are fair. weights: of tenants and tiers. A tenant has its own weight, else
    that of its label `weight`, else its tier's, else 1.

    prefill, decode, cached: what one token counts: of a prompt, of an answer, and of a prompt if
    it was found in a cache. preempt_margin: a waiting class takes a seat of one that is ahead by
    more than so many weighted tokens; none: whoever runs keeps its seat while there is memory.
    """

    by: Literal["tenant", "tier"] = "tenant"
    weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    prefill: float = Field(1.0, ge=0)
    decode: float = Field(2.0, ge=0)
    cached: float = Field(0.0, ge=0)
    preempt_margin: float | None = Field(None, ge=0)


class Fairness(Discipline[Account]):
    """One class per tenant; the one with the least service by weight goes first.

    Real work is billed, step by step: computed prompt tokens, answer tokens, and cached ones at
    their own price. What is computed again after a preemption is free. Prompts count from
    admission on, so that no tenant takes all seats of one step.

    Guarantee: the weighted service of two tenants that both always have requests waiting differs
    by at most 2 * max(prefill * longest prompt, decode * tokens that can run at once) / the
    smaller weight. Who comes back from idle starts level with the active one that was served
    least, so nobody saves up while idle, and who is new does not pass the others for long. No
    seat stays empty for it.

    Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024 (virtual token
    counter, weighted).
    """

    Config = FairnessConfig
    adds_up = True

    def __init__(self, config: FairnessConfig, context: PolicyContext) -> None:
        super().__init__(config, context)
        self.preempt_margin = config.preempt_margin
        self._prefill, self._decode, self._cached = config.prefill, config.decode, config.cached
        self.claims = counted_tokens(config.weights, config.prefill, config.decode)
        self._warned = False

    def classify(self, request: RequestView) -> Hashable:
        context = request.context
        return context.tenant if self.config.by == "tenant" else context.tier

    def activate(self, cls: ClassState[Account], active_min: Account | None) -> None:
        account = cls.state = cls.state or Account()
        account.served = max(account.served, active_min.served if active_min else 0.0)

    def admitted(self, cls: ClassState[Account], request: RequestView) -> None:
        account = _account(cls)
        account.weight = self._weight(str(cls.key), request.context)
        account.owed += self._prefill * request.num_prompt_tokens_left

    def left(self, cls: ClassState[Account], request: RequestView) -> None:
        account = _account(cls)
        account.owed -= self._prefill * request.num_prompt_tokens_left
        if not cls.running:
            account.owed = 0.0  # but for the rounding of many sums

    def charge(self, cls: ClassState[Account], work: Work) -> None:
        account = _account(cls)
        of_prompts = self._prefill * work.prefill
        tokens = of_prompts + self._decode * work.decode + self._cached * work.cached
        account.owed -= of_prompts
        account.served += tokens / account.weight

    def rank(self, cls: ClassState[Account], now: float) -> Rank:
        account = _account(cls)
        weight = account.weight
        return account.served + account.owed / weight, cls.running / weight

    def _weight(self, name: str, context: RequestContext) -> float:
        weights: dict[str, float] = self.config.weights
        return weights.get(name) or self._labelled(context) or weights.get(context.tier, 1.0)

    def _labelled(self, context: RequestContext) -> float | None:
        text = context.labels.get(LABEL)
        try:
            weight = float(text) if text is not None else None
        except ValueError:
            weight = 0.0
        if weight is None or 0 < weight < inf:
            return weight
        if not self._warned:
            log.warning("the label %s of %s is no number above 0", LABEL, context.tenant)
            self._warned = True
        return None


def _account(cls: ClassState[Account]) -> Account:
    assert cls.state is not None, "a class with requests was activated"
    return cls.state
