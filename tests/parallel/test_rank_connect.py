"""Where ranks find each other: nobody else is ever given that port."""

import errno
import socket
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from jackfield.core.process.rank_connect import LOOPBACK, open_store


def test_engines_that_start_at_once_have_ports_of_their_own() -> None:
    with ThreadPoolExecutor(16) as pool:
        opened = list(pool.map(lambda _: open_store(LOOPBACK, 5.0), range(40)))
    ports = {where.port for _, where in opened}
    assert len(ports) == len(opened) and ports <= listening()
    del opened
    assert not ports & listening()


def listening() -> set[int]:
    found = psutil.Process().net_connections()
    return {one.laddr[1] for one in found if one.status == psutil.CONN_LISTEN}


def test_a_port_is_kept_from_the_moment_that_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one socket, which goes to the store as it is."""
    made: list[tuple[int, int]] = []
    plain = socket.create_server

    def noting(*args: object, **named: object) -> socket.socket:
        found = plain(*args, **named)  # type: ignore[arg-type]
        made.append((found.fileno(), found.getsockname()[1]))
        return found

    monkeypatch.setattr(socket, "create_server", noting)
    store, where = open_store(LOOPBACK, 5.0)
    ((descriptor, port),) = made
    assert (store.port, where.port) == (port, port)
    found = [one for one in psutil.Process().net_connections() if one.laddr[1] == port]
    assert [one.fd for one in found if one.status == psutil.CONN_LISTEN] == [descriptor]
    with pytest.raises(OSError, match="in use") as error:
        plain((LOOPBACK, port))
    assert error.value.errno == errno.EADDRINUSE
