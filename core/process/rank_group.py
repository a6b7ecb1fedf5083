"""The other ranks, as the first one has them: told, heard, watched, and ended together."""

import logging
import select
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from jackfield.core.api import ConfigError, EngineStoppedError, JackfieldError
from jackfield.core.kv.transfers import TransferEnd
from jackfield.core.process.rank_departure import Departure, Link, in_thread
from jackfield.core.process.rank_member import Member
from jackfield.core.process.rank_stack import innermost, own_stack, waits_for_others
from jackfield.core.wire.codec import error_of
from jackfield.core.wire.messages import Failed
from jackfield.core.wire.ranks import (
    Agreed,
    Alive,
    Cancel,
    Ended,
    GivenUp,
    RankNews,
    Ready,
    Says,
    Stop,
    Stumbled,
    decode_rank_news,
    encode_rank,
)

log = logging.getLogger("jackfield.engine")
PERIOD = 0.25
GRACE = 2.0
"""Seconds without a sign of life beyond those that a step may take."""
ALIKE_SECONDS = 3.0
"""Within which all ranks fail in a step, if they all do."""
STOP_SECONDS = 5.0
NO_RANKS = "the ranks of this engine have been stopped"
EndsListener = Callable[[int, Sequence[TransferEnd]], None]
T = TypeVar("T")


