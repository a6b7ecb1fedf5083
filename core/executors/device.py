"""Which device, which element type, how much memory."""

import os
from pathlib import Path

import torch

from jackfield.core.api import ConfigError
from jackfield.core.kv.sizing import Memory

HALF = ("bfloat16", "float16")
MEMINFO = Path("/proc/meminfo")


def choose_device(name: str) -> torch.device:
    """ "auto" is the first GPU, or the CPU. Raises `ConfigError` for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f'engine.device is {name!r}; use "auto", "cpu" or "cuda"') from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"engine.device is {name!r}, but torch finds no GPU; use device cpu")
    return device


def device_of_rank(name: str, rank: int, size: int) -> torch.device:
    """Of the ranks of one host each has a GPU of its own, which becomes the thread's current one.
    On a CPU they share it. Raises `ConfigError` if there are too few."""
    device = choose_device(name)
    if device.type != "cuda" or size == 1:
        return device
    if device.index is not None:
        raise ConfigError(
            f"engine.device is {name!r}, one GPU for {size} ranks; say 'cuda', and choose GPUs by "
            f"CUDA_VISIBLE_DEVICES"
        )
    count = torch.cuda.device_count()
    if count < size:
        raise ConfigError(
            f"each of the {size} ranks of this host needs a GPU, and torch finds {count}; lower "
            f"tensor_parallel_size, or spread the ranks over more nodes"
        )
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    return device


def choose_dtype(wanted: str, stored: str | None, device: torch.device) -> torch.dtype:
    """The configured type, else the checkpoint's, unless the device would compute it slowly."""
    if wanted != "auto":
        return _named(wanted)
    if stored not in HALF:
        return torch.float32
    if device.type == "cpu":
        fast = stored == "bfloat16" and torch.cpu._is_avx512_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    return _named(stored)


def _named(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def set_threads(wanted: int | None, sharers: int = 1) -> None:
    """Threads of CPU products: as configured, else one per core this process may use, divided
    among the processes that share them."""
    torch.set_num_threads(wanted or max(len(os.sched_getaffinity(0)) // sharers, 1))


def memory_of(device: torch.device) -> Memory:
    """All memory of the device, and what is free now."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Memory(total, free, torch.cuda.memory_reserved(device))
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    return Memory(total, _available(total))


def _available(total: int) -> int:
    if not MEMINFO.exists():
        return total
    for line in MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return total
