"""Rotary position embedding: the variants and how each turns its parameters into frequencies.

All arithmetic is float32 on the CPU, in the order in which the reference implementation does it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rope:
    """The unscaled variant.

    dim: how many entries of a head are rotated. trained: max_position_embeddings of the config.
    """

    theta: float
    dim: int
    trained: int

    @property
    def max_positions(self) -> int:
        """The longest context, scaling included."""
        return self.trained

    @property
    def attention_factor(self) -> float:
        """What cosine and sine are multiplied with."""
        return 1.0

    def exponents(self) -> Tensor:
        """What theta is raised to, one entry per rotated pair."""
        return torch.arange(0, self.dim, 2, dtype=torch.float32) / self.dim

    def inverse_frequencies(self) -> Tensor:
        """Radians per position, one entry per rotated pair."""
        return 1.0 / torch.pow(self.theta, self.exponents())


@dataclass(frozen=True, slots=True)
class LinearRope(Rope):
    """Positions are divided by a factor, which is how much longer the context becomes."""

    factor: float

    @property
    def max_positions(self) -> int:
        return int(self.trained * self.factor)

    def inverse_frequencies(self) -> Tensor:
        return 1.0 / torch.pow(self.theta, self.exponents()) / self.factor


@dataclass(frozen=True, slots=True)
class DynamicRope(Rope):
    """The base grows with the length of the sequence once that exceeds the trained length.

    The length is that of the prompt for its tokens, and the token's own position plus one after it.
    """

    factor: float

    @property
    def max_positions(self) -> int:
        return int(self.trained * self.factor)

    def lengths(self, prompt_lens_T: Tensor, positions_T: Tensor) -> Tensor:
        """The length of the sequence as each token has it."""
        return torch.maximum(prompt_lens_T, positions_T + 1)

    def scaled_bases(self, lens_T: Tensor) -> Tensor:
        """The base for sequences of the given lengths; theta up to the trained length."""
        lens = lens_T.clamp(min=self.trained)
        stretch = self.factor * lens / self.trained - (self.factor - 1)
        bases = self.theta * stretch ** (self.dim / (self.dim - 2))
        return torch.where(lens_T > self.trained, bases, self.theta)


@dataclass(frozen=True, slots=True)
class SteppedRope(DynamicRope):
    """The same in steps: the base grows each time the length of the prompt has doubled, and stays
    while the answer gets longer. longest: context that the config allows."""

    longest: int

    @property
    def max_positions(self) -> int:
        return self.longest

    def lengths(self, prompt_lens_T: Tensor, positions_T: Tensor) -> Tensor:
        return prompt_lens_T

    def scaled_bases(self, lens_T: Tensor) -> Tensor:
        doublings = torch.log2(lens_T.double() / self.trained).ceil() + 1
        stretch = (2**doublings - 1).clamp(min=1)
        return (self.theta * stretch ** (self.dim / (self.dim - 2))).float()


@dataclass(frozen=True, slots=True)
class Llama3Rope(Rope):
    """Slow frequencies are divided by a factor, fast ones are kept, with a ramp between."""

    factor: float
    low: float
    high: float
    original: int

    def inverse_frequencies(self) -> Tensor:
        plain = 1.0 / torch.pow(self.theta, self.exponents())
        wavelengths = 2 * math.pi / plain
        slow = wavelengths > self.original / self.low
        fast = wavelengths < self.original / self.high
        scaled = torch.where(slow, plain / self.factor, plain)
        share = (self.original / wavelengths - self.low) / (self.high - self.low)
        ramp = (1 - share) * scaled / self.factor + share * scaled
        return torch.where(slow | fast, scaled, ramp)


@dataclass(frozen=True, slots=True)
class YarnRope(Rope):
    """Pairs that turn rarely are interpolated, those that turn often are kept.

    max_positions is factor times the original length even where max_position_embeddings still
    says the original one, as configs with a factor added by hand do.
    """

    factor: float
    original: int
    magnitude: float
    beta_fast: float
    beta_slow: float
    truncate: bool

    @property
    def max_positions(self) -> int:
        return max(self.trained, int(self.original * self.factor))

    @property
    def attention_factor(self) -> float:
        return self.magnitude

    def inverse_frequencies(self) -> Tensor:
        powers = torch.pow(self.theta, self.exponents())
        kept = 1 - self._ramp(len(powers))
        return 1.0 / (self.factor * powers) * (1 - kept) + 1.0 / powers * kept

    def _ramp(self, count: int) -> Tensor:
        low, high = self._pair_of(self.beta_fast), self._pair_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.dim - 1)
        if low == high:
            high += 0.001
        return ((torch.arange(count, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)

    def _pair_of(self, turns: float) -> float:
        ratio = math.log(self.original / (turns * 2 * math.pi))
        return self.dim * ratio / (2 * math.log(self.theta))


def yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    """How much YaRN sharpens attention scores for a context that is `factor` times longer."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
