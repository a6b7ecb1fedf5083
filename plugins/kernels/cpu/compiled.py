"""What an operation beside attention answers."""

import torch

from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.cpu.library import Functions, Library


class CompiledOperation:
    """Base of the operations that exist for each element type."""

    name: str
    letters: str

    def __init__(self, library: Library) -> None:
        self._library = library
        self._functions = Functions(library, self.name, self.letters)

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return self._library.refusals(device, spec.dtype)

    def capturable(self) -> bool:
        return False
