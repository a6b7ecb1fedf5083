"""Has kernels compiled by other processes that operations want to launch, and then looks whether
Triton finds them where it would compile them. Beside it, launches what must not be launched.

Run without TRITON_INTERPRET, with a cache of its own. There is no GPU, but Triton is told of one.
"""

import json
import threading
from typing import Any

import torch
import triton
import triton.language as tl
from pretended_driver import ARCH, Driver
from triton import knobs
from triton.runtime import driver

from jackfield.plugins.kernels.triton.add_rms_norm import TritonAddRmsNorm
from jackfield.plugins.kernels.triton.compile_ahead import CompileAhead
from jackfield.plugins.kernels.triton.compiling import Wanted, is_compiled
from jackfield.plugins.kernels.triton.noting import Notes, noted
from jackfield.plugins.kernels.triton.rms_norm import TritonRmsNorm
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.support import TritonConfig


@triton.jit
def foreign_kernel(x, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    tl.store(x + tl.arange(0, BLOCK), 0.0)


tuned_kernel = triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], [])(
    foreign_kernel
)


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


def compiled_ahead() -> dict[str, Any]:
    """Noted while they are launched, compiled meanwhile, and found by real launches."""
    before, found = [], []
    with CompileAhead() as ahead:

        def tell(wanted: Wanted) -> None:
            before.append(is_compiled(wanted))
            ahead.tell(wanted)

        notes = Notes(ARCH, tell)
        with noted(notes):
            launch_all()
        ahead.finish()
    after = [is_compiled(one) for one in notes.wanted]
    knobs.compilation.listener = lambda **told: found.append(told["cache_hit"])
    launch_all()
    knobs.compilation.listener = None
    return {"before": before, "after": after, "found": found}


def not_launched(told: Driver) -> dict[str, Any]:
    """What has been launched before is not launched while it is noted, whoever's it is."""
    x = torch.zeros(64, dtype=torch.float32)
    compiled = foreign_kernel[(1,)](x, BLOCK=16)
    launched = len(told.launched)
    notes = Notes(ARCH)
    other = threading.Thread(target=lambda: foreign_kernel[(1,)](x, BLOCK=16))
    with noted(notes):
        launch_all()
        foreign_kernel[(1,)](x, BLOCK=16)
        foreign_kernel[(1,)](x, BLOCK=64)
        tuned_kernel[(1,)](x)
        compiled[(1, 1, 1)](x)
        meanwhile = told.launched[launched:]
        other.start()
        other.join()
    others = told.launched[launched:]
    foreign_kernel[(1,)](x, BLOCK=16)
    return {"noted": len(notes.wanted), "foreign": sorted(notes.foreign), "meanwhile": meanwhile,
            "others": others, "tuned": bool(tuned_kernel.cache),
            "later": told.launched[launched + 1 :]}  # fmt: skip


def main() -> dict[str, Any]:
    told = Driver()
    driver.set_active(told)  # type: ignore[arg-type]
    ahead = compiled_ahead()
    return {**ahead, "launched": len(told.launched), **not_launched(told)}


if __name__ == "__main__":
    print(json.dumps(main()))
