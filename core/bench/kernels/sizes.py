"""At which sizes operations are measured."""

from typing import NamedTuple

MIB = 2**20


class DecodeSize(NamedTuple):
    """Sequences that get one token each: how many, and from the shortest to the longest."""

    sequences: int
    shortest: int
    longest: int

    @property
    def title(self) -> str:
        """As 256x100..2048."""
        lengths = {self.shortest: str(self.shortest)}.get(self.longest)
        return f"{self.sequences}x{lengths or f'{self.shortest}..{self.longest}'}"

    def lens(self) -> list[int]:
        """Evenly spread."""
        last = max(self.sequences - 1, 1)
        reach = self.longest - self.shortest
        return [self.shortest + reach * place // last for place in range(self.sequences)]


class Sizes(NamedTuple):
    """decodes, prompts: of attention. tokens: of what works on each token by itself. products: rows
    of a product. rows: sequences that are sampled, and seats of a step. seconds: for each
    operation and size, building apart. most_copies: of what an operation reads, to go around."""

    decodes: tuple[DecodeSize, ...]
    prompts: tuple[int, ...]
    tokens: tuple[int, ...]
    products: tuple[int, ...]
    rows: tuple[int, ...]
    seconds: float
    most_copies: int


FULL = Sizes(
    decodes=(
        DecodeSize(256, 100, 2048), DecodeSize(128, 1024, 1024), DecodeSize(20, 250, 250),
        DecodeSize(1, 1024, 1024), DecodeSize(16, 32_000, 32_000),
    ),
    prompts=(512, 2048, 8192, 32_768),
    tokens=(1, 64, 256, 8192),
    products=(1, 8, 20, 64, 256, 2048),
    rows=(1, 64, 256),
    seconds=0.1,
    most_copies=128,
)  # fmt: skip
QUICK = Sizes(
    decodes=(DecodeSize(4, 16, 64), DecodeSize(1, 256, 256)),
    prompts=(64,),
    tokens=(1, 16),
    products=(1, 16),
    rows=(1, 4),
    seconds=0.002,
    most_copies=2,
)
