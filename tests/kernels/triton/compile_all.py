"""Compiles all cases of the files beside it for one architecture; prints a JSON line for each.

`python compile_all.py 90 [part of a name]`, without TRITON_INTERPRET in the environment.
Leaves some out, but for JACKFIELD_ALL_KERNELS=1.
"""

import gc
import importlib
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from compiling import Case, compile_case


@cache
def all_cases() -> list[Case]:
    paths = sorted(Path(__file__).parent.glob("cases_*.py"))
    return [case for path in paths for case in importlib.import_module(path.stem).cases()]


def is_wanted(index: int, arch: int, part: str) -> bool:
    """Cases that are the same for all architectures are compiled for one of them, in turn."""
    case = all_cases()[index]
    if part not in case.name or (case.archs and arch not in case.archs):
        return False
    if os.environ.get("JACKFIELD_ALL_KERNELS") == "1":
        return True
    return not case.extra and (bool(case.archs) or arch == (80, 90)[index % 2])


def line(index: int, arch: int) -> dict[str, Any]:
    """Of a case that is told by its place, since kernels cannot be sent to another process."""
    case = all_cases()[index]
    began = time.perf_counter()
    found: dict[str, Any] = {"name": case.name, "min_buffers": case.min_buffers, "error": None}
    try:
        report = compile_case(case, arch)
    except Exception as error:  # one that does not compile must not hide the others
        return {**found, "error": f"{type(error).__name__}: {error}"}
    facts = report._asdict()
    del facts["ptx"]
    return {**found, **facts, "seconds": round(time.perf_counter() - began, 2)}


def main(arch: int, part: str = "") -> None:
    wanted = [index for index in range(len(all_cases())) if is_wanted(index, arch, part)]
    gc.freeze()  # a collection that looked at torch would take long, and copy it for each process
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        for found in pool.map(line, wanted, [arch] * len(wanted)):
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3])
