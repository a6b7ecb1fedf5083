"""What a model counts of its experts, for whoever asks.

Shape suffixes: L layers that have experts, E experts.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from time import monotonic, sleep

import torch

from jackfield.core.api import CountsExperts, ExpertHistogram

PATIENCE = 0.05
"""Seconds that a caller waits at most: one of them watches whether the device hangs."""
GLANCE = 0.0002
"""Seconds between two looks at a copy under way."""

ExpertCounts = Mapping[int, Sequence[int]]
"""By layer: how many tokens each of its experts got."""


class ExpertReader:
    """Copies the counters to the host on a stream of its own, behind nothing that is computed.

    May be asked by any thread. What was collected before the question is counted, of steps under
    way perhaps a part. Where the copy takes too long, the answer is that of the one before.
    """

    def __init__(self, histogram: ExpertHistogram) -> None:
        self._layers = list(histogram.layers)
        self._counts_LE = histogram.counts_LE
        self._lock = Lock()
        self._found: ExpertCounts = {}
        on_gpu = self._counts_LE.device.type == "cuda"
        self._copy = _SideCopy(self._counts_LE) if on_gpu else None

    @staticmethod
    def of(model: object) -> "ExpertReader | None":
        """From 0 on: what has run so far were no requests. None = the model counts nothing. Called
        by the thread that runs the model."""
        histogram = model.expert_histogram() if isinstance(model, CountsExperts) else None
        if histogram is None:
            return None
        with torch.inference_mode():
            histogram.counts_LE.zero_()
        return ExpertReader(histogram)

    def read(self) -> ExpertCounts:
        """The counters as they are."""
        with self._lock:
            if self._copy is None:
                self._found = self._named(self._counts_LE)
            elif (copied_LE := self._copy.latest(PATIENCE)) is not None:
                self._found = self._named(copied_LE)
            return self._found

    def _named(self, counts_LE: torch.Tensor) -> ExpertCounts:
        return dict(zip(self._layers, counts_LE.tolist(), strict=True))


class _SideCopy:
    """One copy at a time, to locked memory."""

    def __init__(self, counts_LE: torch.Tensor) -> None:
        self._device_LE = counts_LE
        self._host_LE = torch.empty(counts_LE.shape, dtype=counts_LE.dtype, pin_memory=True)
        self._stream = torch.cuda.Stream(counts_LE.device)  # type: ignore[no-untyped-call]
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._is_under_way = False

    def latest(self, patience: float) -> torch.Tensor | None:
        """None = it is not there after so many seconds; the next call will find it."""
        if not self._is_under_way:
            with torch.cuda.stream(self._stream):
                self._host_LE.copy_(self._device_LE, non_blocking=True)
                self._done.record(self._stream)
            self._is_under_way = True
        end = monotonic() + patience
        while not self._done.query():  # type: ignore[no-untyped-call]
            if monotonic() > end:
                return None
            sleep(GLANCE)
        self._is_under_way = False
        return self._host_LE
