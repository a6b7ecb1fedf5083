"""Cosine and sine of the tokens of a step.

Shape suffixes: T tokens of the step, P positions, W rotated pairs of a head.
"""

from typing import Protocol

import torch
from torch import Tensor

from jackfield.core.api.model import ModelInputs
from jackfield.plugins.models.blocks.rope import DynamicRope, Rope


class Rotary(Protocol):
    """Where a model has its cosines and sines from."""

    def gather(self, inputs: ModelInputs) -> tuple[Tensor, Tensor]:
        """(cos_TW, sin_TW) in float32, attention factor included. Called once per step."""


class RotaryTable:
    """Looked up by position in tables that are made once, on the CPU, for every position."""

    def __init__(self, rope: Rope, device: torch.device) -> None:
        positions = torch.arange(rope.max_positions, dtype=torch.float32)
        angles_PW = positions[:, None] * rope.inverse_frequencies()
        self._cos_PW = (angles_PW.cos() * rope.attention_factor).to(device)
        self._sin_PW = (angles_PW.sin() * rope.attention_factor).to(device)

    def gather(self, inputs: ModelInputs) -> tuple[Tensor, Tensor]:
        positions = inputs.positions_T
        return self._cos_PW.index_select(0, positions), self._sin_PW.index_select(0, positions)


class DynamicRotary:
    """Computed at each step, since the base of a token depends on the length of its sequence,
    however that is cut into steps."""

    def __init__(self, rope: DynamicRope, device: torch.device) -> None:
        self._rope = rope
        self._exponents_W = rope.exponents().to(device)

    def gather(self, inputs: ModelInputs) -> tuple[Tensor, Tensor]:
        assert inputs.prompt_lens_T is not None, "the model's spec asks for prompt lengths"
        lens_T = self._rope.lengths(inputs.prompt_lens_T, inputs.positions_T)
        bases_T = self._rope.scaled_bases(lens_T)
        inverse_TW = 1.0 / bases_T[:, None] ** self._exponents_W
        angles_TW = inputs.positions_T[:, None].float() * inverse_TW
        return angles_TW.cos(), angles_TW.sin()


def make_rotary(rope: Rope, device: torch.device) -> Rotary:
    """What serves a variant."""
    if isinstance(rope, DynamicRope):
        return DynamicRotary(rope, device)
    return RotaryTable(rope, device)
