"""Has all kernels compiled that some steps launch, in processes side by side."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from triton import knobs

from jackfield.plugins.kernels.triton.compiling import Wanted, is_compiled

log = logging.getLogger("jackfield.kernels")
FEW = 4
"""Kernels that are compiled sooner than processes start that could do it."""
MOST_WORKERS = 8
"""Each of them imports torch, which takes as long as a few compilations."""
WORKER = "jackfield.plugins.kernels.triton.compile_worker"
SECONDS = 300.0


class Nothing:
    """In the place of a kernel that is not compiled yet: launching it does nothing."""

    function = None
    packed_metadata = None

    def launch_metadata(self, *arguments: Any) -> None:
        """Asked for at every launch."""

    def run(self, *arguments: Any) -> None:
        """A launch."""


class Notes:
    """Takes note of kernels when they are launched for the first time, and keeps them from it."""

    def __init__(self, arch: int) -> None:
        self.wanted: list[Wanted] = []
        self._arch = arch
        self._replaced: list[tuple[dict[str, Any], str]] = []

    def __call__(self, *, key: str, fn: Any, **told: Any) -> bool:
        """As Triton calls it before it compiles; True = it need not."""
        data = told["compile"]["specialization_data"]
        self.wanted.append(Wanted(fn.module, fn.name, data, self._arch))
        compiled = fn.jit_function.device_caches[told["compile"]["device"]][0]
        compiled[key] = Nothing()
        self._replaced.append((compiled, key))
        return True

    def forget(self) -> None:
        """From now on launches are real."""
        for compiled, key in self._replaced:
            compiled.pop(key, None)


@contextmanager
def noted(arch: int) -> Iterator[Notes]:
    """Within it, kernels that were not launched before are not."""
    notes, before = Notes(arch), knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = notes
    try:
        yield notes
    finally:
        knobs.runtime.jit_cache_hook = before
        notes.forget()


@contextmanager
def rehearsal() -> Iterator[None]:
    """Within it, launches of kernels that were not launched before do nothing but say what they
    would need. All of that is compiled at its end."""
    major, minor = torch.cuda.get_device_capability()
    with noted(major * 10 + minor) as notes:
        yield
    compile_all([one for one in notes.wanted if not is_compiled(one)])


def compile_all(wanted: Sequence[Wanted]) -> None:
    """By as many processes as there are processors. What fails is compiled when it is launched."""
    if len(wanted) < FEW:
        return
    count = min(len(os.sched_getaffinity(0)), len(wanted), MOST_WORKERS)
    workers = [_start(wanted[place::count]) for place in range(count)]
    for worker in workers:
        _finish(worker)


def _start(wanted: Sequence[Wanted]) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    # Without devices nothing in it can take memory of one.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    worker = subprocess.Popen(
        [sys.executable, "-m", WORKER], stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe,
        text=True, env=environment,
    )  # fmt: skip
    assert worker.stdin is not None
    with worker.stdin as told:
        json.dump([list(one) for one in wanted], told)
    worker.stdin = None
    return worker


def _finish(worker: "subprocess.Popen[str]") -> None:
    try:
        _, errors = worker.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        log.warning("a process that compiles kernels took over %g s and was ended", SECONDS)
        return
    if worker.returncode:
        last = errors.strip().splitlines()[-1:] or ["it said nothing"]
        log.warning("a process that compiles kernels failed: %s", last[0])
