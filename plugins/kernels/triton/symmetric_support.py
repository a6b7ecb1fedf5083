"""Why ranks cannot read each other's memory. All of them come to the same answer."""

import torch

from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.support import TritonConfig, num_processors, reasons
from jackfield.plugins.kernels.triton.symmetric import Sizes

MOST_RANKS = 8


def sizes_of(configs: Configs, size: int, device: torch.device) -> Sizes:
    """What the table says for so many ranks."""
    found = configs.find(f"ranks_{power_of_two(size)}", torch.uint8, device)
    return Sizes(found["ONE"], found["TWO"], found["PROGRAMS"])


def apart(spec: OpSpec, device: torch.device, config: TritonConfig, configs: Configs) -> list[str]:
    """Empty = they can."""
    if device.type != "cuda":
        return ["ranks read each other's memory on NVIDIA GPUs only"]
    found, ranks = reasons(device, spec.dtype, config), spec.ranks
    if found or ranks is None:
        return found
    if ranks.hosts > 1:
        return [f"ranks on {ranks.hosts} hosts cannot read each other's memory"]
    if ranks.size > MOST_RANKS:
        return [f"it sums over up to {MOST_RANKS} ranks, not over {ranks.size}"]
    return _of_devices(ranks.size, sizes_of(configs, ranks.size, device).programs)


def _of_devices(count: int, programs: int) -> list[str]:
    """Ranks of one host have its first GPUs, and see all of them."""
    for one in range(count):
        device = torch.device("cuda", one)
        for other in range(count):
            if one != other and not torch.cuda.can_device_access_peer(one, other):
                return [f"GPU {one} cannot access the memory of GPU {other}"]
        processors = num_processors(device, programs)
        if processors < programs:
            return [
                f"its {programs} programs must run at once, and GPU {one} has {processors} "
                f"multiprocessors"
            ]
    return []
