"""Latent attention: all heads share one vector per token, and a part of a key that is rotated.

Shape suffixes: T tokens of the step, N heads, R entries of the shared vector, W rotated entries of
a query or key, P those that are not, V entries of a value, X a value and P beside each other, Q
P and W beside each other, H what is stored of a token: R and W beside each other.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from jackfield.core.api.kernel import KvLayer


class LatentSizes(NamedTuple):
    """Entries of the shared vector; rotated and plain entries of each head's query and key; entries
    of each head's value."""

    rank: int
    rotated: int
    plain: int
    value: int

    @property
    def stored(self) -> int:
        """Entries that are kept of a token."""
        return self.rank + self.rotated

    @property
    def query(self) -> int:
        """Entries of each head's query and key."""
        return self.plain + self.rotated


class LatentHeads(NamedTuple):
    """What makes each head's values and the plain part of its keys of a shared vector.

    Either it is applied to vectors (expanded), or that of keys to queries, and that of values to
    what attention to the vectors gives (absorbed). merged: each head's value, then its key; the
    others are views of it.
    """

    merged_NXR: "Tensor"
    keys_NPR: "Tensor"
    values_NRV: "Tensor"

    @staticmethod
    def of(merged_NXR: "Tensor", value: int) -> "LatentHeads":
        """value: entries of a value."""
        values_NVR, keys_NPR = merged_NXR[:, :value], merged_NXR[:, value:]
        return LatentHeads(merged_NXR, keys_NPR, values_NVR.transpose(1, 2))

    def absorbed(self, q_TNQ: "Tensor") -> "Tensor":
        """Queries of stored vectors, `[T, N, H]`."""
        _, plain, rank = self.keys_NPR.shape
        tokens, heads, query = q_TNQ.shape
        q_TNH = q_TNQ.new_empty(tokens, heads, rank + query - plain)
        q_NTP = q_TNQ[..., :plain].transpose(0, 1)
        q_TNH[..., :rank] = (q_NTP @ self.keys_NPR).transpose(0, 1)
        q_TNH[..., rank:] = q_TNQ[..., plain:]
        return q_TNH

    def results(self, out_TNR: "Tensor") -> "Tensor":
        """Of what attention to stored vectors gave, `[T, N, V]`."""
        return (out_TNR.transpose(0, 1) @ self.values_NRV).transpose(0, 1)

    def expanded(self, stored_TH: "Tensor") -> "tuple[Tensor, Tensor]":
        """Keys `[T, N, Q]` and values `[T, N, V]`."""
        heads, _, rank = self.merged_NXR.shape
        value, rotated = self.values_NRV.shape[2], stored_TH.shape[1] - rank
        x_TM = stored_TH[:, :rank] @ self.merged_NXR.flatten(0, 1).t()
        x_TNX = x_TM.view(len(x_TM), heads, -1)
        k_TNQ = stored_TH.new_empty(len(x_TNX), heads, self.keys_NPR.shape[1] + rotated)
        k_TNQ[..., :-rotated] = x_TNX[..., value:]
        k_TNQ[..., -rotated:] = stored_TH[:, None, rank:]
        return k_TNQ, x_TNX[..., :value]


class LatentProjected(NamedTuple):
    """What products made of a step's tokens, and what is to be done with it.

    q: the plain part of each head's query in front. stored: the shared vector in front. Neither is
    rotated, and the vector not yet normed. norm, eps: of it. cos and sin: as for `Rope`;
    interleaved: pairs to be rotated lie side by side, not as halves, which they become.
    """

    q_TNQ: "Tensor"
    stored_TH: "Tensor"
    norm_R: "Tensor"
    eps: float
    cos_TW: "Tensor"
    sin_TW: "Tensor"
    interleaved: bool
    heads: LatentHeads


class LatentAttentionKernel(Protocol):
    """What an `AttentionKernel` has beside its own if it serves layer groups whose spec is latent.

    step: what its `prepare` gave.
    """

    def write_latent(
        self, projected: LatentProjected, layer: "KvLayer", step: Any
    ) -> "Tensor | None":
        """Norms, rotates and stores, and gives the rotated queries, `[T, N, Q]`; may work in place.
        None = it does not do that in one go: then operations do it one by one, and its `write` is
        given what is to be stored as keys, and the shared vectors in it as values."""

    def forward_latent(
        self,
        q_TNQ: "Tensor",
        heads: LatentHeads,
        layer: "KvLayer",
        step: Any,
        out_TNV: "Tensor",
    ) -> "Tensor":
        """Causal attention of every token to its sequence up to its own position, in whichever form
        it likes; fills `out`."""
