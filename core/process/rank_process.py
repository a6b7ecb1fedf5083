"""A rank's process: `python -m jackfield.core.process.rank_process DESCRIPTOR PARENT STACKS`."""

import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jackfield.core.api import EngineStoppedError, JackfieldError, Shard
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.executors.loading import Loaded, load
from jackfield.core.executors.place import Place
from jackfield.core.executors.preparing import local_size, prepare, rank_device
from jackfield.core.executors.single import SingleDevice
from jackfield.core.host.config import Config
from jackfield.core.host.sources import Resolved
from jackfield.core.process.channel import Channel
from jackfield.core.process.orphan import die_with
from jackfield.core.process.rank_connect import connect, disconnect, find_store
from jackfield.core.process.rank_environment import RENDEZVOUS, check_same
from jackfield.core.process.rank_service import RankService
from jackfield.core.process.rank_stack import write_stacks_to
from jackfield.core.process.rank_watch import RankWatch
from jackfield.core.wire.codec import failure
from jackfield.core.wire.ranks import (
    Agreed,
    Ready,
    Says,
    StartRank,
    Stop,
    decode_order,
    encode_rank,
)

log = logging.getLogger("jackfield.engine")
FAREWELL = 5.0


class SentAgree:
    """A rank's side of agreeing: it says what it has, and is told what all have."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def gather(self, name: str, value: Any) -> Sequence[Any]:
        """What each rank says."""
        self._channel.send(encode_rank(Says(name, value)))
        answer = _next(self._channel)
        assert isinstance(answer, Agreed) and answer.name == name, f"{name} was asked, not {answer}"
        return answer.values


def main(arguments: Sequence[str]) -> int:
    """descriptor: of the inherited socket to the first rank. parent: the process that started this
    one. stacks: descriptor of a file for the stacks of this one."""
    descriptor, parent, stacks = map(int, arguments)
    write_stacks_to(stacks)
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first rank's to decide about
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        return serve(channel, RankWatch(channel, parent))
    except EOFError:
        return EngineStoppedError.exit_code
    finally:
        channel.close(FAREWELL)


def serve(channel: Channel, watch: RankWatch) -> int:
    """From the first message to the end. Gives the exit code."""
    start = _next(channel)
    assert isinstance(start, StartRank), "nothing comes before the start"
    try:
        loaded = _load(start, channel)
    except EOFError:
        raise
    except Exception as error:
        channel.send(encode_rank(failure(error)))
        if not isinstance(error, JackfieldError):
            log.exception("rank %d could not be started", start.rank)
        return JackfieldError.exit_code
    channel.send(encode_rank(Ready()))
    gc.collect()
    gc.freeze()  # a collection that looked at the model and its libraries would hold up a step
    executor = loaded.executor
    assert isinstance(executor, SingleDevice), "a rank beside the first leads nobody"
    RankService(executor, channel, watch, has_tiers=bool(loaded.tiers)).run()
    disconnect()
    return 0


def _load(start: StartRank, channel: Channel) -> Loaded:
    resolved, agree = Resolved(Config(**start.config), start.origins), SentAgree(channel)
    config = resolved.config
    path = Path(start.path) if start.path else _own_path(config)
    device = rank_device(config, start.local_rank)
    prepared = prepare(resolved, path, device, streamed=start.streamed)
    agree.gather(RENDEZVOUS, start.rank)
    check_same(agree, prepared.caches.fingerprint(), config)
    where = start.rendezvous
    group = connect(
        find_store(where), start.rank, start.size, prepared.device, where.timeout,
        config.engine.watchdog,
    )  # fmt: skip
    shard = Shard(start.rank, start.size, config.parallel.experts)
    place = Place(shard, agree, group, local_size(config))
    order = prepared.order(prepared.caches.kernels(), place)
    return load(order, config, SilentProgress())


def _own_path(config: Config) -> Path:
    return resolve_model(
        config.model.name, revision=config.model.revision, progress=SilentProgress()
    )


def _next(channel: Channel) -> Any:
    """While a rank starts it is told one thing at a time."""
    messages: list[bytes] = []
    while not messages:
        messages = channel.receive(None)
    assert len(messages) == 1, "more was told than was asked for"
    order = decode_order(messages[0])
    if isinstance(order, Stop):
        raise EOFError("the first rank has given up")
    return order


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
