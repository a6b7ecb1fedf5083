"""Starts the engine's process and tells how it ended."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

MODULE = "jackfield.core.process.engine_process"
STDERR = 2


def spawn(
    module: str = MODULE, descriptors: Sequence[int] = ()
) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """The process, and this side of the socket to it, which nobody else can open.

    It ends with the calling thread. It imports from where this process does, writes to stderr
    only, and gets no signal that a terminal sends to this one. Its arguments are its side of the
    socket, this process, and further descriptors that it inherits.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = spawn_on(theirs, module, descriptors)
        except BaseException:
            ours.close()
            raise
    return process, ours


def spawn_on(
    connection: socket.socket, module: str, descriptors: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """The same with a socket that is there already. It is the process's from now on; the caller
    closes its own."""
    arguments = (connection.fileno(), os.getpid(), *descriptors)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=STDERR,
        pass_fds=[connection.fileno(), *descriptors],
        process_group=0,
        env={**os.environ, "PYTHONPATH": _import_path()},
    )


def _import_path() -> str:
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


def ending(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = "; the machine may have run out of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