class RankGroup:
    """Made at once, in a thread that lives as long as the ranks do. `close` ends all of them.

    What ends one of them ends all: the first reason is kept, the others are killed, and collectives
    under way are given up.
    """

    def __init__(
        self,
        make: Callable[[], Sequence[Member]],
        size: int,
        *,
        watchdog: float,
        link: Link,
    ) -> None:
        """make: starts them, in the group's thread. watchdog: seconds that a step may take. link:
        of this process to them, for collectives."""
        self.size = size
        self.failure: str | None = None
        self._error: JackfieldError | None = None
        self._watchdog = watchdog
        self._departure = Departure(link)
        self._leaving: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._said: dict[str, dict[int, Any]] = defaultdict(dict)
        self._stumbles: dict[int, dict[int, str]] = {}
        self._stumbled_at: dict[int, float] = {}
        self._passed = -1
        self._given_up: dict[int, Collection[int]] | None = None
        self._on_ends: EndsListener | None = None
        self._step = 0
        self._thread_of_steps: int | None = None
        self._closing = self._closed = False
        self._made: Future[Sequence[Member]] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(make,), name="jackfield-ranks", daemon=True
        )
        self._thread.start()
        self._members = self._made.result()

    def send(self, message: bytes) -> None:
        """To each of the others. Does not wait."""
        for member in self._members:
            member.channel.send(message)

    def gather(self, name: str, value: Any, timeout: float | None = None) -> list[Any]:
        """What all ranks say of one thing. Raises `JackfieldError` if one has ended, or if they do
        not all come within that time."""
        with self._changed:
            said = self._said[name]
            self._wait_for(lambda: len(said) == self.size - 1, timeout)
            missing = [str(one) for one in self._members if one.rank not in said]
            if missing:
                raise ConfigError(
                    f"{self.size - len(missing)} of {self.size} ranks have come to {name!r} within "
                    f"parallel.timeout = {timeout:g} seconds; not there: {', '.join(missing)}"
                )
            values = [value, *(said[one.rank] for one in self._members)]
            del self._said[name]
        self.send(encode_rank(Agreed(name, values)))
        return values

    def wait_ready(self) -> None:
        """Until all of them wait for steps. Raises what one of them could not start for."""
        with self._changed:
            self._wait_for(lambda: all(one.is_ready for one in self._members))

    def meanwhile(self, work: Callable[[], T]) -> T:
        """What it gives. It may wait for the others for ever: raises their failure if they fail
        before, and leaves it to its thread."""
        found = in_thread("jackfield-connect", work)
        found.add_done_callback(lambda _: self._notify())
        with self._changed:
            self._wait_for(found.done)
        return found.result()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> None:
        """Holds the lock. Raises the failure if there is one."""
        self._changed.wait_for(lambda: self.failure is not None or condition(), timeout)
        if self.failure is not None:
            raise self.error_of_failure() or AssertionError

    def error_of_failure(self) -> JackfieldError | None:
        """What to raise for the failure; None = there is none."""
        if self.failure is None:
            return None
        return self._error or EngineStoppedError(self.failure)

    def begun(self, step: int) -> None:
        """This thread runs the step from now on."""
        self._step, self._thread_of_steps = step, threading.get_ident()
        self._passed = min(self._passed, step - 1)  # an evaluation counts anew

    def passed(self, step: int) -> None:
        """This rank has run the step."""
        self._passed = step
        if self._stumbles:  # nothing else costs a step anything
            self._check_stumbles()

    def stumbled(self, step: int) -> None:
        """This rank could not run the step."""
        with self._changed:
            if self.failure is None:
                told = self._stumbles.setdefault(step, {})
                self._changed.wait_for(
                    lambda: self.failure is not None or len(told) == self.size - 1, ALIKE_SECONDS
                )
                self._stumbles.pop(step, None)
                self._stumbled_at.pop(step, None)
            if self.failure is not None:
                raise EngineStoppedError(self.failure)
            fine = [str(one) for one in self._members if one.rank not in told]
        if fine:
            self.fail(f"step {step} failed on rank 0 and not on {', '.join(fine)}")
            raise EngineStoppedError(str(self.failure))

    def cancel(self, numbers: Sequence[int]) -> list[Collection[int]]:
        """Which of these transfers each of the others gave up."""
        with self._changed:
            found: dict[int, Collection[int]] = {}
            self._given_up = found
            self.send(encode_rank(Cancel(list(numbers))))
            self._wait_for(lambda: len(found) == self.size - 1)
            self._given_up = None
        return [found[one.rank] for one in self._members]

    def hear_ends(self, listener: EndsListener) -> None:
        """Called in the group's thread."""
        self._on_ends = listener

    def diagnose(self, limit: float) -> str:
        """A step takes longer than so many seconds: which rank is to blame. The end of all."""
        with self._changed:
            if self.failure is None:
                self._fail(self._blame(limit))
            return str(self.failure)

    def fail(self, reason: str) -> None:
        """End all of them."""
        with self._changed:
            self._fail(reason)

    def _fail(self, reason: str, error: JackfieldError | None = None) -> None:
        if self.failure is not None or self._closing:
            return
        self.failure, self._error = reason, error
        if error is None:
            log.error("the engine ends: %s", reason)
        for member in self._members:
            member.kill()
        self._changed.notify_all()
        self._leave_collectives()

    def _leave_collectives(self) -> None:
        """Nobody will come to them any more. Holds the lock."""
        for leave in self._leaving:
            with suppress(Exception):  # it may be broken by what has failed
                leave()
        self._leaving.clear()
        self._departure.abort()

    def when_lost(self, leave: Callable[[], None]) -> None:
        """Call this, in any thread, when the others have been ended for a failure."""
        with self._changed:
            self._leaving.append(leave)
            if self.failure is not None:
                leave()

    def stop(self) -> None:
        """Tell all to end. Nothing else is told them afterwards."""
        with self._changed:
            self._closing = True
            self.failure = self.failure or NO_RANKS
            self._changed.notify_all()
        self.send(encode_rank(Stop()))

    def close(self, drop: Callable[[], None]) -> None:
        """Drop what holds collectives, leave them, and wait for the others' end, which they have
        been told to come to. Takes seconds, whoever hangs."""
        self._closed = True
        try:
            self._departure.go(drop, self.give_up)
        finally:
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                self.kill()
                self._thread.join(STOP_SECONDS)
            self._leaving.clear()
            self._departure.close()

    def kill(self) -> None:
        """End all at once, and do not wait."""
        self._closing = True
        for member in self._members:
            member.kill()

    def give_up(self) -> None:
        """The same, and leave collectives that they may never come to."""
        with self._changed:
            self.kill()
            self._leave_collectives()

    def abandon(self) -> None:
        """The executor has gone without being closed. Does not wait."""
        if not self._closed:
            in_thread("jackfield-abandon", self._end)

    def _end(self) -> None:
        self.give_up()
        self.close(lambda: None)

    def _run(self, make: Callable[[], Sequence[Member]]) -> None:
        # The ranks are started here because the system ends them together with this thread.
        try:
            members = make()
        except BaseException as error:
            self._made.set_exception(error)
            return
        self._members = members
        self._made.set_result(members)
        try:
            self._listen({one.channel.fileno(): one for one in members})
        except Exception as error:
            log.exception("the ranks cannot be understood")
            self.fail(f"the ranks were lost: {type(error).__name__}: {error}")
        for member in members:
            member.ending()
            member.close()

    def _listen(self, left: dict[int, Member]) -> None:
        """Until all have gone."""
        poll = select.poll()
        for descriptor in left:
            poll.register(descriptor, select.POLLIN)
        while left:
            for descriptor, _ in poll.poll(PERIOD * 1000):
                if not self._hear(left[descriptor]):
                    poll.unregister(descriptor)
                    del left[descriptor]
            self._look()

    def _hear(self, member: Member) -> bool:
        """Take what it says. False = it has gone."""
        try:
            messages = member.channel.receive(0.0)
        except EOFError:
            self._lost(member)
            return False
        for message in messages:
            self._take(member, decode_rank_news(message))
        return True

    def _lost(self, member: Member) -> None:
        if self.failure is not None or self._closing:
            return
        how, stacks = member.ending(), member.stacks()
        when = "while it started"
        if member.is_ready:
            when = f"{'after' if self._passed >= self._step else 'in'} step {self._step}"
        if stacks:
            log.error("the last stacks of %s:\n%s", member, stacks)
            how += "; its last stacks are in the log"
        verb = "was" if how.startswith("killed") else "ended"
        self.fail(f"{when} {member} {verb} {how}")

    def _take(self, member: Member, news: RankNews) -> None:
        with self._changed:
            member.heard = time.monotonic()
            match news:
                case Alive():
                    member.step, member.busy = news.step, news.busy
                case Says():
                    self._said[news.name][member.rank] = news.value
                case Ready():
                    member.is_ready = True
                case Failed():
                    error = error_of(news)
                    self._fail(f"{member} could not start: {error}", _of_rank(member, error))
                case Stumbled():
                    self._stumbles.setdefault(news.step, {})[member.rank] = news.error
                    self._stumbled_at.setdefault(news.step, time.monotonic())
                case Ended():
                    assert self._on_ends is not None, "a transfer has ended that nobody ordered"
                    self._on_ends(member.rank, news.ends)
                case GivenUp():
                    if self._given_up is not None:
                        self._given_up[member.rank] = frozenset(news.numbers)
            self._changed.notify_all()

    def _look(self) -> None:
        """Whether somebody hangs, or has failed alone."""
        if self.failure is not None:
            return
        if self._stumbles:
            self._check_stumbles()
        now = time.monotonic()
        for member in self._members:
            silent = now - member.heard
            hangs = member.busy > 0 and member.busy + silent > self._watchdog
            if member.is_ready and (hangs or silent > self._watchdog + GRACE):
                self.diagnose(self._watchdog)
                return

    def _check_stumbles(self) -> None:
        """A step that raised on another rank must raise here too, and soon."""
        with self._changed:
            for step, told in self._stumbles.items():
                since = self._stumbled_at.get(step)
                late = since is not None and time.monotonic() - since > ALIKE_SECONDS
                if told and (step <= self._passed or late):
                    rank, error = next(iter(told.items()))
                    self._fail(f"step {step} failed on rank {rank} and not on rank 0: {error}")
                    return

    def _blame(self, limit: float) -> str:
        """Holds the lock. Those that wait in a collective wait for one that does not."""
        stacks: dict[int, str] = {0: own_stack(self._thread_of_steps)}
        for member in self._members:
            stacks[member.rank] = member.stack()
        for rank, stack in stacks.items():
            log.error("rank %d is here:\n%s", rank, stack or "  (it does not say)")
        busy = [one.rank for one in self._members if one.busy] or list(stacks)
        blamed = [rank for rank in (*busy, 0) if not waits_for_others(stacks[rank])] or busy
        return _blaming(blamed[0], self._step, stacks[blamed[0]], limit)


def _blaming(rank: int, step: int, stack: str, limit: float) -> str:
    where = innermost(stack)
    told = f"it is at {where}; " if where else ""
    return (
        f"rank {rank} has not finished step {step} within engine.watchdog = {limit:g} seconds; "
        f"{told}the stacks of all ranks are in the log"
    )


def _of_rank(member: Member, error: JackfieldError) -> JackfieldError:
    """The same error, saying where it was met."""
    error.args = (f"on rank {member.rank}: {error}", *error.args[1:])
    return error
