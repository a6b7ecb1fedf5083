"""Streaming inference with an engine in a process of its own."""

import asyncio
import time
from pathlib import Path
from typing import Any

from jackfield import __version__
from jackfield.core.api import PluginVersionError
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.progress import Progress, RichProgress
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.front.mailboxes import Mailboxes
from jackfield.core.front.running import RunningEngine
from jackfield.core.front.settings import resolve_settings
from jackfield.core.front.streams import Streams
from jackfield.core.host.config import Config
from jackfield.core.host.discover import discover_all
from jackfield.core.host.expected import expected_fingerprint
from jackfield.core.host.fingerprint import Fingerprint
from jackfield.core.host.sources import Resolved
from jackfield.core.process.client import EngineProcess
from jackfield.core.summary import Summary
from jackfield.core.texts import load_texts
from jackfield.core.wire.messages import Hello


class RemoteLLM(Streams):
    """Like `AsyncLLM`, but the engine computes in a process of its own, and this one is free.

    This process never loads torch. When the other one dies, every open stream raises
    `EngineStoppedError`; when this one dies, the other ends with it.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: str | Path | Resolved | None = None,
        progress: Progress | None = None,
        **aliases: Any,
    ) -> None:
        """Waits until the engine is ready. Raises the `JackfieldError` that its start met.

        config: a file, or a configuration that was resolved before; nothing is added to that.
        """
        resolved = resolve_settings(model, config, aliases)
        shown, chosen = progress or RichProgress(), resolved.config.model
        path = resolve_model(chosen.name, revision=chosen.revision, progress=shown)
        mailboxes = Mailboxes(type(self).__name__)
        self._process = EngineProcess(resolved, mailboxes, shown)
        try:
            texts = load_texts(resolved.config, ModelFolder(path))
            hello = self._process.start()
            _check_same(resolved.config, hello)
        except BaseException:
            self._process.close()
            raise
        super().__init__(texts, Summary(**hello.summary), mailboxes)

    def deadline(self, seconds: float) -> float:
        """The moment so many seconds from now, for `RequestContext.deadline`."""
        return time.monotonic() + seconds  # of this process; the engine gets what is left

    def _engine(self) -> RunningEngine:
        return self._process

    async def close(self, *, drain: bool = False) -> None:
        """Stop the engine. drain: let it finish all requests before, but take no new ones."""
        await asyncio.to_thread(self._process.close, drain=drain)


def _check_same(config: Config, hello: Hello) -> None:
    """Raise `PluginError` if what is installed changed while the other process started."""
    if hello.version != __version__:
        raise PluginVersionError(
            f"the engine's process runs Jackfield {hello.version}, this one {__version__}; "
            f"start again"
        )
    theirs = Fingerprint(hello.digest, tuple(hello.plugins))
    expected_fingerprint(config, discover_all(), theirs).check_same(theirs)
