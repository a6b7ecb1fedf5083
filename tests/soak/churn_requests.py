"""Requests of all kinds, for an engine that is to have no rest."""

from random import Random
from typing import NamedTuple

from jackfield.core.api import CacheHints, RequestContext, SamplingParams

BEGINNINGS = 10
TENANTS = 12
STOPS = 200
"""Enough of all tokens that they end answers that are drawn at random."""
LONGEST_SCORED = 256
"""Prompt tokens; scores of longer prompts would be most of what Python holds."""


class Sizes(NamedTuple):
    """How much at once. burst: requests of a few tokens that come together. Events: seconds from
    one to the next, on average."""

    clients: int
    longest_prompt: int
    longest_answer: int
    burst: int
    num_blocks: int
    max_seqs: int
    max_tokens: int
    events: float


ON_GPU = Sizes(300, 3000, 600, 500, 4096, 256, 4096, 4.0)
ON_CPU = Sizes(24, 200, 80, 40, 64, 16, 128, 0.5)
"""The pools hold a fifth of what the clients ask for, or less."""


class Asked(NamedTuple):
    """A request, and how long its client stays.

    patience: seconds until the stream is cancelled. steps: news until it is left, or, with `says`,
    until the engine is told to end it. None = to the end.
    """

    prompt: list[int]
    params: SamplingParams
    context: RequestContext
    patience: float | None = None
    steps: int | None = None
    says: bool = False
    copies: bool = False


class Maker:
    """Makes requests of all kinds."""

    def __init__(self, sizes: Sizes, vocab_size: int, seed: int) -> None:
        self._sizes = sizes
        self._ids = range(vocab_size)
        self._random = Random(seed)
        longest = sizes.longest_prompt // 2
        lengths = [self._random.randint(longest // 8, longest) for _ in range(BEGINNINGS)]
        self._beginnings = [self._tokens(length) for length in lengths]

    def request(self) -> Asked:
        """Any."""
        prompt = self._prompt()
        asked = Asked(prompt, self._params(len(prompt)), self._context())
        asked = asked._replace(copies=self._random.random() < 0.2)
        return self._leaving(asked) if self._random.random() < 0.1 else asked

    def tiny(self) -> Asked:
        """One of a burst."""
        prompt = self._tokens(self._random.randint(1, 8))
        params = SamplingParams(max_tokens=self._random.randint(1, 4))
        return Asked(prompt, params, self._context())

    def _tokens(self, count: int) -> list[int]:
        return self._random.choices(self._ids, k=count)

    def _prompt(self) -> list[int]:
        random, longest = self._random, self._sizes.longest_prompt
        long = random.random() < 0.5
        length = random.randint(1, longest) if long else int(longest ** random.random())
        if random.random() < 1 / 3:
            return [*random.choice(self._beginnings), *self._tokens(length)][:longest]
        return self._tokens(length)

    def _params(self, length: int) -> SamplingParams:
        random = self._random
        most = random.randint(1, self._sizes.longest_answer)
        scored = length <= LONGEST_SCORED and random.random() < 0.1
        return SamplingParams(
            n=2 if random.random() < 0.05 else 1,
            temperature=random.choice((0.0, 0.0, 0.7, 1.0, 1.5)),
            top_k=random.choice((0, 0, 1, 20, 1000)),
            top_p=random.choice((1.0, 1.0, 0.9, 0.5)),
            min_p=random.choice((0.0, 0.0, 0.05)),
            presence_penalty=random.choice((0.0, 0.0, 0.5)),
            frequency_penalty=random.choice((0.0, 0.0, 0.3)),
            repetition_penalty=random.choice((1.0, 1.0, 1.1)),
            seed=random.choice((None, random.getrandbits(32))),
            max_tokens=most,
            min_tokens=random.choice((0, 0, most // 2)),
            stop_token_ids=self._tokens(STOPS) if random.random() < 0.3 else None,
            ignore_eos=random.random() < 0.5,
            logprobs=random.choice((None,) * 8 + (0, 3)),
            prompt_logprobs=2 if scored else None,
            logit_bias={self._tokens(1)[0]: 5.0} if random.random() < 0.1 else None,
            allowed_token_ids=self._tokens(50) if random.random() < 0.05 else None,
        )

    def _context(self) -> RequestContext:
        random = self._random
        tenant, tier = f"tenant-{random.randrange(TENANTS)}", random.choice(("default", "batch"))
        hints = CacheHints(
            ttl=random.choice((None, None, 2.0)),
            pin=random.random() < 0.02,
            salt=random.choice(("", "", "", "other")),
        )
        return RequestContext(tenant, tier, priority=random.randint(0, 3), cache=hints)

    def _leaving(self, asked: Asked) -> Asked:
        random = self._random
        if random.random() < 0.5:
            return asked._replace(patience=random.choice((0.0, random.uniform(0.0, 3.0))))
        return asked._replace(
            steps=random.randint(1, self._sizes.longest_answer // 4), says=random.random() < 0.5
        )
