"""Which devices and element types the kernels serve."""

from importlib.util import find_spec
from typing import Any

import torch

from jackfield.core.api.scheduler import PolicyConfig

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
CAPABILITY = (8, 0)
"""The oldest GPUs whose instructions the kernels may use: Ampere."""
ABSENT = "the package 'triton' is not installed; it comes with torch for CUDA, on Linux"


class TritonConfig(PolicyConfig):
    """interpret: serve a CPU through Triton's interpreter, very slow; for tests; needs
    TRITON_INTERPRET=1 in the environment."""

    interpret: bool = False


class Missing:
    """Stands for an operation where Triton is not installed."""

    def unsupported(self, spec: Any, device: torch.device) -> list[str]:
        return [ABSENT]

    def capturable(self, *limits: int) -> bool:
        return False


def installed() -> bool:
    """Whether Triton can be imported; finds out without importing it."""
    return find_spec("triton") is not None


def reasons(device: torch.device, dtype: torch.dtype, config: TritonConfig) -> list[str]:
    """Why the kernels cannot serve; empty = they can."""
    if not installed():
        return [ABSENT]
    found = _device(device, config)
    if dtype not in DTYPES:
        known = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        found.append(f"the kernels are made for {known}, not for {dtype}")
    return found


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the host, instead of being compiled."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def capability(device: torch.device) -> int:
    """Of the GPU that kernels are compiled for, 90 for 9.0; 0 where none are."""
    if interpreted() or device.type != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def num_processors(device: torch.device, elsewhere: int) -> int:
    """Multiprocessors of a GPU. elsewhere: how many the interpreter is said to have."""
    if device.type != "cuda":
        return elsewhere
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def architecture(device: torch.device) -> str:
    """As the tables of configurations name it. The interpreter takes the oldest one's."""
    major, minor = CAPABILITY
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def _device(device: torch.device, config: TritonConfig) -> list[str]:
    if device.type == "cpu":
        return _cpu(config)
    if device.type != "cuda" or torch.version.cuda is None:
        return [f"the kernels run on NVIDIA GPUs, not on {device.type}"]
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        return [
            f"the kernels need a GPU of compute capability {_dotted(CAPABILITY)} or more; "
            f"{device} has {_dotted(capability)}"
        ]
    return []


def _cpu(config: TritonConfig) -> list[str]:
    if not config.interpret:
        return ["the kernels run on NVIDIA GPUs, not on a CPU"]
    if not interpreted():
        return ["interpret = true needs TRITON_INTERPRET=1 in the environment"]
    return []


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
