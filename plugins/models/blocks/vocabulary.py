"""The embedding of token ids and the head that scores them."""

import logging

from torch import Tensor
from torch.nn.functional import embedding

from jackfield.core.api.kernel import Linear
from jackfield.core.api.model import Weights
from jackfield.plugins.models.blocks.shape import DecoderShape

HEAD = "lm_head.weight"

log = logging.getLogger("jackfield.models")


class Vocabulary:
    """Tied to one table, or a table and a head of their own, as the config says."""

    def __init__(self, shape: DecoderShape, linear: Linear, weights: Weights) -> None:
        size = (shape.vocab_size, shape.hidden_size)
        self._linear = linear
        self._table_VD = weights.take("model.embed_tokens.weight", size)
        if shape.tied:
            _ignore_head(weights)
        head_VD = self._table_VD if shape.tied else weights.take(HEAD, size)
        self._head = linear.pack(head_VD, None)
        self.device = self._table_VD.device

    def embed(self, ids_T: Tensor) -> Tensor:
        """`[T, D]`, a tensor of the caller's own."""
        return embedding(ids_T, self._table_VD)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """`[R, V]`."""
        return self._linear(hidden_RD, self._head)


def _ignore_head(weights: Weights) -> None:
    if weights.has(HEAD):
        log.warning(
            "The checkpoint holds %s, which is not used: tie_word_embeddings in config.json makes "
            "the embedding the output head.",
            HEAD,
        )
        weights.ignore(HEAD.replace(".", r"\."))
