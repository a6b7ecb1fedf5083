"""All operations of the plugin. Importing this imports Triton."""

from collections.abc import Mapping
from typing import Any

from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.all_reduce import TritonAllReduce
from jackfield.plugins.kernels.triton.all_reduce_add_rms_norm import TritonAllReduceAddRmsNorm
from jackfield.plugins.kernels.triton.attention import TritonAttention
from jackfield.plugins.kernels.triton.experts import TritonExperts
from jackfield.plugins.kernels.triton.linear import TritonLinear
from jackfield.plugins.kernels.triton.qk_norm_rope_write import TritonQkNormRopeWrite
from jackfield.plugins.kernels.triton.quant_experts import TritonQuantExperts
from jackfield.plugins.kernels.triton.quant_matmul import TritonQuantMatmul
from jackfield.plugins.kernels.triton.quant_matmul_silu_mul import TritonQuantMatmulSiluMul
from jackfield.plugins.kernels.triton.rms_norm import TritonRmsNorm
from jackfield.plugins.kernels.triton.rope import TritonRope
from jackfield.plugins.kernels.triton.route import TritonRoute
from jackfield.plugins.kernels.triton.sample import TritonSample
from jackfield.plugins.kernels.triton.sample_part import TritonSamplePart
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.step_inputs import TritonStepInputs
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange


def offer(config: TritonConfig) -> Mapping[str, Any]:
    """Name of an operation -> what serves it."""
    exchange = Exchange(config)
    return {
        "attention": TritonAttention(config),
        "rms_norm": TritonRmsNorm(config),
        "add_rms_norm": TritonAddRmsNorm(config),
        "rope": TritonRope(config),
        "silu_mul": TritonSiluMul(config),
        "linear": TritonLinear(config),
        "qk_norm_rope_write": TritonQkNormRopeWrite(config),
        "step_inputs": TritonStepInputs(config),
        "sample": TritonSample(config),
        "sample_part": TritonSamplePart(config),
        "experts": TritonExperts(config),
        "route": TritonRoute(config),
        "quant_matmul": TritonQuantMatmul(config),
        "quant_experts": TritonQuantExperts(config),
        "quant_matmul_silu_mul": TritonQuantMatmulSiluMul(config),
        "all_reduce": TritonAllReduce(exchange),
        "all_reduce_add_rms_norm": TritonAllReduceAddRmsNorm(exchange, config),
    }
