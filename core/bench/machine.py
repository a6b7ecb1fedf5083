"""How fast this device reads and multiplies, measured in about a second."""

from collections.abc import Callable
from itertools import product
from time import perf_counter

import torch

from jackfield.core.bench.roofline import Machine

SECONDS_EACH = 0.4
BUFFER_BYTES = {"cpu": 256 * 2**20, "cuda": 4 * 2**30}
MATRICES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192)}


def measure_machine(device: torch.device, dtype: torch.dtype) -> Machine:
    """The best of many reads of a buffer that no cache holds, and of many square products.

    It is too low if other work had its share of the device meanwhile.
    """
    with torch.inference_mode():
        return Machine(_bandwidth(device), _flops(device, dtype))


def _bandwidth(device: torch.device) -> float:
    """The faster of reading, and copying, where each byte counts twice."""
    size = BUFFER_BYTES[device.type]
    source = torch.zeros(size // 8, dtype=torch.int64, device=device)
    target = torch.empty_like(source)
    half = SECONDS_EACH / 2
    read = size / _best_seconds(lambda: source.sum(), device, half)
    return max(read, 2 * size / _best_seconds(lambda: target.copy_(source), device, half))


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
