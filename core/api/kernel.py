"""Kernel plugins: an operation table. Attention is required from someone, the rest from anyone.

Shape suffixes: T tokens of the step, S slices (one per sequence), N query heads, K key/value
heads, M heads of queries, keys and values together, H head size, W rotated pairs of a head, B
blocks of the longest sequence, P seats, U blocks that are new in a step, D model width, F
feed-forward width, I and O input and output width of a product, R rows that are sampled,
V vocabulary.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jackfield.core.api.collective import AllGather, AllReduce, AllReduceAddRmsNorm
from jackfield.core.api.draw import Sample as Sample
from jackfield.core.api.draw import SampleBatch as SampleBatch
from jackfield.core.api.draw import SamplePart
from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.experts import Experts, Route
from jackfield.core.api.latent import LatentSizes
from jackfield.core.api.operation import Operation as Operation
from jackfield.core.api.operation import OpSpec as OpSpec
from jackfield.core.api.scheduler import PolicyConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from jackfield.core.api.quant import QuantMatmul, QuantMatmulSiluMul
    from jackfield.core.api.quant_experts import QuantExperts


class KvSpec(NamedTuple):
    """What one layer group keeps per token: heads, head size, element type, block size.

    dtype: in which the model computes. window: how many of the last positions a query sees, itself
    included; None = all. encoding: how keys and values are stored; None = in `dtype`.
    latent: there is one key/value head that holds what all heads share; its size is `stored`.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: "torch.dtype"
    block_size: int
    window: int | None = None
    encoding: KvEncoding | None = None
    latent: LatentSizes | None = None


class KvTensor(NamedTuple):
    """One tensor of the pool. `shape` is that of one block; the block axis is put in front."""

    name: str
    shape: tuple[int, ...]
    dtype: "torch.dtype"


class KvLayout(NamedTuple):
    """The tensors that hold one layer's blocks.

    tile: positions that the kernel reads at once; blocks must be a multiple of it.
    prompt_alignment: positions; where a step has no room for all of a prompt, parts of it had
    better end at multiples. That is done where it costs little and no policy says otherwise.
    short_steps: decodes and positions; steps of at most so many decodes, none of them longer, are
    not launched like others, and have CUDA graphs of their own, with that as their `max_len`.
    """

    tensors: tuple[KvTensor, ...]
    tile: int = 1
    prompt_alignment: int = 1
    short_steps: tuple[int, int] = (0, 0)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block of one layer."""
        return sum(tensor.dtype.itemsize * prod(tensor.shape) for tensor in self.tensors)


class KvLayer(NamedTuple):
    """One layer's part of the pool, as its kernel laid it out, and how it attends.

    tensors: by the names of the layout, each `[num_blocks, *shape]`. scale: of the scores.
    encoding: how keys and values are stored; None = as they come. scales: what stored ones are
    multiplied with to get them back; None = nothing.
    """

    tensors: "Mapping[str, Tensor]"
    scale: float
    window: int | None = None
    scales: KvScales | None = None
    encoding: KvEncoding | None = None


class BatchLimits(NamedTuple):
    """The largest step: tokens, slices, blocks of one sequence."""

    max_tokens: int
    max_seqs: int
    max_blocks: int


class SliceExtent(NamedTuple):
    """A slice as the host knows it: its tokens of the step, and the sequence's positions after."""

    begin: int
    end: int
    length: int

    @property
    def past(self) -> int:
        """Positions of the sequence before the step."""
        return self.length - (self.end - self.begin)


class SharedPrefixes(NamedTuple):
    """Which decodes begin with the same blocks, so that those can be read once for all of them.

    All int32, one entry per decode, members of a group side by side: order_S: which slice it is.
    rank_S: its place within the group. size_S: members of the group. shared_S: positions that all
    of them have in common, a multiple of the block size and less than the shortest of them; 0 for
    a sequence that shares nothing, which is a group by itself.
    """

    order_S: "Tensor"
    rank_S: "Tensor"
    size_S: "Tensor"
    shared_S: "Tensor"


