"""Sizes of latent attention."""

from dataclasses import dataclass

from jackfield.core.api.latent import LatentSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): what is kept of a token is one
    small vector that all heads share, and a part of a key that is rotated.

    rank: of the shared vector. rotated, plain: entries of each head's query and key that are, and
    are not. value: size of each head's value. query_rank: queries are made through so few entries;
    None = in one product. interleaved: whether pairs to be rotated lie side by side in the
    weights, or as halves. softmax_scale: of scores.
    """

    rank: int
    rotated: int
    plain: int
    value: int
    query_rank: int | None
    interleaved: bool
    softmax_scale: float

    @property
    def sizes(self) -> LatentSizes:
        """What attention must know."""
        return LatentSizes(self.rank, self.rotated, self.plain, self.value)

    @property
    def stored(self) -> int:
        """Entries that are kept of a token."""
        return self.rank + self.rotated

    def num_parameters(self, hidden_size: int, num_heads: int, *, bias: bool) -> int:
        """Of one layer's attention. bias: of the products from and to the hidden states."""
        queries = num_heads * (self.plain + self.rotated)
        first = queries if self.query_rank is None else self.query_rank
        from_hidden = (first + self.stored) * (hidden_size + bias)
        second = 0 if self.query_rank is None else self.query_rank * (queries + 1)
        heads = self.rank * (num_heads * (self.plain + self.value) + 1)
        return from_hidden + second + heads + hidden_size * (num_heads * self.value + bias)
