"""Compiles what a sweep will launch, in processes of their own."""

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter
from typing import Any


def compile_jobs(
    compile_one: Callable[..., object], jobs: Mapping[Any, tuple[Any, ...]], workers: int
) -> None:
    """jobs: by what they are called where one fails, the arguments of each. Failures are told, and
    end nothing: a sweep sees them again where it launches."""
    began = perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        done = {name: pool.submit(compile_one, *job) for name, job in jobs.items()}
        for name, future in done.items():
            if future.exception() is not None:
                print("a configuration failed:", name, future.exception(), file=sys.stderr)
    print(f"compiled {len(jobs)} configurations in {perf_counter() - began:.0f} s", flush=True)
