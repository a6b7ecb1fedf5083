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
MOST_WORKERS = 16
WORKER = "jackfield.plugins.kernels.triton.compile_worker"
SECONDS = 300.0


@contextmanager
def rehearsal() -> Iterator[None]:
    """Within it, launches of kernels that were not launched before do nothing but say what they
    would need. All of that is compiled at its end."""
    major, minor = torch.cuda.get_device_capability()
    wanted: dict[tuple[str, str, str], Wanted] = {}

    def note(*, fn: Any, **told: Any) -> bool:
        data = told["compile"]["specialization_data"]
        found = Wanted(fn.module, fn.name, data, major * 10 + minor)
        wanted[found[:3]] = found
        return True

    before = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = note
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = before
    compile_all([one for one in wanted.values() if not is_compiled(one)])


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
