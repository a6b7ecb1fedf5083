"""`jackfield serve` as a process, for as long as clients need it."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENGINE = ("--dtype=float32", "--set=engine.threads=1", "--port=0")
START = "from jackfield.server.cli import main; raise SystemExit(main())"
START_LIMIT = 300.0
"""Seconds; the first start may have to fetch and convert the default model."""


@contextmanager
def serving(log: Path, *options: str) -> Iterator[str]:
    """The URL, without a path; `log` gets what the server tells. Raises RuntimeError."""
    clean = {name: value for name, value in os.environ.items() if name[:10] != "JACKFIELD_"}
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", START, "serve", *options, *ENGINE], stdout=file, stderr=file,
            env=clean,
        )  # fmt: skip
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(60)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith("listening") and line.endswith("\n"):
                url = line.split()[1].removesuffix("/v1")
                if _is_ready(url):
                    return url
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=10) as found:
            return bool(found.status == 200)
    except OSError:
        return False
