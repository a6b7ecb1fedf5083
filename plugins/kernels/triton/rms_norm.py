"""Root mean square norm."""

import triton
import triton.language as tl
from torch import Tensor

from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.early import early, wait_for_previous
from jackfield.plugins.kernels.triton.launch import power_of_two, row_config, rows_of
from jackfield.plugins.kernels.triton.operation import TritonOperation
from jackfield.plugins.kernels.triton.support import TritonConfig


@triton.jit
def root_mean_square(x, width, eps):
    """1 / the root of the mean square of each row of a float32 tile whose padding is 0."""
    return tl.rsqrt(tl.sum(x * x, 1) / width + eps)[:, None]


@triton.jit(do_not_specialize=["rows"])
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rows,
    outer_stride,
    inner_stride,
    eps,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (column < WIDTH)
    where = row // INNER * outer_stride + row % INNER * inner_stride
    weight = tl.load(weight_ptr + column, column < WIDTH, other=0.0).to(tl.float32)
    wait_for_previous(EARLY)
    x = tl.load(x_ptr + where + column, mask, other=0.0).to(tl.float32)
    out = x * root_mean_square(x, WIDTH, eps) * weight
    tl.store(out_ptr + row * WIDTH + column, out.to(out_ptr.dtype.element_ty), mask)


class TritonRmsNorm(TritonOperation):
    """Computed and scaled in float32, rounded once. Strided heads are read in place."""

    def __init__(self, config: TritonConfig) -> None:
        super().__init__(config)
        self._configs = Configs("rms_norm")

    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = x.new_empty(x.shape)
        x, outer, inner, outer_stride, inner_stride = rows_of(x)
        rows, width = outer * inner, x.shape[-1]
        config = row_config(self._configs, rows, width, x)
        if rows == 0:
            return out
        rms_norm_kernel[(triton.cdiv(rows, config["ROWS"]),)](
            x,
            weight,
            out,
            rows,
            outer_stride,
            inner_stride,
            float(eps),
            INNER=inner,
            WIDTH=width,
            BLOCK=power_of_two(width),
            **config,
            **early(out.device),
        )
        return out
