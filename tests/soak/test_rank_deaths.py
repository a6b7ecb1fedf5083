"""Twenty deaths of each process of `jackfield serve` with two ranks: under load, and at the start.

Each round's server takes the port of the one before, at once.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from jackfield.core.testing.ranks import rank_processes
from jackfield.core.testing.tiny_model import write_tiny_model

START = "from jackfield.server.cli import main; raise SystemExit(main())"
ROUNDS = 20
STREAMS = 12
SOON = 5.0
STOPPED = 6
LONG = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "temperature": 0, "stream": True}
WHO = ("front", "engine", "rank")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@contextmanager
def starting(folder: Path, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-c", START, "serve", str(folder), "--tensor-parallel-size=2",
        "--num-gpu-blocks-override=64", "--set=engine.threads=1", '--set=kernel.stack=["torch"]',
        "--max-num-seqs=4", f"--port={port}", "--drain-timeout=1",
    ]  # fmt: skip
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def listening(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + 60
    while True:
        found = [line for line in log.read_text().splitlines() if line.startswith("listening")]
        if found:
            return int(found[0].rpartition(":")[2].removesuffix("/v1"))
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def target(process: subprocess.Popen[bytes], who: str) -> int | None:
    """The process to kill; None = it is not there yet."""
    if who == "front":
        return process.pid
    children = psutil.Process(process.pid).children(recursive=True)
    if who == "rank":
        ranks = rank_processes(process.pid)
        return ranks[0].pid if ranks else None
    engines = [one for one in children if "engine_process" in " ".join(one.cmdline())]
    return engines[0].pid if engines else None


def kill(process: subprocess.Popen[bytes], who: str, code: int | None) -> None:
    """Everybody goes, soon."""
    everybody = psutil.Process(process.pid).children(recursive=True)
    pid = target(process, who)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert process.wait(2 * SOON) == (-signal.SIGKILL if who == "front" else code)
    assert psutil.wait_procs(everybody, timeout=SOON)[1] == []


def stream(port: int, ends: list[str]) -> None:
    try:
        url = f"http://127.0.0.1:{port}/v1/completions"
        with httpx.stream("POST", url, json=LONG, timeout=30) as found:
            ends.append([line for line in found.iter_lines() if line][-2:][0])
    except httpx.TransportError as error:
        ends.append(type(error).__name__)


@pytest.mark.parametrize("who", WHO)
def test_deaths_under_load(folder: Path, tmp_path: Path, who: str) -> None:
    port, log = 0, tmp_path / "log"
    for _ in range(ROUNDS):
        with starting(folder, port, log) as process:
            port = listening(process, log)
            ends: list[str] = []
            threads = [threading.Thread(target=stream, args=(port, ends)) for _ in range(STREAMS)]
            for thread in threads:
                thread.start()
            time.sleep(random.uniform(0.1, 0.6))
            kill(process, who, STOPPED)
            for thread in threads:
                thread.join(2 * SOON)
            assert len(ends) == STREAMS
            if who == "rank":
                assert any("rank 1" in end for end in ends), ends


@pytest.mark.parametrize("who", WHO)
def test_deaths_at_the_start(folder: Path, tmp_path: Path, who: str) -> None:
    for _ in range(ROUNDS):
        with starting(folder, 0, tmp_path / "log") as process:
            while target(process, who) is None:
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(random.uniform(0.0, 4.0))
            kill(process, who, STOPPED)
