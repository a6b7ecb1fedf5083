"""Plain torch for every device and element type: the reference, and the last of every stack."""

from collections.abc import Mapping
from typing import Any

from jackfield.core.api.kernel import KernelPlugin
from jackfield.plugins.kernels.torch_ops.add_rms_norm import TorchAddRmsNorm
from jackfield.plugins.kernels.torch_ops.attention import TorchAttention
from jackfield.plugins.kernels.torch_ops.collectives import TorchAllGather, TorchAllReduce
from jackfield.plugins.kernels.torch_ops.experts import TorchExperts
from jackfield.plugins.kernels.torch_ops.linear import TorchLinear
from jackfield.plugins.kernels.torch_ops.quant_experts import TorchQuantExperts
from jackfield.plugins.kernels.torch_ops.quant_matmul import TorchQuantMatmul
from jackfield.plugins.kernels.torch_ops.rms_norm import TorchRmsNorm
from jackfield.plugins.kernels.torch_ops.rope import TorchRope
from jackfield.plugins.kernels.torch_ops.sample import TorchSample
from jackfield.plugins.kernels.torch_ops.sample_part import TorchSamplePart
from jackfield.plugins.kernels.torch_ops.silu_mul import TorchSiluMul
from jackfield.plugins.kernels.torch_ops.step_inputs import TorchStepInputs


class TorchKernels(KernelPlugin):
    """All operations; none that a model cannot do without refuses a device."""

    def operations(self) -> Mapping[str, Any]:
        return {
            "attention": TorchAttention(),
            "rms_norm": TorchRmsNorm(),
            "add_rms_norm": TorchAddRmsNorm(),
            "rope": TorchRope(),
            "silu_mul": TorchSiluMul(),
            "linear": TorchLinear(),
            "sample": TorchSample(),
            "step_inputs": TorchStepInputs(),
            "experts": TorchExperts(),
            "quant_matmul": TorchQuantMatmul(),
            "quant_experts": TorchQuantExperts(),
            "all_reduce": TorchAllReduce(),
            "all_gather": TorchAllGather(),
            "sample_part": TorchSamplePart(),
        }
