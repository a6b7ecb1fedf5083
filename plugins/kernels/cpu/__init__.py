"""C kernels for CPUs, compiled on the machine that runs them at first use."""

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.core.api.kernel import KernelPlugin
from jackfield.plugins.kernels.cpu.add_rms_norm import CpuAddRmsNorm
from jackfield.plugins.kernels.cpu.attention import CpuAttention
from jackfield.plugins.kernels.cpu.library import Library
from jackfield.plugins.kernels.cpu.linear import CpuLinear
from jackfield.plugins.kernels.cpu.rms_norm import CpuRmsNorm
from jackfield.plugins.kernels.cpu.rope import CpuRope
from jackfield.plugins.kernels.cpu.sample import CpuSample
from jackfield.plugins.kernels.cpu.silu_mul import CpuSiluMul


class CpuKernels(KernelPlugin):
    """Float32 and bfloat16. Without a C compiler every operation says so and is passed over."""

    def device_types(self) -> Sequence[str]:
        return ("cpu",)

    def operations(self) -> Mapping[str, Any]:
        library = Library()
        return {
            "attention": CpuAttention(library),
            "rms_norm": CpuRmsNorm(library),
            "add_rms_norm": CpuAddRmsNorm(library),
            "rope": CpuRope(library),
            "silu_mul": CpuSiluMul(library),
            "linear": CpuLinear(library),
            "sample": CpuSample(library),
        }
