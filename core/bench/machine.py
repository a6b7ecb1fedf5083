"""How fast this device reads and multiplies, measured in about a second."""

from collections.abc import Callable
from time import perf_counter

import torch

from jackfield.core.bench.roofline import Machine

SECONDS_EACH = 0.4
BUFFER_BYTES = {"cpu": 256 * 2**20, "cuda": 4 * 2**30}
MATRIX = {"cpu": 1024, "cuda": 8192}


def measure_machine(device: torch.device, dtype: torch.dtype) -> Machine:
    """The best of many reads of a buffer that no cache holds, and of many square products."""
    with torch.inference_mode():
        return Machine(_bandwidth(device), _flops(device, dtype))


def _bandwidth(device: torch.device) -> float:
    """The faster of reading, and copying, where each byte counts twice."""
    size = BUFFER_BYTES[device.type]
    source = torch.zeros(size // 8, dtype=torch.int64, device=device)
    target = torch.empty_like(source)
    read = size / _best_seconds(lambda: source.sum(), device)
    return max(read, 2 * size / _best_seconds(lambda: target.copy_(source), device))


def _flops(device: torch.device, dtype: torch.dtype) -> float:
    size = MATRIX[device.type]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return float(2 * size**3 / _best_seconds(lambda: left @ right, device))


def _best_seconds(work: Callable[[], object], device: torch.device) -> float:
    _timed(work, device)
    end = perf_counter() + SECONDS_EACH
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
