"""Streams on which graphs are captured: each is one engine's, and then the next one's."""

from collections.abc import Callable
from threading import Lock

import torch

KINDS = 32
"""Streams that torch has of one priority; it gives them out in turn, so the same may come twice."""


class CaptureStreams:
    """Those of a process. A stream is kept for the next engine, and never lent to two at a time.

    cuBLAS is given scratch memory for every stream that it is called on, and graphs hold the
    address of that memory. Some versions of torch never give it back, so a new stream for each
    engine would leak; others do when any graph of the stream is destroyed, whoever else needs it.
    """

    def __init__(self, make: Callable[[torch.device], torch.cuda.Stream]) -> None:
        self._make = make
        self._lock = Lock()
        self._free: dict[torch.device, list[torch.cuda.Stream]] = {}
        self._lent: set[int] = set()

    def lend(self, device: torch.device) -> torch.cuda.Stream:
        """One that nobody else has. Raises `RuntimeError` if there is none."""
        with self._lock:
            free = self._free.setdefault(device, [])
            stream = free.pop() if free else self._new(device)
            self._lent.add(stream.cuda_stream)
            return stream

    def give_back(self, stream: torch.cuda.Stream, device: torch.device) -> None:
        """All graphs that were captured on it are destroyed."""
        with self._lock:
            self._lent.remove(stream.cuda_stream)
            self._free[device].append(stream)

    def _new(self, device: torch.device) -> torch.cuda.Stream:
        for _ in range(KINDS):
            stream = self._make(device)
            if stream.cuda_stream not in self._lent:
                return stream
        raise RuntimeError(f"all {KINDS} streams of {device} are those of other engines")
