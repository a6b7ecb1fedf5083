"""Launches beside others: what is bound by memory and what is bound by products share a device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Beside:
    """A second stream of the device, made when it is first used.

    What is launched within it must not need what others launch meanwhile, and may not allocate.
    It may be part of a CUDA graph. Launches in it, and the next ones after it, do not begin early:
    there is no one kernel that they follow. Where there is no GPU, everything is done in turn.
    """

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    @contextmanager
    def __call__(self, device: torch.device) -> Iterator[None]:
        """Launches of the block begin after all before it, and go on after its end."""
        if device.type != "cuda":
            yield
            return
        stream = self._stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            yield

    def join(self, device: torch.device) -> None:
        """Whatever is launched from now on begins after what was launched in blocks."""
        if device.type == "cuda":
            torch.cuda.current_stream(device).wait_stream(self._stream(device))

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]
