"""What an operation answers that serves every device and type."""

import torch

from jackfield.core.api.kernel import OpSpec


class Everywhere:
    """Base of the operations that never refuse."""

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return []

    def capturable(self) -> bool:
        return True
