"""Launches that begin before the kernel in front of them ends: programmatic dependent launch."""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.support import capability

SINCE = 90
"""The first compute capability that knows it."""


@triton.jit
def wait_for_previous(EARLY: tl.constexpr):
    """Lets the next launch begin, then waits until all is written that ran before. Nothing that
    another kernel writes may be read, and nothing written, before this."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@cache
def early(device: torch.device) -> dict[str, Any]:
    """What a launch of a kernel that does so is given; older GPUs do not know the option."""
    known = capability(device) >= SINCE
    return {"EARLY": True, "launch_pdl": True} if known else {"EARLY": False}
