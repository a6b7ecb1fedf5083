"""Starts the other ranks of an engine, and joins this process to them as the first."""

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import clear_frames
from typing import Any

from jackfield.core.api import JackfieldError, Shard
from jackfield.core.api.collective import JOINED
from jackfield.core.executors.loading import Loaded
from jackfield.core.executors.place import Place
from jackfield.core.executors.preparing import Prepared, local_size
from jackfield.core.executors.single import SingleDevice
from jackfield.core.executors.tensor_parallel import TensorParallel
from jackfield.core.host.config import SHORTEST_TOKEN
from jackfield.core.host.sources import Resolved
from jackfield.core.process.rank_connect import (
    LOOPBACK,
    Connection,
    prepare_nccl,
)
from jackfield.core.process.rank_door import Door
from jackfield.core.process.rank_environment import RENDEZVOUS, check_same
from jackfield.core.process.rank_group import RankGroup
from jackfield.core.process.rank_member import LocalMember, Member
from jackfield.core.wire.ranks import Rendezvous, StartRank, encode_rank

SETTLE_SECONDS = 1.0
"""How long the end of another rank may take to be known, after a collective failed for it."""


class OtherRanks:
    """They start at once, and load while this process does. Between the constructor and `lead`
    whatever is raised is to be given to `give_up`."""

    def __init__(self, resolved: Resolved, path: Path, *, streamed: bool) -> None:
        """path: of the model. streamed: as in `prepare`."""
        self._config = resolved.config
        prepare_nccl()
        parallel = self._config.parallel
        host = LOOPBACK if parallel.nodes == 1 else parallel.master_address
        door = Door(self._config) if self._config.parallel.nodes > 1 else None
        self._drop: Callable[[], None] = _nothing
        connection = self._connection = Connection(host, parallel.timeout)
        start = _Start(resolved, connection.where, streamed)
        try:
            self._group = RankGroup(
                partial(_start_all, start, path, door),
                self._config.parallel.tensor,
                watchdog=self._config.engine.watchdog,
                link=connection,
            )
        except BaseException:
            connection.close()
            raise

    def join(self, prepared: Prepared) -> Place:
        """See that all have come, and are alike. Raises `JackfieldError`s that name who is not."""
        parallel, group = self._config.parallel, self._group
        group.gather(RENDEZVOUS, 0, parallel.timeout)
        check_same(group, prepared.caches.fingerprint(), self._config)
        watchdog = self._config.engine.watchdog
        connected = group.meanwhile(
            lambda: self._connection.join(parallel.tensor, prepared.device, watchdog)
        )
        shard = Shard(0, parallel.tensor, parallel.experts)
        local = local_size(self._config)
        return Place(shard, group, connected, local, group.when_lost)

    def lead(self, loaded: Loaded) -> Loaded:
        """Wait until all have loaded; the executor is that of all ranks from now on."""
        self._group.wait_ready()
        inner = loaded.executor
        assert isinstance(inner, SingleDevice), "it leads already"
        executor = TensorParallel(inner, self._group, has_tiers=bool(loaded.tiers))
        self._drop = executor.drop
        weakref.finalize(executor, self._group.kill)
        weakref.finalize(executor, self._group.abandon).atexit = False
        return loaded._replace(executor=executor)

    def give_up(self, error: BaseException) -> JackfieldError | None:
        """The start has failed here: end all. Gives the error that another rank had before, if it
        did, of which this one is a consequence."""
        group = self._group
        until = time.monotonic() + SETTLE_SECONDS
        while isinstance(error, RuntimeError) and not group.failure and time.monotonic() < until:
            time.sleep(0.02)
        found = None if isinstance(error, JackfieldError) else group.error_of_failure()
        group.give_up()
        _forget(error)
        group.close(self._drop)
        self._drop = _nothing
        return found


def _nothing() -> None: ...


def _forget(error: BaseException | None) -> None:
    """What its frames hold: collectives do not end before all graphs that they are in."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


def without_collectives(loaded: Loaded) -> Loaded:
    """For whoever looks at what was loaded, as long as they like: only the executor, which drops
    them when it is closed, has operations that hold the ranks' group and memory."""
    nobody: dict[str, Any] = dict.fromkeys(JOINED)
    operations = replace(loaded.table.operations, **nobody)
    return loaded._replace(table=loaded.table._replace(operations=operations))


class _Start:
    """What each rank is told first. How it is served is none of a rank's business."""

    def __init__(self, resolved: Resolved, where: Rendezvous, streamed: bool) -> None:
        self._config = resolved.config.model_dump(exclude={"server"})
        self._config["parallel"]["token"] = "?" * SHORTEST_TOKEN  # nobody needs it any more
        self.local_size = local_size(resolved.config)
        self._origins = {
            key: one for key, one in resolved.origins.items() if not key.startswith("server.")
        }
        self._size, self._where, self._streamed = resolved.config.parallel.tensor, where, streamed

    def of(self, rank: int, path: str) -> bytes:
        """path: of the model, on the host of the rank."""
        return encode_rank(
            StartRank(
                self._config, self._origins, path, self._streamed, rank, self._size,
                rank % self.local_size, self._where,
            )
        )  # fmt: skip


def _start_all(start: _Start, path: Path, door: Door | None) -> Sequence[Member]:
    """In the thread that they end with. Those of this host begin while others come."""
    members: list[Member] = []
    try:
        for rank in range(1, start.local_size):
            members.append(LocalMember(rank))
            members[-1].channel.send(start.of(rank, str(path)))
        for guest, place in (door.let_in() if door else {}).values():
            members.append(guest)
            guest.channel.send(start.of(guest.rank, place))
    except BaseException:
        for member in members:
            member.kill()
            member.ending()
            member.close()
        raise
    return sorted(members, key=lambda one: one.rank)
