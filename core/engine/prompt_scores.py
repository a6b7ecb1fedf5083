"""Log-probabilities of a prompt's own tokens, for those who asked for them.

Shape suffixes: T tokens of a slice, D model width, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.engine.scoring import Scores, score
from jackfield.core.engine.steps import Join, Slice, StepPlan, TokenScore

SCORE_ROWS = 64


class Piece(NamedTuple):
    """Scores of consecutive positions, still on the device."""

    handle: int
    first: int
    scores: Scores


class PromptScores:
    """Keeps the prompts of those who want them scored, by seat."""

    def __init__(self, logits: Callable[[Tensor], Tensor], device: torch.device) -> None:
        self._logits = logits
        self._device = device
        self._prompts: dict[int, tuple[Sequence[int], int]] = {}

    def join(self, join: Join) -> None:
        """A sequence takes a seat."""
        self.leave(join.seat)
        if join.params.prompt_logprobs is not None:
            self._prompts[join.seat] = (join.prompt, join.params.prompt_logprobs)

    def leave(self, seat: int) -> None:
        """Nobody sits there any more."""
        self._prompts.pop(seat, None)

    def of(self, part: Slice, hidden_TD: Tensor) -> list[Piece]:
        """The logits of a position score the token after it. Does not wait for the device."""
        prompt, top = self._prompts[part.seat]
        end = min(part.start + part.length, len(prompt) - 1)
        found = []
        for start in range(part.start, end, SCORE_ROWS):
            stop = min(start + SCORE_ROWS, end)
            logits_RV = self._logits(hidden_TD[start - part.start : stop - part.start])
            tokens_R = torch.tensor(prompt[start + 1 : stop + 1], device=self._device)
            scores = score(logits_RV, tokens_R, [top] * (stop - start))
            found.append(Piece(part.handle, start + 1, scores))
        return found


def read(plan: StepPlan, pieces: Sequence[Piece]) -> Mapping[int, Mapping[int, TokenScore]]:
    """Handle -> position -> score, for all slices that ask for them. Waits for the device."""
    found: dict[int, dict[int, TokenScore]] = {
        part.handle: {} for part in plan.slices if part.scores
    }
    for handle, first, scores in pieces:
        found[handle].update(enumerate(scores.read(), first))
    return found
