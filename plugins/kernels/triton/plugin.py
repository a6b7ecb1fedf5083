"""The plugin, as the host finds it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jackfield.core.api.kernel import KernelPlugin
from jackfield.plugins.kernels.triton.support import Missing, TritonConfig, installed, interpreted

NAMES = (
    "attention",
    "rms_norm",
    "add_rms_norm",
    "rope",
    "silu_mul",
    "linear",
    "qk_norm_rope_write",
    "step_inputs",
    "sample",
    "sample_part",
    "experts",
    "route",
    "quant_matmul",
    "quant_experts",
    "quant_matmul_silu_mul",
    "all_reduce",
    "all_reduce_add_rms_norm",
)
"""What the plugin serves where Triton is installed. Products of many rows are cuBLAS's."""


class TritonKernels(KernelPlugin):
    """float32, float16 and bfloat16. Without Triton every operation says so and is passed over."""

    Config = TritonConfig

    def device_types(self) -> Sequence[str]:
        return ("cuda", "cpu") if self.config.interpret else ("cuda",)

    def rehearsal(self) -> AbstractContextManager[None] | None:
        if not installed() or interpreted():
            return None
        from jackfield.plugins.kernels.triton.rehearsal import rehearsal  # imports Triton

        return rehearsal()

    def operations(self) -> Mapping[str, Any]:
        if not installed():
            return dict.fromkeys(NAMES, Missing())
        from jackfield.plugins.kernels.triton.offer import offer  # imports Triton

        return offer(self.config)
