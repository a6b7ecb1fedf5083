"""`jackfield serve` when one of its two processes is killed under load."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from jackfield.core.testing.tiny_model import write_tiny_model

START = "from jackfield.server.cli import main; raise SystemExit(main())"
POSITIONS = 4096
ENGINE = (
    "--num-gpu-blocks-override=6000", "--set=engine.threads=1", '--set=kernel.stack=["torch"]',
    "--max-num-seqs=20",
)  # fmt: skip
LONG = {"prompt": "x", "max_tokens": POSITIONS - 16, "ignore_eos": True, "temperature": 0}
COMPLETIONS = "/v1/completions"
STREAMS, WHOLES = 16, 4
STOPPED = 6
SOON = 10.0
ORPHANED = 5.0


class Server:
    """A running `jackfield serve`. children: its processes, the engine's among them."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.children = psutil.Process(process.pid).children(recursive=True)

    def kill_engine(self) -> None:
        (engine,) = (one for one in self.children if "engine_process" in " ".join(one.cmdline()))
        os.kill(engine.pid, signal.SIGKILL)

    def childless(self, seconds: float) -> None:
        """All children go within that time."""
        _, left = psutil.wait_procs(self.children, timeout=seconds)
        assert left == []


@contextmanager
def serving(folder: Path, log: Path, port: int) -> Iterator[Server]:
    clean = {name: value for name, value in os.environ.items() if name[:10] != "JACKFIELD_"}
    command = [sys.executable, "-c", START, "serve", str(folder), *ENGINE, f"--port={port}"]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors, stdout=errors, env=clean)
    try:
        yield Server(process, _listening(process, log))
    finally:
        process.kill()
        process.wait()


def _listening(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + 60
    while True:
        found = [line for line in log.read_text().splitlines() if line.startswith("listening")]
        if found:
            return int(found[0].rpartition(":")[2].removesuffix("/v1"))
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers last for many seconds."""
    return long_model(tmp_path_factory.mktemp("patient"))


def long_model(folder: Path) -> Path:
    config = write_tiny_model(folder) / "config.json"
    settings = json.loads(config.read_text()) | {"max_position_embeddings": POSITIONS}
    config.write_text(json.dumps(settings))
    return folder


class Crowd:
    """Clients of one server, each with an open answer."""

    def __init__(self, server: Server, client: httpx.AsyncClient) -> None:
        self._server = server
        self._client = client
        self._begun = 0
        asks = (*(self._stream for _ in range(STREAMS)), *(self._whole for _ in range(WHOLES)))
        self.tasks = [asyncio.create_task(ask()) for ask in asks]

    async def _stream(self) -> list[str]:
        body = {**LONG, "stream": True}
        async with self._client.stream("POST", COMPLETIONS, json=body) as found:
            assert found.status_code == 200
            lines = [line async for line in self._noted(found)]
        return [line.removeprefix("data: ") for line in lines if line]

    async def _noted(self, found: httpx.Response) -> Any:
        first = True
        async for line in found.aiter_lines():
            self._begun += first
            first = False
            yield line

    async def _whole(self) -> httpx.Response:
        return await self._client.post(COMPLETIONS, json=LONG)

    async def answered(self) -> None:
        """Wait until all streams have begun and all requests run."""
        running = f"jackfield_requests_running {STREAMS + WHOLES}.0"
        async with asyncio.timeout(30):
            while True:
                metrics = (await self._client.get("/metrics")).text
                if self._begun == STREAMS and running in metrics.splitlines():
                    break
                await asyncio.sleep(0.05)
        assert not any(task.done() for task in self.tasks)

    async def ends(self) -> list[Any]:
        async with asyncio.timeout(SOON):
            return await asyncio.gather(*self.tasks, return_exceptions=True)


def check_ends(found: list[Any]) -> None:
    """No answer ends silently, and none looks complete."""
    assert len(found) == STREAMS + WHOLES
    for events in found[:STREAMS]:
        assert isinstance(events, list), events
        assert events[-1] == "[DONE]"
        error = json.loads(events[-2])["error"]
        assert error["code"] == "engine_stopped" and "SIGKILL" in error["message"]
    for response in found[STREAMS:]:
        assert isinstance(response, httpx.Response), response
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "engine_stopped"


async def refused(server: Server) -> None:
    """Every new request is, until nobody listens any more."""
    async with asyncio.timeout(SOON), httpx.AsyncClient(base_url=server.url, timeout=5) as client:
        while True:
            head = {"connection": "close"}
            try:
                found = await client.post(COMPLETIONS, json={"prompt": "x"}, headers=head)
            except httpx.ConnectError:
                return
            except (httpx.ReadError, httpx.RemoteProtocolError):
                continue  # it was connected when the server closed its door
            assert found.status_code == 503
            assert found.json()["error"]["code"] == "engine_stopped"


async def engine_dies(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        crowd = Crowd(server, client)
        await crowd.answered()
        server.kill_engine()
        check_ends(await crowd.ends())
        await refused(server)
    assert await asyncio.to_thread(server.process.wait, SOON) == STOPPED
    server.childless(1.0)


def deaths_of_the_engine(folder: Path, log: Path, rounds: int) -> None:
    """Each round's server takes the port of the one before, at once."""
    port = free_port()
    for _ in range(rounds):
        with serving(folder, log, port) as server:
            assert server.port == port
            asyncio.run(engine_dies(server))
            assert "SIGKILL" in log.read_text()


async def server_dies(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        crowd = Crowd(server, client)
        await crowd.answered()
        server.process.kill()
        found = await crowd.ends()
    assert all(isinstance(end, httpx.TransportError) for end in found), found
    await asyncio.to_thread(server.childless, ORPHANED)


def deaths_of_the_server(folder: Path, log: Path, rounds: int) -> None:
    port = free_port()
    for _ in range(rounds):
        with serving(folder, log, port) as server:
            asyncio.run(server_dies(server))


def test_the_engine_is_killed(patient: Path, tmp_path: Path) -> None:
    deaths_of_the_engine(patient, tmp_path / "log", rounds=2)


def test_the_server_is_killed(patient: Path, tmp_path: Path) -> None:
    deaths_of_the_server(patient, tmp_path / "log", rounds=1)
