"""A driver that tells Triton of a GPU that is not there. Launches are counted."""

from typing import Any

from triton.backends.compiler import GPUTarget

ARCH = 90


class Utils:
    """What is asked when a kernel is loaded."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 232448}

    def load_binary(self, *told: Any) -> tuple[object, object, int, int, int]:
        return object(), object(), 32, 0, 1024


class Driver:
    """What Triton asks. launched: names of kernels, in the order in which they ran."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.utils = Utils()

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", ARCH, 32)

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        return lambda *arguments: self.launched.append(source.name)
