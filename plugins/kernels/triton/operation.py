"""What an operation beside attention answers."""

import torch

from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton.support import TritonConfig, reasons


class TritonOperation:
    """Base of the operations that serve every shape."""

    def __init__(self, config: TritonConfig) -> None:
        self._config = config

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return reasons(device, spec.dtype, self._config)

    def capturable(self) -> bool:
        return True
