"""How far two models' predictions of one text are apart.

Shape suffixes: T tokens of a piece, V vocabulary.
"""

from collections.abc import Sequence
from math import ceil, exp
from tempfile import TemporaryFile

import numpy as np
import torch
from torch import Tensor


class Memory:
    """The first model's logits, in a file that vanishes: those of long texts fit no memory."""

    def __init__(self, length: int, vocab_size: int) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - until close()
        self._rows = np.memmap(self._file, np.float32, "w+", shape=(length, vocab_size))

    def put(self, start: int, logits_TV: Tensor) -> None:
        """Keep the logits of positions from `start` on."""
        self._rows[start : start + len(logits_TV)] = logits_TV.float().cpu().numpy()

    def get(self, start: int, count: int) -> Tensor:
        """Those of `count` positions."""
        return torch.from_numpy(np.array(self._rows[start : start + count]))

    def close(self) -> None:
        """Give the file back."""
        del self._rows
        self._file.close()


class Surprise:
    """How well a text was predicted."""

    def __init__(self) -> None:
        self._total, self._count = 0.0, 0

    def add(self, logprobs_T: Tensor) -> None:
        """Of the tokens that came."""
        self._total -= float(logprobs_T.sum())
        self._count += len(logprobs_T)

    @property
    def perplexity(self) -> float:
        """e to the mean of all negative logprobs."""
        return exp(min(self._total / max(self._count, 1), 700.0))


class Agreement:
    """Collects both models' logits for each position that has a next token."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.begin(tokens)
        self.a, self.b = Surprise(), Surprise()
        self.largest_difference = 0.0
        """Between the logprobs of a token of the text."""
        self._divergences: list[Tensor] = []
        self._same = 0

    def begin(self, tokens: Sequence[int]) -> None:
        """From here on, logits are those of this text, whose first token nobody predicts."""
        self._next = torch.tensor(tokens[1:], dtype=torch.int64)

    def add(self, start: int, a_TV: Tensor, b_TV: Tensor) -> None:
        """Logits from `start` on; those after the last token of the text do not count."""
        next_T1 = self._next[start : start + len(a_TV)].unsqueeze(1)
        count = len(next_T1)
        if count == 0:
            return
        a_TV, b_TV = a_TV[:count].double(), b_TV[:count].double()
        self._same += int((a_TV.argmax(-1) == b_TV.argmax(-1)).sum())
        a_TV, b_TV = a_TV.log_softmax(-1), b_TV.log_softmax(-1)
        self._divergences.append((a_TV.exp() * (a_TV - b_TV)).sum(-1))
        a_T, b_T = a_TV.gather(1, next_T1)[:, 0], b_TV.gather(1, next_T1)[:, 0]
        self.a.add(a_T)
        self.b.add(b_T)
        self.largest_difference = max(self.largest_difference, float((a_T - b_T).abs().max()))

    @property
    def count(self) -> int:
        """Positions that were compared."""
        return sum(map(len, self._divergences))

    @property
    def mean_divergence(self) -> float:
        """KL(A||B) per position, in nats."""
        return sum(float(each.sum()) for each in self._divergences) / max(self.count, 1)

    def divergence_at(self, share: float) -> float:
        """KL(A||B) that so large a share of all positions does not exceed."""
        if not self._divergences:
            return 0.0
        sorted_T = torch.cat(self._divergences).sort().values
        return float(sorted_T[max(ceil(share * len(sorted_T)) - 1, 0)])

    @property
    def same_top(self) -> float:
        """Share of positions with the same most likely token."""
        return self._same / max(self.count, 1)
