"""Model plugins: an architecture as a class that runs on an operation table.

Shape suffixes: T tokens of the step, N query heads, K key/value heads, H head size, D width,
R rows whose logits are wanted, V vocabulary.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jackfield.core.api.kernel import Operations, Projected

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
    is wanted. num_parameters: weights that take part in a product or a look-up. value_dim: as in
    `KvSpec`.
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
    value_dim: int | None = None


class ModelInputs(NamedTuple):
    """One step's tokens. ids_T and positions_T are int64.

    prompt_lens_T (int64): the length of the prompt that each token's sequence started with; only
    for models whose spec asks for it.
    """

    ids_T: "Tensor"
    positions_T: "Tensor"
    prompt_lens_T: "Tensor | None" = None


class Attend(Protocol):
    """Attention as an argument: stores keys and values, attends, returns `[T, N, H]`, with H that
    of the values."""

    def __call__(
        self, layer: int, q_TNH: "Tensor", k_TKH: "Tensor", v_TKH: "Tensor"
    ) -> "Tensor":
        """Of queries and keys that the model has rotated, or that need not be. Latent attention
        gives values that are a view of the keys' first entries."""

    def projected(self, layer: int, projected: Projected) -> "Tensor":
        """The same from a merged product: norms, rotation and storing are one operation where a
        kernel offers that."""


class Shard(NamedTuple):
    """Which part of each weight this process holds."""

    rank: int = 0
    size: int = 1


class Split(Enum):
    """Along which axis a weight is divided among ranks."""

    NONE = None
    ROWS = 0
    COLUMNS = 1


class Weights(Protocol):
    """Where a model takes its tensors from: pulled by name, one at a time, while it is built.

    A tensor that the model never takes, and did not `ignore`, is an error that names it.
    """

    def take(self, name: str, shape: tuple[int, ...], split: Split = Split.NONE) -> "Tensor":
        """This rank's part of the tensor, on the device, in the model's dtype.

        shape is that of the whole tensor. Raises `CheckpointError` that names file and tensor if
        it is missing, has another shape, or is cut short.
        """

    def take_exact(self, name: str, shape: tuple[int, ...]) -> "Tensor":
        """As `take`, the whole tensor in float32: for few numbers that the model's type would round
        too much."""

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds the tensor."""

    def ignore(self, pattern: str) -> None:
        """Names that match the regular expression are known to be of no use."""


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
