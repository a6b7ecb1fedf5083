"""Model plugins: an architecture as a class that runs on an operation table.

Shape suffixes: T tokens of the step, N query heads, K key/value heads, H head size, D width,
R rows whose logits are wanted, V vocabulary, P a part of it.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from jackfield.core.api.kernel import Operations, Projected
from jackfield.core.api.latent import LatentProjected, LatentSizes

if TYPE_CHECKING:
    from torch import Tensor


class LayerGroup(NamedTuple):
    """Layers that keep the same things per token. window: as in `KvSpec`."""

    layers: tuple[int, ...]
    window: int | None = None


class ModelSpec(NamedTuple):
    """What the engine must know of a model before it is built.

    max_positions: the longest context the weights were made for, rope scaling included.
    softmax_scale: of attention scores. uses_prompt_lens: whether `ModelInputs.prompt_lens_T`
    is wanted. alike_prompts: the longest prompt whose keys do not depend on its length; None = no
    prompt's do. Longer ones share blocks only with prompts of their length. num_parameters: weights
    that take part in a product or a look-up. latent: as in `KvSpec`. uses_experts: whether it calls
    the operations `experts`, `quant_experts` and `route`, if they are there. divides: whether ranks
    can share it. widths: what beside the heads they share evenly, in words, and its size.
    num_experts: of a layer; 0 = none. expert_width: what ranks share of each expert.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    softmax_scale: float
    groups: tuple[LayerGroup, ...]
    num_parameters: int
    uses_prompt_lens: bool = False
    latent: LatentSizes | None = None
    alike_prompts: int | None = None
    uses_experts: bool = True
    divides: bool = False
    widths: tuple[tuple[str, int], ...] = ()
    num_experts: int = 0
    expert_width: int = 0


class ModelInputs(NamedTuple):
    """One step's tokens. ids_T and positions_T are int64.

    prompt_lens_T (int64): the length of the prompt that each token's sequence started with; only
    for models whose spec asks for it. slots_T (int64): as in `AttnBatch`; what is computed of a
    token whose slot is -1 nobody looks at. None = there is no such token.
    """

    ids_T: "Tensor"
    positions_T: "Tensor"
    prompt_lens_T: "Tensor | None" = None
    slots_T: "Tensor | None" = None


class Attend(Protocol):
    """Attention as an argument: stores keys and values, attends, returns `[T, N, H]`."""

    def __call__(
        self, layer: int, q_TNH: "Tensor", k_TKH: "Tensor", v_TKH: "Tensor"
    ) -> "Tensor":
        """Of queries and keys that the model has rotated, or that need not be."""

    def projected(self, layer: int, projected: Projected) -> "Tensor":
        """The same from a merged product: norms, rotation and storing are one operation where a
        kernel offers that."""

    def latent(self, layer: int, projected: LatentProjected) -> "Tensor":
        """Latent attention: norms, rotates, stores and attends; returns `[T, N, V]`, each head's
        mix of its values."""


class Shard(NamedTuple):
    """Which part of each weight this process holds, as the `rank`th of `size`.

    whole_experts: each expert is held by one rank; otherwise every rank holds a part of each.
    """

    rank: int = 0
    size: int = 1
    whole_experts: bool = False

    def part(self, count: int) -> range:
        """This rank's of `count` things, such as heads, in equal parts. Of fewer things than ranks
        it has one, as do the ranks beside it. Raises `ValueError` if they do not divide."""
        if count >= self.size and count % self.size == 0:
            each = count // self.size
            return range(self.rank * each, (self.rank + 1) * each)
        if 0 < count < self.size and self.size % count == 0:
            one = self.rank * count // self.size
            return range(one, one + 1)
        raise ValueError(f"{count} do not divide among {self.size} ranks")

    def share(self, count: int) -> range:
        """This rank's of `count` things that need not divide: some ranks have one more."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)


class Split(Enum):
    """Along which axis a weight is divided among ranks."""

    NONE = None
    ROWS = 0
    COLUMNS = 1


class Weights(Protocol):
    """Where a model takes its tensors from: pulled by name, one at a time, while it is built.

    A tensor that the model never takes, and did not `ignore`, is an error that names it.
    """

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> "Tensor":
        """This rank's part of the tensor, on the device, in the model's dtype.

        shape is that of the whole tensor. part: which of the rows or columns; None = of as many
        equal parts as there are ranks, this one's. Raises `CheckpointError` that names file and
        tensor if it is missing, has another shape, or is cut short.
        """

    def take_exact(self, name: str, shape: tuple[int, ...]) -> "Tensor":
        """As `take`, the whole tensor in float32: for few numbers that the model's type would round
        too much."""

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""

    def ignore(self, pattern: str) -> None:
        """Names that match the regular expression are known to be of no use."""


class LogitsPart(NamedTuple):
    """Columns of logits, `[R, P]`, maybe none. first: the id of the first of them."""

    logits_RP: "Tensor"
    first: int


class Model(Protocol):
    """One architecture. The entry-point name is the `architectures` entry of its config.json."""

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> ModelSpec:
        """Read a config.json. Raises `ModelError` naming the key for what it does not support."""

    def __init__(
        self, config: Mapping[str, Any], ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        """Take all weights, packed as the operations want them."""

    def forward(self, inputs: ModelInputs, attend: Attend) -> "Tensor":
        """Hidden states after the last norm, `[T, D]`. Called once per step, no gradients."""

    def logits(self, hidden_RD: "Tensor") -> "Tensor":
        """`[R, V]` in float32 or the model's type, for the rows that are sampled; the caller's."""


@runtime_checkable
class PartsLogits(Protocol):
    """A model that can leave logits as ranks computed them. Optional: without it, all of them are
    gathered for every draw."""

    def logits_part(self, hidden_RD: "Tensor") -> LogitsPart:
        """As `Model.logits`, of this rank's tokens, which are neighbours and begin at a multiple of
        `PART_MULTIPLE`; all ranks together have each token once."""
