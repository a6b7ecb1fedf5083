"""The embedding of token ids and the head that scores them.

Shape suffixes: T tokens of the step, R rows that are sampled, D model width, V vocabulary, P rows
of a rank, S ranks.
"""

import logging

from torch import Tensor
from torch.nn.functional import embedding

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import LogitsPart, Shard, Weights
from jackfield.plugins.models.blocks.id_part import IdPart
from jackfield.plugins.models.blocks.shape import DecoderShape

TABLE = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

log = logging.getLogger("jackfield.models")


class Vocabulary:
    """Tied to one table, or a table and a head of their own, as the config says."""

    def __init__(
        self, shape: DecoderShape, ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        self._linear, self._part = ops.linear, IdPart.of(shape.vocab_size, shard)
        self._table_PD = self._part.take(weights, TABLE, shape.hidden_size)
        if shape.tied:
            _ignore_head(weights)
        head_PD = self._table_PD
        if not shape.tied:
            head_PD = self._part.take(weights, HEAD, shape.hidden_size)
        self._head = ops.linear.pack(head_PD, None)
        self.device = self._table_PD.device

    def embed(self, ids_T: Tensor) -> Tensor:
        """`[T, D]`, a tensor of the caller's own."""
        return embedding(ids_T, self._table_PD)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """`[R, V]`."""
        return self._linear(hidden_RD, self._head)

    def logits_part(self, hidden_RD: Tensor) -> LogitsPart:
        """The columns of this rank's ids."""
        ids = self._part.ids
        return LogitsPart(self._linear(hidden_RD, self._head)[:, : len(ids)], ids.start)


class DividedVocabulary(Vocabulary):
    """Each rank has rows of neighbouring ids. Rows of padding are never looked up, and nobody sees
    their logits."""

    def __init__(
        self, shape: DecoderShape, ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        super().__init__(shape, ops, shard, weights)
        assert ops.all_reduce is not None and ops.all_gather is not None
        self._all_reduce, self._all_gather = ops.all_reduce, ops.all_gather

    def embed(self, ids_T: Tensor) -> Tensor:
        row_T = ids_T - self._part.ids.start
        others_T = (row_T < 0) | (row_T >= len(self._part.ids))
        part_TD = super().embed(row_T.masked_fill_(others_T, 0))
        return self._all_reduce(part_TD.masked_fill_(others_T.unsqueeze(1), 0.0))

    def logits(self, hidden_RD: Tensor) -> Tensor:
        logits_SRP = self._all_gather(super().logits(hidden_RD))
        return logits_SRP.transpose(0, 1).flatten(1)[:, : self._part.total]


def make_vocabulary(
    shape: DecoderShape, ops: Operations, shard: Shard, weights: Weights
) -> Vocabulary:
    """What serves so many ranks."""
    kind = Vocabulary if shard.size == 1 else DividedVocabulary
    return kind(shape, ops, shard, weights)


def _ignore_head(weights: Weights) -> None:
    if weights.has(HEAD):
        log.warning(
            "The checkpoint holds %s, which is not used: tie_word_embeddings in config.json makes "
            "the embedding the output head.",
            HEAD,
        )
        weights.ignore(HEAD.replace(".", r"\."))
