"""What a node beside the first does: it starts its ranks, and ends with them."""

import logging
import socket
import subprocess
import time
from collections.abc import Sequence

from jackfield.core.api import ConfigError, EngineStoppedError
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.host.config import ParallelConfig
from jackfield.core.host.sources import Resolved
from jackfield.core.process.channel import Channel
from jackfield.core.process.rank_environment import values_of
from jackfield.core.process.rank_handshake import keep_alive, visit_host
from jackfield.core.process.rank_member import MODULE
from jackfield.core.process.spawn import STDERR, spawn_on
from jackfield.core.wire.ranks import Comes, encode_rank

log = logging.getLogger("jackfield.engine")
PATIENCE = 0.2
HANDOVER = 5.0


def run_node(resolved: Resolved, progress: Progress) -> int:
    """Until the first node ends, or a rank of this one. Gives the exit code. Raises `ConfigError`
    if the first node is not there."""
    from jackfield.core.process.rank_connect import prepare_nccl

    config = resolved.config
    parallel = config.parallel
    path = resolve_model(config.model.name, revision=config.model.revision, progress=progress)
    prepare_nccl()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for local_rank in range(parallel.tensor // parallel.nodes):
            comes = Comes(parallel.node_rank, local_rank, str(path), values_of(config))
            processes.append(_start(parallel, comes))
        return _watch(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _start(parallel: ParallelConfig, comes: Comes) -> "subprocess.Popen[bytes]":
    with _connected(parallel) as connection:
        visit_host(connection, parallel.token)
        connection.settimeout(None)
        keep_alive(connection)
        message = encode_rank(comes)
        Channel(connection).send(message)
        return spawn_on(connection, MODULE, [STDERR])


def _connected(parallel: ParallelConfig) -> socket.socket:
    """The first node may be started after this one."""
    address = (parallel.master_address, parallel.master_port)
    deadline = time.monotonic() + parallel.timeout
    while True:
        try:
            return socket.create_connection(address, timeout=HANDOVER)
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"the first node does not answer at {address[0]}:{address[1]} within "
                    f"parallel.timeout = {parallel.timeout:g} seconds: {error}; start it, or "
                    f"correct --master-addr and --master-port"
                ) from error
            time.sleep(PATIENCE)


def _watch(processes: Sequence["subprocess.Popen[bytes]"]) -> int:
    """One that ends with an error takes the others with it."""
    while True:
        codes = [process.poll() for process in processes]
        if any(codes):
            return EngineStoppedError.exit_code
        if all(code == 0 for code in codes):
            return 0
        time.sleep(PATIENCE)
