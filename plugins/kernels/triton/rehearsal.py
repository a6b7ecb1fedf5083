"""Has all kernels compiled that some steps launch, by other processes, while the steps run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from jackfield.plugins.kernels.triton.compile_ahead import CompileAhead
from jackfield.plugins.kernels.triton.compiling import Wanted, is_compiled
from jackfield.plugins.kernels.triton.noting import Notes, noted

log = logging.getLogger("jackfield.kernels")


@contextmanager
def rehearsal() -> Iterator[None]:
    """Within it, this thread launches no kernel; what launches would need is compiled, and is there
    at its end. Kernels of others are compiled when they are launched for the first time."""
    major, minor = torch.cuda.get_device_capability()
    with CompileAhead() as ahead:

        def tell(wanted: Wanted) -> None:
            if not is_compiled(wanted):
                ahead.tell(wanted)

        notes = Notes(major * 10 + minor, tell)
        with noted(notes):
            yield
        ahead.finish()
    if notes.foreign:
        names = ", ".join(sorted(notes.foreign))
        log.info("kernels that are compiled at their first launch: %s", names)
