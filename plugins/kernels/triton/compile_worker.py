"""A process that compiles kernels: `python -m jackfield.plugins.kernels.triton.compile_worker 8`.

It reads what is wanted from its standard input, one JSON list a line, and needs no GPU. Triton is
imported once; each kernel is compiled by a copy of the process, so many at a time as it is told.
"""

import json
import os
import sys
from collections.abc import Callable

from triton.runtime.cache import triton_key

from jackfield.plugins.kernels.triton.compiling import Wanted, build_launcher, compile_wanted, read

LONGEST = 300
"""Characters of what is said of one failure."""


class Workers:
    """Copies of this process, each for one thing."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._running = 0
        self.failed = False

    def start(self, work: Callable[[Wanted], None], wanted: Wanted) -> None:
        """Waits until there is one to spare."""
        while self._running >= self._count:
            self.wait()
        self._running += 1
        if os.fork() == 0:
            os._exit(_done(work, wanted))

    def wait(self) -> None:
        """For one of them."""
        _, status = os.wait()
        self._running -= 1
        self.failed = self.failed or status != 0

    def finish(self) -> None:
        """Wait for all."""
        while self._running:
            self.wait()


def _done(work: Callable[[Wanted], None], wanted: Wanted) -> int:
    """The exit status."""
    try:
        work(wanted)
    except BaseException as error:  # whatever it is, others go on
        told = f"{wanted.name}: {type(error).__name__}: {error}".replace("\n", " ")
        os.write(2, f"{told[:LONGEST]}\n".encode())
        return 1
    return 0


def main(count: int) -> bool:
    """Whether all could be compiled."""
    triton_key()  # what all copies need is made before they are
    workers = Workers(count)
    launchers: set[str] = set()
    for line in sys.stdin:
        wanted = Wanted(*json.loads(line))
        launcher = _prepared(wanted)
        workers.start(compile_wanted, wanted)
        if launcher not in launchers:
            launchers.add(launcher)
            workers.start(build_launcher, wanted)
    workers.finish()
    return not workers.failed


def _prepared(wanted: Wanted) -> str:
    """The launcher. What copies need of the kernel's module and of its source is made here, once,
    as far as it can be; they say what fails."""
    try:
        found = read(wanted)
        found.source.hash()
        return found.launcher
    except Exception:
        return ""


if __name__ == "__main__":
    sys.exit(0 if main(int(sys.argv[1])) else 1)
