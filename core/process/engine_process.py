"""The engine's process: `python -m jackfield.core.process.engine_process DESCRIPTOR PARENT`."""

import faulthandler
import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence

from jackfield import __version__
from jackfield.core.api import JackfieldError
from jackfield.core.assemble import Assembly, assemble
from jackfield.core.engine.snapshot import take_snapshot
from jackfield.core.host.config import Config
from jackfield.core.host.sources import Resolved
from jackfield.core.process.channel import Channel
from jackfield.core.process.orphan import die_with
from jackfield.core.process.service import Service
from jackfield.core.process.watch import Watch
from jackfield.core.wire.codec import decode_command, encode, failure
from jackfield.core.wire.messages import Advanced, Hello, Limits, Start, Worked, Working

log = logging.getLogger("jackfield.engine")
FAREWELL = 10.0


class SentProgress:
    """A `Progress` that is shown by the other process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def start(self, label: str, total: int | None) -> None:
        self._channel.send(encode(Working(label, total)))

    def advance(self, n: int) -> None:
        self._channel.send(encode(Advanced(n)))

    def finish(self) -> None:
        self._channel.send(encode(Worked()))


def main(arguments: Sequence[str]) -> int:
    """descriptor: of the inherited socket. parent: the process that waits at its other end."""
    descriptor, parent = map(int, arguments)
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to decide about
    faulthandler.enable()
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        return _serve(channel, Watch(channel, parent))
    except EOFError:
        return JackfieldError.exit_code
    finally:
        channel.close(FAREWELL)


def _serve(channel: Channel, watch: Watch) -> int:
    start = _first(channel)
    try:
        resolved = Resolved(Config(**start.config), start.origins)
        assembly = assemble(resolved, SentProgress(channel))
    except Exception as error:
        channel.send(encode(failure(error)))
        if isinstance(error, JackfieldError):
            return error.exit_code
        log.exception("the engine could not be started")
        return JackfieldError.exit_code
    channel.send(encode(_hello(assembly)))
    watch.attach(assembly.engine, resolved.config.engine.watchdog)
    gc.collect()
    gc.freeze()  # a collection that looked at the model and its libraries would hold up a step
    return Service(assembly.engine, assembly.clock, channel, watch).run()


def _first(channel: Channel) -> Start:
    messages: list[bytes] = []
    while not messages:
        messages = channel.receive(None)
    start = decode_command(messages[0])
    assert isinstance(start, Start) and len(messages) == 1, "nothing comes before the Hello"
    return start


def _hello(assembly: Assembly) -> Hello:
    fingerprint = assembly.stack.fingerprint()
    limits = assembly.engine.door_limits
    return Hello(
        __version__,
        fingerprint.digest,
        list(fingerprint.plugins),
        Limits(*limits),
        assembly.summary.as_dict(),
        take_snapshot(assembly.engine),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
