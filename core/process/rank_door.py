"""Where the ranks of other nodes come in, on the first one."""

import errno
import logging
import socket
import time
from collections.abc import Mapping
from typing import Any

from jackfield.core.api import ConfigError
from jackfield.core.host.config import HIDDEN, Config
from jackfield.core.process.channel import Channel
from jackfield.core.process.rank_environment import values_of
from jackfield.core.process.rank_handshake import Stranger, keep_alive, receive_guest
from jackfield.core.wire.ranks import Comes, decode_rank_news

log = logging.getLogger("jackfield.engine")
GUEST_SECONDS = 5.0
"""For each step of coming in."""
Guest = tuple[int, int]
"""Node and rank of that node."""


class RemoteMember:
    """A rank of another node. Its process is that node's to end; it does so when it is cut off."""

    def __init__(self, rank: int, channel: Channel, address: str) -> None:
        self.rank = rank
        self.channel = channel
        self._address = address
        self.heard = time.monotonic()
        self.step = 0
        self.busy = 0.0
        self.is_ready = False

    def __str__(self) -> str:
        return f"rank {self.rank} (of {self._address})"

    def kill(self) -> None:
        self.channel.cut()

    def ending(self) -> str:
        return "without a word; see the log of its node"

    def close(self) -> None:
        self.channel.close(0.0)

    def stack(self) -> str:
        return ""

    def stacks(self) -> str:
        return ""


class Door:
    """Open until all have come."""

    def __init__(self, config: Config) -> None:
        """Raises `ConfigError` for an address that cannot be listened on."""
        parallel = self._parallel = config.parallel
        self._expected = values_of(config)
        self._local = parallel.tensor // parallel.nodes
        address = (parallel.master_address, parallel.master_port)
        try:
            self._socket = socket.create_server(address)
        except OSError as error:
            used = ", which is in use" if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(
                f"the first node cannot listen on parallel.master_address {address[0]} port "
                f"{address[1]}{used}: {error.strerror}"
            ) from error

    def let_in(self) -> Mapping[Guest, tuple[RemoteMember, str]]:
        """All ranks of all other nodes, and where each has the model. Raises `ConfigError` that
        names the nodes that have not come in time, or one that was started otherwise."""
        parallel, found = self._parallel, {}
        nodes, ranks = range(1, parallel.nodes), range(self._local)
        missing = {(node, rank) for node in nodes for rank in ranks}
        deadline = time.monotonic() + parallel.timeout
        with self._socket:
            while missing:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                try:
                    connection, address = self._socket.accept()
                except TimeoutError:
                    raise self._late({node for node, _ in missing}) from None
                guest = self._guest(connection, f"{address[0]}:{address[1]}", missing)
                if guest is not None:
                    found[guest[0]] = guest[1:]
                    missing.remove(guest[0])
        return found

    def _late(self, nodes: set[int]) -> ConfigError:
        parallel = self._parallel
        names = ", ".join(map(str, sorted(nodes)))
        return ConfigError(
            f"{parallel.nodes - len(nodes)} of {parallel.nodes} nodes have come to "
            f"{parallel.master_address}:{parallel.master_port} within parallel.timeout = "
            f"{parallel.timeout:g} seconds; not there, or not wholly: node {names}. Start the same "
            f"command there, with --node-rank"
        )

    def _guest(
        self, connection: socket.socket, address: str, missing: set[Guest]
    ) -> tuple[Guest, RemoteMember, str] | None:
        """None = it was nobody who belongs here, which is no reason to stop."""
        try:
            connection.settimeout(GUEST_SECONDS)
            receive_guest(connection, self._parallel.token)
        except (OSError, EOFError, Stranger) as error:
            log.warning("%s was not let in: %s", address, error)
            connection.close()
            return None
        connection.settimeout(None)
        keep_alive(connection)
        channel = Channel(connection)
        comes = _first(channel)
        self._check(comes, missing, address)
        at = (comes.node_rank, comes.local_rank)
        rank = at[0] * self._local + at[1]
        return at, RemoteMember(rank, channel, f"node {at[0]}, {address}"), comes.path

    def _check(self, comes: Comes, missing: set[Guest], address: str) -> None:
        if (comes.node_rank, comes.local_rank) not in missing:
            raise ConfigError(
                f"{address} comes as node {comes.node_rank}, which is there already, or is not "
                f"wanted; each of the {self._parallel.nodes} nodes has a node_rank of its own"
            )
        wanted = self._expected
        for key in sorted({*wanted, *comes.config}):
            if wanted.get(key) != comes.config.get(key):
                raise ConfigError(
                    f"node {comes.node_rank} was started otherwise: {key} is "
                    f"{_shown(key, comes.config)} there, and {_shown(key, wanted)} on node 0"
                )


def _first(channel: Channel) -> Comes:
    messages: list[bytes] = []
    until = time.monotonic() + GUEST_SECONDS
    while not messages and time.monotonic() < until:
        messages = channel.receive(GUEST_SECONDS)
    news = decode_rank_news(messages[0]) if messages else None
    if not isinstance(news, Comes):
        raise ConfigError("a node has come in and not said which; it runs another version")
    return news


def _shown(key: str, values: Mapping[str, Any]) -> str:
    if key == "parallel.token":
        return HIDDEN
    return repr(values[key]) if key in values else "not known"
