"""Launches that begin before the kernel in front of them ends: programmatic dependent launch."""

from functools import cache
from typing import Any

import torch

from jackfield.plugins.kernels.triton.support import capability

SINCE = 90
"""The first compute capability that knows it."""


@cache
def early(device: torch.device) -> dict[str, Any]:
    """What a launch is given whose kernel calls `wait_for_previous`; older GPUs do not know the
    option."""
    known = capability(device) >= SINCE
    return {"EARLY": True, "launch_pdl": True} if known else {"EARLY": False}
