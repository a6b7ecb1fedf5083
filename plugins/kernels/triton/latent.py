"""Latent attention on a GPU: decodes in the absorbed form, prompts mostly with expanded heads.

Shape suffixes: S decodes, A tokens of prompts that are computed like decodes, N heads, H entries
that are stored of a token, R those of its shared vector, Q entries of a query, V of a value.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch, BatchLimits, KvLayer, KvSpec
from jackfield.core.api.latent import LatentHeads, LatentSizes
from jackfield.plugins.kernels.triton.attention_step import TritonStep
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.latent_decode import latent_decode, latent_scratch
from jackfield.plugins.kernels.triton.latent_plan import MOST_ABSORBED
from jackfield.plugins.kernels.triton.latent_prefill import LatentPlan, LatentPrefill
from jackfield.plugins.kernels.triton.prefill import upload
from jackfield.plugins.kernels.triton.prefill_plan import Slice

SIZE_MULTIPLE = 16
MAX_HEAD = 128
MAX_RANK = 512
SMALLEST_BLOCK = 8


class TritonLatent:
    """prefill: None = as it is shipped."""

    def __init__(self, configs: Configs, prefill: LatentPrefill | None = None) -> None:
        self.prefill = prefill or LatentPrefill()
        self._configs = configs

    def workspace(
        self, spec: KvSpec, limits: BatchLimits, device: torch.device, processors: int
    ) -> int:
        """Bytes of scratch at most for one layer group."""
        assert spec.latent is not None
        rows = limits._replace(max_seqs=limits.max_seqs + MOST_ABSORBED)
        prompts = self.prefill.workspace(spec, limits, device)
        return prompts + latent_scratch(spec, rows, processors)

    def forward(
        self, q_TNQ: Tensor, heads: LatentHeads, layer: KvLayer, step: TritonStep, out_TNV: Tensor
    ) -> Tensor:
        """Fills `out`."""
        count, prompts = step.batch.num_decodes, step.prefill
        if count:
            out_NSV = out_TNV[:count].transpose(0, 1)
            _decode(_absorbed([q_TNQ[:count]], heads), heads, layer, step, out_NSV)
        if prompts is not None and prompts.slices:
            plan = self.prefill.plan(prompts, heads, _sizes(q_TNQ, heads), q_TNQ.device)
            self.prefill.forward(q_TNQ, heads, layer, prompts, plan, out_TNV)
            if plan.absorbed:
                self._decode_slices(q_TNQ, heads, layer, step, plan, out_TNV)
        return out_TNV

    def _decode_slices(
        self,
        q_TNQ: Tensor,
        heads: LatentHeads,
        layer: KvLayer,
        step: TritonStep,
        plan: LatentPlan,
        out_TNV: Tensor,
    ) -> None:
        """Slices of prompts as so many decodes as they have tokens."""
        if plan.decodes is None:
            batch = _as_decodes(plan.absorbed, step.batch)
            plan.decodes = TritonStep(batch, self._configs, None)
        places = [slice(one.extent.begin, one.extent.end) for one in plan.absorbed]
        q_ANH = _absorbed([q_TNQ[place] for place in places], heads)
        out_NAV = out_TNV.new_empty(len(heads.keys_NPR), len(q_ANH), out_TNV.shape[2])
        _decode(q_ANH, heads, layer, plan.decodes, out_NAV)
        begin = 0
        for place in places:
            end = begin + place.stop - place.start
            out_TNV[place] = out_NAV[:, begin:end].transpose(0, 1)
            begin = end


def latent_reasons(spec: KvSpec) -> list[str]:
    """Why the kernels cannot serve a latent layer group; empty = they can."""
    sizes = spec.latent
    assert sizes is not None
    found = []
    if spec.num_kv_heads != 1 or spec.head_dim != sizes.stored:
        found.append(
            f"latent attention has one key/value head of {sizes.stored} entries, "
            f"not {spec.num_kv_heads} of {spec.head_dim}"
        )
    if spec.window is not None:
        found.append(f"latent attention is served without a window, not with one of {spec.window}")
    limits = {"rank": MAX_RANK, "rotated": MAX_HEAD, "plain": MAX_HEAD, "value": MAX_HEAD}
    for name, most in limits.items():
        size = getattr(sizes, name)
        if size % SIZE_MULTIPLE or not 0 < size <= most:
            found.append(
                f"of latent attention, the size `{name}` must be a multiple of {SIZE_MULTIPLE} "
                f"up to {most}, not {size}"
            )
    if spec.block_size < SMALLEST_BLOCK or spec.block_size & (spec.block_size - 1):
        found.append(
            f"the block size must be a power of two from {SMALLEST_BLOCK} on, "
            f"not {spec.block_size}; set cache.paged.block_size"
        )
    return found


def _sizes(q_TNQ: Tensor, heads: LatentHeads) -> LatentSizes:
    plain, (_, rank, value) = heads.keys_NPR.shape[1], heads.values_NRV.shape
    return LatentSizes(rank, q_TNQ.shape[2] - plain, plain, value)


def _absorbed(parts: Sequence[Tensor], heads: LatentHeads) -> Tensor:
    """Queries of stored vectors; the product goes where it is wanted, without a copy."""
    _, plain, rank = heads.keys_NPR.shape
    _, count, query = parts[0].shape
    shape = sum(map(len, parts)), count, rank + query - plain
    q_SNH = parts[0].new_empty(shape)
    begin = 0
    for q_SNQ in parts:
        place = q_SNH[begin : begin + len(q_SNQ)]
        q_NSP, q_NSR = q_SNQ[..., :plain].transpose(0, 1), place[..., :rank].transpose(0, 1)
        torch.bmm(q_NSP, heads.keys_NPR, out=q_NSR)
        place[..., rank:] = q_SNQ[..., plain:]
        begin += len(q_SNQ)
    return q_SNH


def _decode(
    q_SNH: Tensor, heads: LatentHeads, layer: KvLayer, step: TritonStep, out_NSV: Tensor
) -> None:
    out_SNR = q_SNH.new_empty(*q_SNH.shape[:2], heads.merged_NXR.shape[2])
    latent_decode(q_SNH, layer, step, out_SNR)
    torch.bmm(out_SNR.transpose(0, 1), heads.values_NRV, out=out_NSV)


def _as_decodes(slices: Sequence[Slice], batch: AttnBatch) -> AttnBatch:
    """Each token as a sequence that ends with it."""
    rows = list(chain.from_iterable(_rows(one) for one in slices))
    count, longest = len(rows), max(length for _, length in rows)
    table = upload([(*row, *(0,) * 6) for row in rows], batch.lens_S.device)
    tables_SB = batch.block_tables_SB.index_select(0, table[:, 0].contiguous())
    starts_S1 = torch.arange(count + 1, dtype=torch.int32, device=table.device)
    lens_S = table[:, 1].contiguous()
    return AttnBatch(starts_S1, lens_S, tables_SB, batch.slots_T, count, 1, longest, ())


def _rows(one: Slice) -> Iterator[tuple[int, int]]:
    """Of each token: its row of the block tables, and how many positions it sees."""
    past = one.extent.past
    for offset in range(one.tokens):
        yield one.row, past + offset + 1
