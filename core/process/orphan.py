"""A process must not outlive the one that started it."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask the system to kill this process when the parent's thread that started it ends.

    It holds even while this process is stopped or its interpreter is busy. Elsewhere than on
    Linux only the watch over the channel is left.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None, use_errno=True)
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this engine has gone")
