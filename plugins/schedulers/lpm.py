"""Longest prefix match: who finds most of its prompt in the cache goes first."""

from collections.abc import Sequence

from jackfield.core.api import Discipline, RequestView

WINDOW = 16


class Lpm(Discipline[None]):
    """Among the first 32 requests of a leaf, by arrival, takes the one with most cached tokens.

    Only a window is looked at, so that choosing costs the same however many wait. Without a cache
    that shares prefixes this is first come, first served.

    Guarantee: nobody is passed over more than 8 * 32 times, by the core's bound for every `pick`.

    Source: Zheng et al., SGLang: Efficient Execution of Structured Language Model Programs,
    NeurIPS 2024 (longest shared prefix first).
    """

    lookahead = WINDOW

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        cached = [self.context.cached_tokens(request) for request in heads]
        return cached.index(max(cached))
