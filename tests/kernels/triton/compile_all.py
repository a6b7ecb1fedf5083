"""Compiles all cases of the files beside it for one architecture; prints a JSON line for each.

`python compile_all.py 90 [part of a name]`, without TRITON_INTERPRET in the environment.
"""

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiling import Case, compile_case


def all_cases() -> Iterator[Case]:
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        yield from importlib.import_module(path.stem).cases()


def line(case: Case, arch: int) -> dict[str, Any]:
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
    for case in all_cases():
        if part in case.name and (not case.archs or arch in case.archs):
            print(json.dumps(line(case, arch)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3])
