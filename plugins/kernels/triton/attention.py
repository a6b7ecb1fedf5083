"""Paged attention on a GPU: decodes by a list of work made on the device, prefills by tiles.

A layer's keys and values are `[num_blocks, K, block_size, H]`, so those of one block and head lie
side by side.
"""

import torch
from torch import Tensor

from jackfield.core.api.kernel import (
    AttnBatch,
    AttnStep,
    BatchLimits,
    KvLayer,
    KvLayout,
    KvSpec,
    KvTensor,
)
from jackfield.core.api.latent import LatentHeads, LatentProjected
from jackfield.plugins.kernels.triton.attention_step import FEW, INTERPRETED, SHORT, TritonStep
from jackfield.plugins.kernels.triton.beside import Beside
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.decode import decode_attention, plan_decodes
from jackfield.plugins.kernels.triton.encode import encoding_reasons
from jackfield.plugins.kernels.triton.kv_write import kv_write, latent_write
from jackfield.plugins.kernels.triton.latent import TritonLatent, latent_reasons
from jackfield.plugins.kernels.triton.latent_gather import LATENT
from jackfield.plugins.kernels.triton.latent_write import norm_rope_write
from jackfield.plugins.kernels.triton.prefill import TritonPrefill
from jackfield.plugins.kernels.triton.support import TritonConfig, num_processors, reasons
from jackfield.plugins.kernels.triton.work_list import capacity_of

HEAD_MULTIPLE = 16
MAX_HEAD = 256
MAX_GROUP = 64
SMALLEST_BLOCK = 8


class TritonAttention:
    """All that depends on lengths is computed on the device, so decodes may be captured."""

    def __init__(self, config: TritonConfig) -> None:
        self._config = config
        self._configs = Configs("decode")
        self._prefill = TritonPrefill()
        self._specs: list[KvSpec] = []
        self._beside = Beside()
        self._latent = TritonLatent(self._configs)

    @property
    def notes(self) -> list[str]:
        """Why long prompts do not take the dense route, or how they do; told at start."""
        return [*self._prefill.notes, *self._latent.prefill.dense.notes]

    def unsupported(self, spec: KvSpec, device: torch.device) -> list[str]:
        found = reasons(device, spec.dtype, self._config)
        shapes = _shape_reasons(spec) if spec.latent is None else latent_reasons(spec)
        return [*found, *shapes, *encoding_reasons(spec.encoding)]

    def layout(self, spec: KvSpec) -> KvLayout:
        self._specs.append(spec)
        dtype = spec.dtype if spec.encoding is None else spec.encoding.dtype
        shape = (spec.num_kv_heads, spec.block_size, spec.head_dim)
        if spec.latent is not None:
            alignment = self._latent.prefill.dense.alignment(spec, _device())
            return KvLayout((KvTensor(LATENT, shape, dtype),), SMALLEST_BLOCK, alignment)
        tensors = (KvTensor("k", shape, dtype), KvTensor("v", shape, dtype))
        alignment = self._prefill.alignment(spec, _device())
        return KvLayout(tensors, SMALLEST_BLOCK, alignment, (FEW, SHORT))

    def workspace(self, limits: BatchLimits) -> int:
        device = _device()
        processors = num_processors(device, INTERPRETED)
        latent = {spec for spec in self._specs if spec.latent is not None}
        if latent:
            return max(self._latent.workspace(spec, limits, device, processors) for spec in latent)
        specs = set(self._specs)
        prefill = (self._prefill.workspace(spec, limits, device) for spec in specs)
        decodes = sum(_scratch(spec, limits, processors) for spec in specs)
        return decodes + max(prefill, default=0)

    def capturable(self, max_rows: int, max_len: int) -> bool:
        return True

    def prepare(self, batch: AttnBatch) -> AttnStep:
        prefill = self._prefill.prepare(batch) if batch.prompts else None
        return TritonStep(batch, self._configs, prefill)

    def write(self, k_TKH: Tensor, v_TKH: Tensor, layer: KvLayer, step: AttnStep) -> None:
        if LATENT in layer.tensors:
            latent_write(k_TKH, layer, step.batch.slots_T)
            return
        kv_write(k_TKH, v_TKH, layer, step.batch.slots_T)

    def forward(self, q_TNH: Tensor, layer: KvLayer, step: AttnStep, out_TNH: Tensor) -> Tensor:
        if step.batch.num_decodes:
            self._decode(q_TNH, layer, step, out_TNH)
        if step.prefill is not None:
            self._prefill.forward(q_TNH, layer, step.prefill, out_TNH)
            if step.batch.num_decodes and step.prefill.is_large:
                self._beside.join(q_TNH.device)
        return out_TNH

    def write_latent(self, projected: LatentProjected, layer: KvLayer, step: AttnStep) -> Tensor:
        return norm_rope_write(projected, layer, step.batch.slots_T)

    def forward_latent(
        self, q_TNQ: Tensor, heads: LatentHeads, layer: KvLayer, step: AttnStep, out_TNV: Tensor
    ) -> Tensor:
        return self._latent.forward(q_TNQ, heads, layer, step, out_TNV)

    def _decode(self, q_TNH: Tensor, layer: KvLayer, step: AttnStep, out_TNH: Tensor) -> None:
        queries = plan_decodes(q_TNH, layer, step)
        if step.prefill is None or not step.prefill.is_large:
            decode_attention(queries, layer, step, out_TNH, self._beside)
            return
        with self._beside(q_TNH.device):
            decode_attention(queries, layer, step, out_TNH, self._beside, alone=False)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _shape_reasons(spec: KvSpec) -> list[str]:
    found = []
    if spec.head_dim % HEAD_MULTIPLE or not 0 < spec.head_dim <= MAX_HEAD:
        found.append(
            f"the head size must be a multiple of {HEAD_MULTIPLE} up to {MAX_HEAD}, "
            f"not {spec.head_dim}"
        )
    if spec.num_heads % spec.num_kv_heads or spec.num_heads > MAX_GROUP * spec.num_kv_heads:
        found.append(
            f"each key/value head must serve the same number of query heads, {MAX_GROUP} at most; "
            f"there are {spec.num_kv_heads} and {spec.num_heads}"
        )
    if spec.block_size < SMALLEST_BLOCK or spec.block_size & (spec.block_size - 1):
        found.append(
            f"the block size must be a power of two from {SMALLEST_BLOCK} on, "
            f"not {spec.block_size}; set cache.paged.block_size"
        )
    return found


def _scratch(spec: KvSpec, limits: BatchLimits, processors: int) -> int:
    """Partial results, once more for common beginnings."""
    pieces = 2 * capacity_of(limits.max_seqs, spec.num_kv_heads, processors)
    return pieces * (spec.num_heads * (spec.head_dim + 1) * 4 + 64)