class AttnBatch(NamedTuple):
    """One step as attention sees it: a flat batch of slices of different lengths.

    query_start_S1 (int32): where each slice's tokens begin, and the end. lens_S (int32): positions
    of the sequence after this step, cached ones included, so the slice's last token is at
    lens - 1. block_tables_SB (int32): the sequence's blocks in order; entries past its length
    are undefined. slots_T (int64): block * block_size + offset where each token's keys and values
    go. The first num_decodes slices have one token each; `prompts` are the others, as the host
    knows them. shared: None if the host did not look for common beginnings.

    In a step that a CUDA graph holds all slices are decodes, tensors keep their addresses and
    change their content between replays, and max_len is the most that may come. It may be padded
    with slices of length 0 and slot -1: nothing is stored for them, and their output is 0.
    """

    query_start_S1: "Tensor"
    lens_S: "Tensor"
    block_tables_SB: "Tensor"
    slots_T: "Tensor"
    num_decodes: int
    max_query_len: int
    max_len: int
    prompts: tuple[SliceExtent, ...]
    shared: SharedPrefixes | None = None


AttnStep = Any
"""What `prepare` made of a batch; only the kernel that made it looks inside."""


class AttentionKernel(Protocol):
    """Attention on paged keys and values. All calls come from the thread that runs the model.
    One that serves latent layer groups is a `LatentAttentionKernel`, too."""

    def unsupported(self, spec: KvSpec, device: "torch.device") -> list[str]:
        """Reasons why this layer group cannot be served on the device; empty = fine."""

    def layout(self, spec: KvSpec) -> KvLayout:
        """How one block of one layer is stored. Called once per layer group at start."""

    def workspace(self, limits: BatchLimits) -> int:
        """Bytes of scratch memory that the kernel will hold at most, for sizing the pool."""

    def capturable(self, max_rows: int, max_len: int) -> bool:
        """Whether decodes may run inside a CUDA graph: `prepare`, `write` and `forward` are then
        captured at up to so many slices of up to so many positions, and replayed."""

    def prepare(self, batch: AttnBatch) -> AttnStep:
        """Once per step and layer group, before any layer. What it gives is used for all of them.
        A captured one is called once per graph; kernels that it launches are replayed."""

    def write(self, k_TKH: "Tensor", v_TKH: "Tensor", layer: KvLayer, step: AttnStep) -> None:
        """Store the step's keys and values in their slots. Called before `forward` of the layer."""

    def forward(
        self, q_TNH: "Tensor", layer: KvLayer, step: AttnStep, out_TNH: "Tensor"
    ) -> "Tensor":
        """Causal attention of every token to its sequence up to its own position; fills `out`.
        Heads of a query lie side by side; tokens may have other things between them."""


class RmsNorm(Operation, Protocol):
    """Root mean square norm over the last axis, computed in float32."""

    def __call__(self, x: "Tensor", weight: "Tensor", eps: float) -> "Tensor": ...


class AddRmsNorm(Operation, Protocol):
    """`residual += x`, then the norm of it. May work in place; use what it returns."""

    def __call__(
        self, x_TD: "Tensor", residual_TD: "Tensor", weight_D: "Tensor", eps: float
    ) -> "tuple[Tensor, Tensor]":
        """(normed, new residual)."""


class Rope(Operation, Protocol):
    """Rotates halves of the first 2 * width entries of each head (GPT-NeoX order).

    cos and sin (float32) are `[T, width]`, gathered once a step. May work in place.
    """

    def __call__(
        self, q_TNH: "Tensor", k_TKH: "Tensor", cos_TW: "Tensor", sin_TW: "Tensor"
    ) -> "tuple[Tensor, Tensor]": ...


class HeadNorms(NamedTuple):
    """Norms of each head's query and key, before they are rotated."""

    query_H: "Tensor"
    key_H: "Tensor"
    eps: float


class Projected(NamedTuple):
    """What one merged product made of a step's tokens, and what is to be done with it.

    qkv_TMH: all query heads, all key heads, all value heads. cos and sin: as for `Rope`.
    """

    qkv_TMH: "Tensor"
    num_heads: int
    num_kv_heads: int
    cos_TW: "Tensor"
    sin_TW: "Tensor"
    norms: HeadNorms | None = None


class QkNormRopeWrite(Operation, Protocol):
    """Norms and rotates queries and keys, and stores keys and values, in one go.

    Optional. It knows how attention lays keys and values out, so it only serves if the same plugin
    serves `attention`; without it `rms_norm`, `rope` and `AttentionKernel.write` do the same.
    """

    def __call__(self, projected: Projected, layer: KvLayer, slots_T: "Tensor") -> "Tensor":
        """The queries, [T, N, H]; may work in place. slots: as in `AttnBatch`."""


class SiluMul(Operation, Protocol):
    """`silu(gate) * up` of a tensor that holds gate and up side by side: [T, 2F] -> [T, F]."""

    def __call__(self, gate_up_T2F: "Tensor") -> "Tensor": ...


