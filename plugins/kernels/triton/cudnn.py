"""cuDNN's attention through torch, and the trial that finds out how it takes grouped heads.

The shape suffixes are those of the dense route.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from jackfield.plugins.kernels.triton.dense_call import Attend
from jackfield.plugins.kernels.triton.gather import Attended

ROWS = 256
"""Rows of the trial; it has twice as many keys where it is not causal."""
TOLERANCE = 2e-2
"""Between half-precision results of inputs that are near 1 and those in float32."""


def grouped(q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float) -> Attended:
    """Fewer heads of keys and values than of queries, as they are."""
    out, lse = _cudnn(q_NSH[None], k_KLH[None], v_KLH[None], causal, scale)
    return out[0], lse[0]


def batched(q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float) -> Attended:
    """Groups as a batch whose heads all have the same keys and values."""
    q_KGSH = q_NSH.unflatten(0, (len(k_KLH), -1))
    group = q_KGSH.shape[1]
    k_KGLH, v_KGLH = (x[:, None].expand(-1, group, -1, -1) for x in (k_KLH, v_KLH))
    out, lse = _cudnn(q_KGSH, k_KGLH, v_KGLH, causal, scale)
    return out.flatten(0, 1), lse.flatten(0, 1)


def repeated(q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float) -> Attended:
    """Keys and values copied for each head of queries."""
    group = len(q_NSH) // len(k_KLH)
    k_NLH, v_NLH = (x.repeat_interleave(group, 0) for x in (k_KLH, v_KLH))
    return grouped(q_NSH, k_NLH, v_NLH, causal, scale)


def padded(q_NSH: Tensor, k_KLH: Tensor, v_KLV: Tensor, causal: bool, scale: float) -> Attended:
    """Values made as long as keys."""
    value = v_KLV.shape[2]
    out_NSH, lse_NS = grouped(q_NSH, k_KLH, pad(v_KLV, (0, k_KLH.shape[2] - value)), causal, scale)
    return out_NSH[..., :value], lse_NS


WAYS: Mapping[str, Attend] = {"grouped": grouped, "batched": batched, "repeated": repeated}
"""From the cheapest on."""
WAYS_BESIDE: Mapping[str, Attend] = {"grouped": grouped, "padded": padded}
"""Where values have sizes of their own."""


def find(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    notes: list[str],
    ways: Mapping[str, Attend] | None = None,
    value_dim: int | None = None,
) -> Attend | None:
    """The first way that gives what it should. Why others do not is added to `notes`. value_dim: of
    values that lie beside keys; None = as keys, apart from them."""
    size = head_dim if value_dim is None else f"{head_dim} and {value_dim}"
    name = f"{heads}/{kv_heads} heads of {size}, {dtype}"
    if ways is None:
        ways = WAYS if value_dim is None else WAYS_BESIDE
    if dtype not in (torch.float16, torch.bfloat16):
        notes.append(f"cuDNN attention for {name}: float16 and bfloat16 only")
        return None
    for way, attend in ways.items():
        reason = trial(attend, heads, kv_heads, head_dim, dtype, device, value_dim)
        if reason is None:
            return attend
        notes.append(f"cuDNN attention, {way} heads, for {name}: {reason}")
    notes.append(f"cuDNN attention does not serve {name}; long prompts go to the Triton kernel")
    return None


def trial(
    attend: Attend,
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: Any,
    value_dim: int | None = None,
) -> str | None:
    """What is wrong with a way, tried on small inputs laid out as real ones; None = nothing."""
    generator = torch.Generator(device).manual_seed(0)
    options: dict[str, Any] = {"dtype": dtype, "device": device, "generator": generator}
    merged = torch.randn(ROWS, heads + 2 * kv_heads, head_dim, **options)
    q_NSH = merged[:, :heads].transpose(0, 1)
    room = torch.randn(2, kv_heads, 2 * ROWS, head_dim, **options)
    for keys, causal in ((ROWS, True), (2 * ROWS, False)):
        k_KLH, v_KLH = room[0, :, :keys].contiguous(), room[1, :, :keys].contiguous()
        if value_dim is not None:
            k_KLH, v_KLH = _beside(k_KLH, v_KLH[..., :value_dim])
        try:
            found = attend(q_NSH, k_KLH, v_KLH, causal, head_dim**-0.5)
            reason = _difference(found, reference(q_NSH, k_KLH, v_KLH, causal, head_dim**-0.5))
        except RuntimeError as error:
            reason = str(error).splitlines()[0][:200]
        if reason is not None:
            return f"{'causal' if causal else 'all keys seen'}: {reason}"
    return None


def _beside(k_KLH: Tensor, v_KLV: Tensor) -> tuple[Tensor, Tensor]:
    """Position by position, each head's value and key, as latent attention has them."""
    value = v_KLV.shape[2]
    both_LKX = torch.cat([v_KLV, k_KLH], 2).transpose(0, 1).contiguous()
    return both_LKX[..., value:].transpose(0, 1), both_LKX[..., :value].transpose(0, 1)


def reference(q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float) -> Attended:
    """The same in float32, with all scores in memory."""
    group = len(q_NSH) // len(k_KLH)
    k_NLH, v_NLH = (x.float().repeat_interleave(group, 0) for x in (k_KLH, v_KLH))
    scores_NSL = q_NSH.float() @ k_NLH.transpose(1, 2) * scale
    if causal:
        rows = scores_NSL.shape[1]
        hidden_SL = torch.ones(rows, rows, dtype=torch.bool, device=q_NSH.device).triu(1)
        scores_NSL = scores_NSL.masked_fill(hidden_SL, float("-inf"))
    out_NSH = scores_NSL.softmax(-1) @ v_NLH
    return out_NSH.to(q_NSH.dtype), scores_NSL.logsumexp(-1)


def _difference(found: Attended, wanted: Attended) -> str | None:
    for name, x, y in zip(("the result", "the logarithm of the sums"), found, wanted, strict=True):
        if x.shape != y.shape:
            return f"{name} has the shape {tuple(x.shape)}, not {tuple(y.shape)}"
        worst = float((x.float() - y.float()).abs().max())
        if not worst <= TOLERANCE:
            return f"{name} is off by {worst:g}"
    return None


def _cudnn(q_BNSH: Tensor, k_BKLH: Tensor, v_BKLH: Tensor, causal: bool, scale: float) -> Attended:
    """By its operator, since only that gives the logarithm of the sums; B sequences."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention.default(
        q_BNSH, k_BKLH, v_BKLH, None, True, 0.0, causal, False, scale=scale
    )
    # There may be an axis of length 1 behind those of the logarithm.
    return found[0], found[1].view(q_BNSH.shape[:3])
