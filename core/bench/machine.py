"""How fast this device reads and multiplies, measured in about a second."""

from collections.abc import Callable
from itertools import product
from time import perf_counter
from typing import NamedTuple

import torch

from jackfield.core.bench.roofline import Machine

SECONDS_EACH = 0.4
BUFFER_BYTES = {"cpu": 256 * 2**20, "cuda": 4 * 2**30}
FREE_PARTS, PAGE = 4, 2**20
MATRICES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192)}


def measure_machine(device: torch.device, dtype: torch.dtype) -> Machine:
    """The best of many reads of a buffer that no cache holds, and of many square products.

    It is too low if other work had its share of the device meanwhile.
    """
    found = measure_ceilings(device, dtype)
    return Machine(found.bandwidth, found.flops)


class Ceilings(NamedTuple):
    """What a device does at best: bytes per second that are only read, bytes per second that are
    read or written by a copy, operations per second of products."""

    read: float
    copy: float
    flops: float

    @property
    def bandwidth(self) -> float:
        """The faster of the two."""
        return max(self.read, self.copy)


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """As `measure_machine`, one by one."""
    with torch.inference_mode():
        found = Ceilings(*_bandwidths(device), _flops(device, dtype))
    torch.cuda.empty_cache()  # does nothing where no GPU was used
    return found


def _bandwidths(device: torch.device) -> tuple[float, float]:
    """Of reading, and of copying, where each byte counts twice."""
    size = BUFFER_BYTES[device.type]
    if device.type == "cuda":  # a pool may have taken most of it
        size = min(size, torch.cuda.mem_get_info(device)[0] // FREE_PARTS // PAGE * PAGE)
    source = torch.zeros(size // 8, dtype=torch.int64, device=device)
    target = torch.empty_like(source)
    floats = source.view(torch.float32)
    third = SECONDS_EACH / 3
    # Which of them reads faster depends on the device.
    read = min(_best_seconds(one.sum, device, third) for one in (source, floats))
    return size / read, 2 * size / _best_seconds(lambda: target.copy_(source), device, third)


def _flops(device: torch.device, dtype: torch.dtype) -> float:
    """In `dtype`, or in float32 where that is faster: a kernel is free to widen its operands."""
    kinds = list(product(MATRICES[device.type], {dtype, torch.float32}))
    return max(_product_flops(*kind, device, SECONDS_EACH / len(kinds)) for kind in kinds)


def _product_flops(size: int, dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return float(2 * size**3 / _best_seconds(lambda: left @ right, device, seconds))


def _best_seconds(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    _timed(work, device)
    end = perf_counter() + seconds
    best = _timed(work, device)
    while perf_counter() < end:
        best = min(best, _timed(work, device))
    return best


def _timed(work: Callable[[], object], device: torch.device) -> float:
    started = perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - started