class Linear(Operation, Protocol):
    """A dense product with a weight that is packed once."""

    def pack(self, weight_OI: "Tensor", bias_O: "Tensor | None") -> Any:
        """The weight in the form `__call__` wants. Takes ownership: the caller drops its own."""

    def __call__(self, x_TI: "Tensor", packed: Any) -> "Tensor":
        """[T, I] -> [T, O]."""


class SeatState(NamedTuple):
    """What a device keeps per seat from step to step. The last row is of slices that are padding.

    last_token_P (int64): what was sampled last, as `Sample` gave it. tables_PB (int32): the
    sequence's blocks.
    """

    last_token_P: "Tensor"
    tables_PB: "Tensor"


class StepNews(NamedTuple):
    """What the host tells of a step, all int32. Slices of length 0 are padding.

    seats_S, starts_S, lengths_S: of each slice. query_start_S1: as in `AttnBatch`. new_first_S:
    from which entry on its block table changes; new_begin_S1: where these entries begin in
    new_blocks_U, and the end. ids_begin_S: where the ids of its tokens begin in ids_T, or -1 for a
    slice of one token, the last one that was sampled on its seat, without its mark.
    """

    seats_S: "Tensor"
    starts_S: "Tensor"
    lengths_S: "Tensor"
    query_start_S1: "Tensor"
    new_first_S: "Tensor"
    new_begin_S1: "Tensor"
    ids_begin_S: "Tensor"
    new_blocks_U: "Tensor"
    ids_T: "Tensor"


class StepTensors(NamedTuple):
    """Where a step's inputs go: ids_T, positions_T, slots_T (int64), lens_S and block_tables_SB
    (int32), as `ModelInputs` and `AttnBatch` want them."""

    ids_T: "Tensor"
    positions_T: "Tensor"
    slots_T: "Tensor"
    lens_S: "Tensor"
    block_tables_SB: "Tensor"


class StepInputs(Operation, Protocol):
    """Makes a step's inputs on the device from little news. Optional: without it the host does."""

    def __call__(
        self, news: StepNews, state: SeatState, block_size: int, into: StepTensors
    ) -> None:
        """Put the new blocks into `state`, then fill `into`. A token of padding gets id 0,
        position 0 and slot -1; its slice gets length 0. Called once per step, before the model."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The bound table: for each operation the first plugin of the stack that supports it."""

    attention: AttentionKernel
    rms_norm: RmsNorm
    add_rms_norm: AddRmsNorm
    rope: Rope
    silu_mul: SiluMul
    linear: Linear
    sample: Sample
    qk_norm_rope_write: QkNormRopeWrite | None = None
    step_inputs: StepInputs | None = None
    experts: Experts | None = None
    route: Route | None = None
    quant_matmul: "QuantMatmul | None" = None
    quant_experts: "QuantExperts | None" = None
    quant_matmul_silu_mul: "QuantMatmulSiluMul | None" = None
    all_reduce: AllReduce | None = None
    all_gather: AllGather | None = None
    all_reduce_add_rms_norm: AllReduceAddRmsNorm | None = None
    sample_part: SamplePart | None = None


OPERATIONS: Sequence[str] = tuple(Operations.__dataclass_fields__)
"""The names that a kernel plugin may provide."""
OPTIONAL_OPERATIONS = frozenset(
    {
        "qk_norm_rope_write",
        "step_inputs",
        "experts",
        "route",
        "quant_matmul",
        "quant_experts",
        "quant_matmul_silu_mul",
    }
)
"""Those that nobody need provide."""


class KernelPlugin:
    """Base of a kernel plugin. It is made once per device."""

    Config: type[PolicyConfig] = PolicyConfig

    def __init__(self, config: Any) -> None:
        self.config = config

    def device_types(self) -> Sequence[str]:
        """Types of devices that it is made for, such as "cuda"; empty = any. On others it is not
        asked for anything, and nobody is told that it does not serve."""
        return ()

    def rehearsal(self) -> AbstractContextManager[None] | None:
        """None, or a context in which steps of all kinds are run once, on a GPU, before any other.

        Nothing that is computed in it is used, so launches may be left out. A plugin can note there
        what its kernels need compiled, and have it compiled side by side until the end. Others'
        operations run on what is there then: a step's inputs are within bounds, all else may be
        garbage. An operation that raises ends the steps, but not the start.
        """
        return None

    def operations(self) -> Mapping[str, Any]:
        """Name of an operation -> what serves it. Called once, when the table is bound."""
        raise NotImplementedError
