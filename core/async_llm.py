"""Streaming inference for many callers in one event loop."""

import asyncio
from pathlib import Path
from typing import Any

from jackfield.core.assemble import Assembly, assemble
from jackfield.core.checkpoint.progress import Progress, RichProgress
from jackfield.core.front.mailboxes import Mailboxes
from jackfield.core.front.running import RunningEngine
from jackfield.core.front.settings import resolve_settings
from jackfield.core.front.streams import Streams
from jackfield.core.front.thread import EngineThread


class AsyncLLM(Streams):
    """A model with an engine in a thread of its own. Takes what `LLM` takes.

    All methods belong to one event loop. Leaving a `generate` loop early, by break, cancellation
    or an error, aborts the request: its seat and blocks are free after the current step.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: str | Path | None = None,
        progress: Progress | None = None,
        **aliases: Any,
    ) -> None:
        resolved = resolve_settings(model, config, aliases)
        self._assembly: Assembly = assemble(resolved, progress or RichProgress())
        self._thread: EngineThread | None = None
        mailboxes = Mailboxes(type(self).__name__)
        super().__init__(self._assembly.texts, self._assembly.summary, mailboxes)

    @property
    def assembly(self) -> Assembly:
        """The parts: engine, tokenizer, configuration, start summary."""
        return self._assembly

    def deadline(self, seconds: float) -> float:
        """The moment so many seconds from now, for `RequestContext.deadline`."""
        return self._assembly.clock.now() + seconds

    def _engine(self) -> RunningEngine:
        if self._thread is None:
            self._thread = EngineThread(
                self._assembly.engine, self._assembly.clock.now, self._mailboxes
            )
        return self._thread

    async def close(self) -> None:
        """Stop the engine; open streams raise `EngineStoppedError`."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.close)
        else:
            self._assembly.engine.close()
