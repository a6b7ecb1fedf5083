"""Fixed lists of requests: token ids in, answer lengths out, the same on every machine."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from jackfield.core.api import ConfigError
from jackfield.core.api.errors import nearest

LARGEST_ID = 10_000


class Workload(NamedTuple):
    """Prompts and the lengths of their answers.

    concurrency: requests that are sent together, wave after wave; None = all at once. shared: how
    many first tokens each prompt has in common with an earlier one, by construction.
    """

    name: str
    prompts: list[list[int]]
    lengths: list[int]
    concurrency: int | None
    shared: list[int]

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    @property
    def num_output_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        """Positions of the longest request."""
        return max(len(p) + n for p, n in zip(self.prompts, self.lengths, strict=True))

    def waves(self) -> list[slice]:
        """The requests that are sent together."""
        size = self.concurrency or len(self.prompts)
        return [slice(start, start + size) for start in range(0, len(self.prompts), size)]


class Fixed(NamedTuple):
    """Numbers of the workload "tokens", where every request has the same lengths."""

    requests: int = 16
    input_tokens: int = 512
    output_tokens: int = 64


def _alone(
    name: str, prompts: list[list[int]], lengths: list[int], concurrency: int | None = None
) -> Workload:
    return Workload(name, prompts, lengths, concurrency, [0] * len(prompts))


def _tokens(random: Random, largest: int, count: int) -> list[int]:
    return [random.randint(0, largest) for _ in range(count)]


def cpu16(largest: int = LARGEST_ID) -> Workload:
    """16 at once, 32 to 128 tokens in, 64 out: small enough for a CPU."""
    random = Random(5)
    prompts = [_tokens(random, largest, random.randint(32, 128)) for _ in range(16)]
    return _alone("cpu16", prompts, [64] * 16)


def one(largest: int = LARGEST_ID) -> Workload:
    """One request at a time: 128 tokens in, 512 out."""
    random = Random(4)
    return _alone("one", [_tokens(random, largest, 128) for _ in range(4)], [512] * 4, 1)


def mixed(largest: int = LARGEST_ID) -> Workload:
    """256 at once, 100 to 1024 tokens in and out."""
    random = Random(0)
    prompts = [_tokens(random, largest, random.randint(100, 1024)) for _ in range(256)]
    return _alone("mixed", prompts, [random.randint(100, 1024) for _ in range(256)])


def chat20(largest: int = LARGEST_ID) -> Workload:
    """Ten waves of 20: 200 tokens in, 100 out."""
    random = Random(1)
    return _alone("chat20", [_tokens(random, largest, 200) for _ in range(200)], [100] * 200, 20)


def shared(largest: int = LARGEST_ID) -> Workload:
    """512 at once, 64 tokens out: one of 8 beginnings of 2048 tokens, then 128 of its own."""
    random = Random(2)
    heads = [_tokens(random, largest, 2048) for _ in range(8)]
    prompts = [heads[index % 8] + _tokens(random, largest, 128) for index in range(512)]
    return Workload("shared", prompts, [64] * 512, None, [0] * 8 + [2048] * 504)


def long(largest: int = LARGEST_ID) -> Workload:
    """16 at once: 32 000 tokens in, 128 out."""
    random = Random(3)
    return _alone("long", [_tokens(random, largest, 32_000) for _ in range(16)], [128] * 16)


def crowd(largest: int = LARGEST_ID) -> Workload:
    """3000 requests, 1000 at once: 8 to 64 tokens in, 16 to 96 out."""
    random = Random(7)
    prompts = [_tokens(random, largest, random.randint(8, 64)) for _ in range(3000)]
    return _alone("crowd", prompts, [random.randint(16, 96) for _ in range(3000)], 1000)


def tokens(fixed: Fixed, largest: int = LARGEST_ID) -> Workload:
    """All at once, with the lengths that are asked for."""
    for name, value in fixed._asdict().items():
        if value < 1:
            raise ConfigError(f"{name} of a workload is {value}; it must be at least 1")
    random = Random(6)
    prompts = [_tokens(random, largest, fixed.input_tokens) for _ in range(fixed.requests)]
    return _alone("tokens", prompts, [fixed.output_tokens] * fixed.requests)


NAMED: Mapping[str, Callable[[int], Workload]] = {
    "cpu16": cpu16, "one": one, "mixed": mixed, "chat20": chat20, "shared": shared, "long": long,
    "crowd": crowd,
}  # fmt: skip
WORKLOADS = (*NAMED, "tokens")


def make_workload(
    name: str, *, largest: int = LARGEST_ID, fixed: Fixed | None = None
) -> Workload:
    """A workload by name. largest: the largest token id in its prompts. fixed: for "tokens".

    Raises `ConfigError` for an unknown name, or numbers that make no workload.
    """
    if name == "tokens":
        return tokens(fixed or Fixed(), largest)
    if name not in NAMED:
        raise ConfigError(f"unknown workload {name!r}. {nearest(name, WORKLOADS)}")
    return NAMED[name](largest)
