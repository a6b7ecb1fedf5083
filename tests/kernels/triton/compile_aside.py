"""Has kernels compiled by other processes that operations want to launch, and then looks whether
Triton finds them where it would compile them.

Run without TRITON_INTERPRET, with a cache of its own. There is no GPU, but Triton is told of one.
"""

import json
from typing import Any

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.compiling import is_compiled
from jackfield.plugins.kernels.triton.rehearsal import FEW, compile_all, noted
from jackfield.plugins.kernels.triton.rms_norm import TritonRmsNorm
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.support import TritonConfig

ARCH = 90


class Told:
    """What Triton asks a driver."""

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", ARCH, 32)

    def get_current_stream(self, device: int) -> int:
        return 0


def launch_all() -> None:
    """Several kernels, each more than once."""
    config = TritonConfig()
    norm, add_norm, gate = TritonRmsNorm(config), TritonAddRmsNorm(config), TritonSiluMul(config)
    for _ in range(3):
        for width in (64, 256):
            x = torch.zeros(3, width, dtype=torch.bfloat16)
            norm(x, x[0], 1e-6)
            add_norm(x, x, x[0], 1e-6)
            gate(x)


def main() -> dict[str, Any]:
    """What was wanted, compiled before and after, and found by Triton's own launches."""
    driver.set_active(Told())  # type: ignore[arg-type]
    with noted(ARCH) as notes:
        launch_all()
    before = [is_compiled(one) for one in notes.wanted]
    compile_all(notes.wanted)
    after = [is_compiled(one) for one in notes.wanted]
    found: list[bool] = []
    knobs.compilation.listener = lambda **told: found.append(told["cache_hit"])
    try:
        launch_all()
    except Exception as error:  # the first launch that is real finds no GPU
        stopped = type(error).__name__
    return {"wanted": len(before), "before": before, "after": after, "found": found,
            "stopped": stopped}  # fmt: skip


if __name__ == "__main__":
    assert FEW <= 6
    print(json.dumps(main()))
