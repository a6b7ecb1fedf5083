"""A queue that is full refuses, instead of promising what it cannot keep."""

from collections import Counter
from collections.abc import Sequence

from pydantic import PositiveFloat, PositiveInt

from jackfield.core.api import (
    LoadView,
    PolicyConfig,
    PolicyContext,
    RequestView,
    Verdict,
    hookimpl,
)


class QueueLimitConfig(PolicyConfig):
    """None = any number. requests: that wait. tokens: of those that wait, their prompts and known
    answers. per_tenant: requests of one tenant that wait.

    retry_after: seconds after which a refused caller should try again.
    """

    requests: PositiveInt | None = 1024
    tokens: PositiveInt | None = None
    per_tenant: PositiveInt | None = None
    retry_after: PositiveFloat = 1.0


class QueueLimit:
    """Refuses new requests while too many, or too many of their tokens, wait.

    Each answer of a call counts as a request. Who is parked counts as waiting, and so do requests
    that arrive together, until the next step gives them seats: a limit below `max_num_seqs`
    refuses some of a burst even while seats are free.

    Guarantee: what arrives never makes any of the counts larger than its limit; but a prompt that
    is longer than the limit on tokens is taken when nobody waits. Preempted requests keep their
    place, so that they can make the counts larger.

    Source: finite queues, Erlang, Solution of some Problems in the Theory of Probabilities of
    Significance in Automatic Telephone Exchanges, 1917.
    """

    Config = QueueLimitConfig

    def __init__(self, config: QueueLimitConfig, context: PolicyContext) -> None:
        self._config = config

    @hookimpl
    def admit(self, requests: Sequence[RequestView], load: LoadView) -> Sequence[Verdict]:
        config, verdicts = self._config, []
        waiting, tokens = load.waiting + load.parked, load.waiting_tokens
        new: Counter[str] = Counter()
        for request in requests:
            tenant, prompt = request.context.tenant, request.num_prompt_tokens
            if _is_over(waiting + 1, config.requests):
                code = "queue_full"
            elif tokens and _is_over(tokens + prompt, config.tokens):
                code = "queue_tokens_full"
            elif _is_over(load.queued.get(tenant, 0) + new[tenant] + 1, config.per_tenant):
                code = "queue_full_for_tenant"
            else:
                verdicts.append(Verdict.accept())
                waiting, tokens = waiting + 1, tokens + prompt
                new[tenant] += 1
                continue
            verdicts.append(Verdict.reject(code, config.retry_after))
        return verdicts


def _is_over(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit
