"""Changes of one sequence's logits before sampling: masks, bias, penalties.

Shape suffix: V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from jackfield.core.engine.steps import Join

MASKED = float("-inf")


class Edits:
    """What one seat does to its logits, and the token counts that its penalties need."""

    def __init__(self, join: Join, vocab_size: int, device: torch.device) -> None:
        params = join.params
        self._params = params
        self._device = device
        self._banned = self._ids(join.banned)
        self._allowed = self._ids(params.allowed_token_ids)
        self._stops = self._ids(sorted(join.stop_ids)) if params.min_tokens else None
        bias = params.logit_bias or {}
        self._bias_ids = self._ids(list(bias))
        self._bias = torch.tensor(list(bias.values()), dtype=torch.float32, device=device)
        self._counts_V: Tensor | None = None
        self._seen_V: Tensor | None = None
        if _penalised(join):
            self._counts_V = self._count(join.output, vocab_size)
            self._seen_V = self._count(join.prompt, vocab_size) + self._counts_V > 0

    @staticmethod
    def wanted(join: Join) -> bool:
        """Whether the sequence changes its logits at all."""
        params = join.params
        masks = join.banned or params.allowed_token_ids or params.logit_bias
        return bool(masks or (params.min_tokens and join.stop_ids) or _penalised(join))

    def _ids(self, values: Sequence[int] | None) -> Tensor | None:
        if not values:
            return None
        return torch.tensor(list(values), dtype=torch.int64, device=self._device)

    def _count(self, tokens: Sequence[int], vocab_size: int) -> Tensor:
        ids = torch.tensor(list(tokens), dtype=torch.int64, device=self._device)
        counts_V = torch.zeros(vocab_size, device=self._device)
        return counts_V.index_add_(0, ids, torch.ones_like(ids, dtype=torch.float32))

    def apply(self, logits_V: Tensor, num_sampled: int) -> None:
        """Edit in place; num_sampled: tokens of the answer so far."""
        if self._allowed is not None:
            kept = logits_V[self._allowed].clone()
            logits_V.fill_(MASKED)
            logits_V[self._allowed] = kept
        if self._banned is not None:
            logits_V[self._banned] = MASKED
        if self._stops is not None and num_sampled < self._params.min_tokens:
            logits_V[self._stops] = MASKED
        if self._bias_ids is not None:
            logits_V.index_add_(0, self._bias_ids, self._bias)
        if self._counts_V is not None:
            self._penalise(logits_V)

    def _penalise(self, logits_V: Tensor) -> None:
        params = self._params
        counts_V, seen_V = self._counts_V, self._seen_V
        assert counts_V is not None and seen_V is not None
        if params.repetition_penalty != 1.0:
            factor = params.repetition_penalty
            scaled = torch.where(logits_V > 0, logits_V / factor, logits_V * factor)
            torch.where(seen_V, scaled, logits_V, out=logits_V)
        logits_V -= params.frequency_penalty * counts_V
        logits_V -= params.presence_penalty * (counts_V > 0)

    def sampled(self, token: Tensor) -> None:
        """Count the token that was drawn; it stays on the device."""
        if self._counts_V is not None and self._seen_V is not None:
            self._counts_V.index_add_(0, token, torch.ones_like(token, dtype=torch.float32))
            self._seen_V.index_fill_(0, token, True)


def _penalised(join: Join) -> bool:
    params = join.params
    return (
        params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
    )
