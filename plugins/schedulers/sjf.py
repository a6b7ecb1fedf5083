"""Shortest job first: by the prompt tokens that are still to be computed."""

from pydantic import Field

from jackfield.core.api import Discipline, PolicyConfig, Rank, RequestView


class SjfConfig(PolicyConfig):
    """tokens_per_second: how much of a prompt a second of waiting makes up for."""

    tokens_per_second: float = Field(1000.0, gt=0)


class Sjf(Discipline[None]):
    """Orders a leaf by residual prefill: tokens to compute that no cache holds.

    What a cache holds is asked when the request starts to wait, and again after a preemption. The
    length of answers is not known, and does not count.

    Guarantee: a request with C tokens to compute is passed only by requests that come less than
    C / tokens_per_second seconds after it, so nobody starves behind a flow of short ones.

    Source: shortest processing time first (Smith, Various Optimizers for Single-Stage Production,
    Naval Research Logistics Quarterly 1956), with ageing of one slope for all, which needs no
    clock.
    """

    Config = SjfConfig

    def key(self, request: RequestView, now: float) -> Rank:
        known = request.num_prompt_tokens + request.num_output_tokens
        residual = max(known - self.context.cached_tokens(request), 0)
        rate: float = self.config.tokens_per_second
        return request.arrival + residual / rate
