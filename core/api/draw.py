"""Operations that draw tokens, from whole rows of logits or from parts of them.

Shape suffixes: R rows that are sampled, V vocabulary, P a part of it.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from jackfield.core.api.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


class SampleBatch(NamedTuple):
    """How each row is sampled. temperature 0 = greedy; top_k 0 = all; top_p 1 and min_p 0 = off.

    float32, but for top_k (int32), and seeds_R and positions_R (int64), which alone decide the
    draw, for the same logits. all_greedy: no row has a temperature. filtered: some row that has
    one also has a top_k, top_p or min_p. Both are told by the host so that a device need not be
    asked.
    """

    temperature_R: "Tensor"
    top_k_R: "Tensor"
    top_p_R: "Tensor"
    min_p_R: "Tensor"
    seeds_R: "Tensor"
    positions_R: "Tensor"
    all_greedy: bool
    filtered: bool


class Sample(Operation, Protocol):
    """Draws one token per row. Deterministic; never reads a global generator."""

    def __call__(self, logits_RV: "Tensor", batch: SampleBatch) -> "Tensor":
        """int64 [R]; -1 - token where the logit of the token is no number. `logits` (float32, or
        the model's type) may be overwritten. Ties of greedy: the lowest id."""


PART_MULTIPLE = 128
"""Parts of a vocabulary begin at multiples of so many tokens."""
NO_TOKEN = 0x7FFFFFFF
"""In the place of the id where a part has none."""


class Best(NamedTuple):
    """The best token of each row in a part of the vocabulary. value_R (float32): how good it is,
    comparable between parts of one row; NaN = its logit is no number. token_R (int64): its id in
    the vocabulary, without any mark; `NO_TOKEN`, of value minus infinity, of an empty part."""

    value_R: "Tensor"
    token_R: "Tensor"


class SamplePart(Operation, Protocol):
    """Draws as `Sample` does, where each rank has the logits of a part of the vocabulary: the
    best of all parts is what `Sample` gives for the whole row, so that ranks exchange a value and
    a token in the place of logits. Optional, and only from the plugin that serves `sample`."""

    def draws(self, batch: SampleBatch) -> bool:
        """Whether it can, of such a batch; for others logits are gathered. It looks at the two
        flags alone, so that all ranks get the same answer, and nobody waits for a device."""

    def __call__(self, logits_RP: "Tensor", first: int, batch: SampleBatch) -> Best:
        """first: the id of the first token of the part, a multiple of `PART_MULTIPLE` unless the
        part is empty. Of equal values the lowest id. `logits` may be overwritten."""
