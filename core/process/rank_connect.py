"""How the ranks of an engine find each other for collectives."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch

from jackfield.core.api import CapacityError, ConfigError
from jackfield.core.wire.ranks import Rendezvous

LOOPBACK = "127.0.0.1"
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
"""Of all ranks: multicast over NVLink hangs on hosts whose fabric is set up otherwise."""
INTERFACE = "GLOO_SOCKET_IFNAME"
OWN_WATCH = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
"""Of all ranks: torch would end this process where the ranks end each other with an error."""
LONGER = 60.0
"""Seconds beyond the watchdog for a collective: who hangs is to be found before it gives up."""


def open_store(host: str, timeout: float) -> tuple[Any, Rendezvous]:
    """The store of the first rank, on a free port of the system's choice, which it keeps."""
    import torch.distributed as dist

    listener = socket.create_server((host, 0), backlog=1024)
    port: int = listener.getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
        master_listen_fd=listener.detach(),
    )
    return store, Rendezvous(host, port, timeout)


def find_store(where: Rendezvous) -> Any:
    """The same from another rank."""
    import torch.distributed as dist

    timeout = timedelta(seconds=where.timeout)
    store = dist.TCPStore  # type: ignore[attr-defined]  # torch does not list it
    return store(where.host, where.port, is_master=False, timeout=timeout)


def connect(
    store: Any, rank: int, size: int, device: torch.device, timeout: float, watchdog: float
) -> Any:
    """The group of all ranks. All of them call this at about the same time.

    timeout: seconds for finding each other. watchdog: for a collective, afterwards.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        raise ConfigError(
            "this process belongs to a group of torch.distributed already, perhaps that of another "
            "model with tensor_parallel_size above 1; close that, or use another process"
        )
    on_gpu = device.type == "cuda"
    try:
        with _within_host(store.host):
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                store=store,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
                device_id=device if on_gpu else None,
            )
    except (RuntimeError, ValueError) as error:
        raise CapacityError(
            f"rank {rank} of {size} could not join the others at {store.host}:{store.port} within "
            f"parallel.timeout = {timeout:g} seconds: {error}"
        ) from error
    group = dist.group.WORLD
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=watchdog + LONGER), group)
    return group


@contextmanager
def _within_host(host: str) -> Iterator[None]:
    """Gloo looks for an interface by the host's name, which need not resolve."""
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if host != LOOPBACK or INTERFACE in os.environ or not names:
        yield
        return
    os.environ[INTERFACE] = names.pop()
    try:
        yield
    finally:
        del os.environ[INTERFACE]


class Connection:
    """The first rank's `Link`. It leaves no group but the one that it has joined itself."""

    def __init__(self, host: str, timeout: float) -> None:
        self._server: Any
        self._server, self.where = open_store(host, timeout)
        self._group: Any = None

    def join(self, size: int, device: torch.device, watchdog: float) -> Any:
        """The group, as `connect` gives it."""
        # Of a client of its own, so that the server can go before the group does.
        store = find_store(self.where)
        self._group = connect(store, 0, size, device, self.where.timeout, watchdog)
        return self._group

    def abort(self) -> None:
        """Who waits for what others were to leave in the store learns that they will not. Gloo
        learns by itself of processes that end, and cannot be told."""
        import torch.distributed as dist

        self._server, group = None, self._group
        if group is not None and dist.get_backend(group) == "nccl":
            group.abort()

    def leave(self) -> None:
        """Nothing to leave is fine."""
        if self._group is not None:
            self._group = None
            disconnect()

    def close(self) -> None:
        """The port is free, whoever holds the group."""
        self._server = None


def disconnect() -> None:
    """Leave the group. Whoever is left in it waits for ever."""
    import torch.distributed as dist

    if dist.is_initialized():
        try:
            dist.destroy_process_group()
        except RuntimeError:  # it is broken, and must not stand in the way of the next one
            with suppress(RuntimeError):
                dist.distributed_c10d._abort_process_group()


def prepare_nccl() -> None:
    """For this process and those that it starts, unless somebody chose otherwise."""
    for name, value in (NO_MULTICAST | OWN_WATCH).items():
        os.environ.setdefault(name, value)
