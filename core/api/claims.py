"""What a scheduling policy promises of its order, so that the conformance kit can test it.

A policy names its promises in `claims`, an attribute of the class, or a property where they depend
on the configuration. A claim changes nothing in the engine. The kit leads the policy, alone and
with the starvation valve off, through random lives in which each promise would show to be wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple


class Extent(NamedTuple):
    """How large an engine and the requests of a life are, in tokens.

    longest_prompt, longest_answer: of one request. at_once: the most that all running requests
    hold together. step: the most in a step. overlap: steps in flight while the next is planned.
    """

    longest_prompt: int
    longest_answer: int
    at_once: int
    step: int
    overlap: int


Bound = float | Callable[[Extent], float]
"""Weighted tokens: a number, or a function of the extent of a life."""


@dataclass(frozen=True)
class Claim:
    """Base of all claims."""


@dataclass(frozen=True)
class StrictPriority(Claim):
    """Nobody is admitted while a request of a lower `context.priority` waits, unless held back."""


@dataclass(frozen=True)
class Fcfs(Claim):
    """Nobody is admitted while a request that arrived earlier waits and is not held back.

    within: compared are requests of one class of the policy, or all.
    """

    within: Literal["class", "all"] = "class"


@dataclass(frozen=True)
class Edf(Claim):
    """Nobody is admitted while a request that is due earlier waits and is not held back.

    laxity: seconds after its arrival at which a request without a deadline is due.
    """

    laxity: float = inf


@dataclass(frozen=True)
class WeightedFair(Claim):
    """Two classes that both always have requests waiting are served alike.

    Served is prefill * prompt tokens + decode * answer tokens, each computed for the first time,
    divided by the weight of the class. The difference of the two moves by no more than `bound`
    while both wait. weights: by the name of a tenant or tier, whichever the policy goes by; 1 for
    all others.
    """

    bound: Bound
    weights: Mapping[str, float] = field(default_factory=dict)
    prefill: float = 1.0
    decode: float = 1.0


@dataclass(frozen=True)
class NoCreditForIdle(WeightedFair):
    """Who comes back from idle gains no more than `bound` on a class that was busy meanwhile."""


@dataclass(frozen=True)
class Rate(Claim):
    """What is let in of one tenant takes, in any time t, at most tokens_per_second * t + burst.

    Counted are the tokens of prompts and answers, at the time when the request is accepted.
    """

    tokens_per_second: float
    burst: float

    @staticmethod
    def per_minute(tokens: float | None, seconds: float) -> "tuple[Rate, ...]":
        """For so many tokens a minute, and a burst of so many seconds' worth; none for None."""
        rate = (tokens or 0.0) / 60
        return () if tokens is None else (Rate(rate, max(rate * seconds, 1.0)),)


@dataclass(frozen=True)
class WorkConserving(Claim):
    """Nothing is left unused that somebody could use.

    While a step has tokens left, everybody who runs takes part in it, and while there are also a
    seat and the blocks for any of those who wait, nobody waits.
    """


def counted_tokens(
    weights: Mapping[str, float], prefill: float, decode: float
) -> tuple[Claim, ...]:
    """What a policy claims that always serves the class with the fewest weighted tokens so far.

    A class that comes back from idle starts level with the active one that was served least. The
    bound is that of Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, with a step
    more for each that is in flight.
    """
    least = min([1.0, *weights.values()])

    def bound(extent: Extent) -> float:
        most = 2 * max(prefill * extent.longest_prompt, decode * extent.at_once)
        return (most + extent.overlap * max(prefill, decode) * extent.step) / least

    shares = (bound, weights, prefill, decode)
    return WeightedFair(*shares), NoCreditForIdle(*shares), Fcfs(), WorkConserving()
