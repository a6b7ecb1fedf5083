"""The process that compiles kernels, as seen by the one that wants them."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from types import TracebackType

from jackfield.plugins.kernels.triton.compiling import Wanted

log = logging.getLogger("jackfield.kernels")
MOST_WORKERS = 16
"""Kernels that are compiled at the same time at most; hardly more are wanted at once."""
WORKER = "jackfield.plugins.kernels.triton.compile_worker"
SECONDS = 300.0
ROOM = 1 << 20
"""Bytes that wait for the process to read them, or else whoever tells it waits."""


class CompileAhead:
    """Starts at the first kernel that is wanted. What fails is compiled when it is launched."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by __exit__)

    def __enter__(self) -> "CompileAhead":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends what is still under way."""
        self._end()
        self._errors.close()

    def tell(self, wanted: Wanted) -> None:
        """Have it compiled. Does not wait for it."""
        if self._process is None:
            self._process = _start(self._errors.fileno())
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(wanted) + "\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # it has ended; `finish` says why

    def finish(self) -> None:
        """Wait for all that is wanted."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            log.warning("compiling kernels took over %g s more and was ended", self._seconds)
            return
        if self._process.returncode:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines() or ["it said nothing"]
            log.warning("compiling kernels at start failed: %s", lines[-1])

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            # It leads a group, to which those belong that it has started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _start(errors: int) -> "subprocess.Popen[str]":
    count = min(len(os.sched_getaffinity(0)), MOST_WORKERS)
    # Without devices nothing in it can take memory of one.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", WORKER, str(count)], stdin=subprocess.PIPE, stderr=errors,
        stdout=subprocess.DEVNULL, text=True, env=environment, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, ROOM)
    return process
