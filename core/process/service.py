"""The loop of an engine that takes its requests from another process."""

import logging

from jackfield.core.api import EngineStoppedError
from jackfield.core.engine.clock import Clock
from jackfield.core.engine.listing import list_requests
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.transferring import LONGEST_WAIT
from jackfield.core.process.channel import Channel
from jackfield.core.process.watch import Watch
from jackfield.core.wire.codec import (
    decode_command,
    encode,
    encode_deltas,
    refusal,
    request_of,
)
from jackfield.core.wire.messages import (
    Abort,
    Add,
    Ask,
    Command,
    Died,
    Explain,
    Explained,
    Listed,
    Reset,
    Shutdown,
    Start,
    WasReset,
)

log = logging.getLogger("jackfield.engine")
LONGEST_SLEEP = 1.0


class Service:
    """Commands are obeyed before each step; the news of a step are one message."""

    def __init__(self, engine: Engine, clock: Clock, channel: Channel, watch: Watch) -> None:
        self._engine = engine
        self._clock = clock
        self._channel = channel
        self._watch = watch
        self._shutdown: Shutdown | None = None

    def run(self) -> int:
        """Serve until told to stop. Gives the exit code."""
        try:
            while not self._is_done():
                self._turn()
        except EOFError:
            return EngineStoppedError.exit_code
        except EngineStoppedError as error:
            self._channel.send(encode(Died(str(error))))
            return EngineStoppedError.exit_code
        except Exception as error:
            log.exception("the engine died")
            reason = f"the engine died: {type(error).__name__}: {error}"
            self._channel.send(encode(Died(reason)))
            return EngineStoppedError.exit_code
        self._watch.detach()
        self._engine.close()
        return 0

    def _is_done(self) -> bool:
        shutdown = self._shutdown
        return shutdown is not None and not (shutdown.drain and self._engine.has_work)

    def _turn(self) -> None:
        messages = self._channel.receive(self._patience())
        self._watch.begin()
        for message in messages:
            self._obey(decode_command(message))
        if self._engine.has_work and not self._is_done():
            deltas = self._engine.step()
            if self._engine.end is not None:  # which is what every caller is told then
                raise EngineStoppedError(self._engine.end)
            if deltas:
                self._channel.send(encode_deltas(deltas))
        elif self._engine.has_transfers:
            self._engine.end_transfers()
        self._watch.end()

    def _patience(self) -> float | None:
        """How long to wait for commands: not at all while there is something to compute."""
        if not self._engine.has_work:
            return LONGEST_WAIT if self._engine.has_transfers else None
        if not self._engine.is_idle:
            return 0.0
        alarm = self._engine.next_alarm
        remaining = LONGEST_SLEEP if alarm is None else alarm - self._clock.now()
        return min(max(remaining, 0.0), LONGEST_SLEEP)

    def _obey(self, command: Command) -> None:
        match command:
            case Add():
                self._add(command)
            case Abort():
                self._engine.abort(command.id, command.index, command.finish)
            case Explain():
                decisions = self._engine.explain(command.id)
                self._channel.send(encode(Explained(command.ticket, decisions)))
            case Ask():
                page = list_requests(self._engine, command.query)
                self._channel.send(encode(Listed(command.ticket, page)))
            case Reset():
                done = self._engine.reset_prefix_cache()
                self._channel.send(encode(WasReset(command.ticket, done)))
            case Shutdown():
                self._shutdown = command
            case Start():
                raise AssertionError("an engine starts once")

    def _add(self, command: Add) -> None:
        try:
            if self._shutdown is not None:
                raise EngineStoppedError("the engine is closed")
            self._engine.add(request_of(command, self._clock.now()))
        except Exception as error:
            self._channel.send(encode(refusal(command.id, error)))
