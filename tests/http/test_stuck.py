"""An engine that does not die and does not work: frozen, or stuck in a step."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.remote_llm import RemoteLLM
from jackfield.server.http.app import create_app
from jackfield.server.http.backend import Patience
from jackfield.server.http.server import HttpServer, address, bind
from jackfield.server.http.settings import HttpSettings

SMALL: dict[str, Any] = {
    "num_gpu_blocks_override": 64, "max_num_seqs": 4, "kernel.stack": ["torch"],
    "engine.threads": 1, "progress": SilentProgress(),
}  # fmt: skip
SETTINGS = HttpSettings(patience=Patience(silence=0.8, longest_step=0.5))
STUCK = """
import time

from jackfield.core.api import Discipline, PolicyConfig, hookimpl

class Stuck(Discipline[None]):
    Config = PolicyConfig

    def __init__(self, config, context):
        pass

    @hookimpl
    def shape(self, step):
        time.sleep(3600)
"""


class Site:
    """A server in a thread, in front of an engine process."""

    def __init__(self, llm: RemoteLLM, url: str) -> None:
        self.llm = llm
        self.http = httpx.Client(base_url=url, timeout=10)
        children = psutil.Process().children()
        (self.engine,) = (one.pid for one in children if "engine_process" in str(one.cmdline()))

    def status(self, path: str) -> int:
        return self.http.get(path).status_code

    def until(self, path: str, status: int) -> httpx.Response:
        """Ask until the answer has that status; a few seconds at most."""
        for _ in range(500):
            found = self.http.get(path)
            if found.status_code == status:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{path} never answers {status}")


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Site]:
    llm = RemoteLLM(folder, **SMALL, **options)
    bound = bind("127.0.0.1", 0)
    server = HttpServer(create_app(llm, SETTINGS), drain_timeout=0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    site = Site(llm, address(bound))
    try:
        yield site
    finally:
        site.http.close()
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server does not end"


def check_live(site: Site) -> None:
    found = site.http.get("/live")
    assert found.status_code == 200
    assert found.json() == {"status": "live", "meaning": "the HTTP process answers"}


def test_a_frozen_engine_is_unhealthy_until_it_goes_on(folder: Path) -> None:
    with serving(folder) as site:
        site.until("/health", 200)
        os.kill(site.engine, signal.SIGSTOP)
        try:
            found = site.until("/health", 503)
            assert "the engine's process has been silent for" in found.text
            assert site.status("/ready") == 503
            assert "jackfield_engine_up 0.0" in site.http.get("/metrics").text.splitlines()
            check_live(site)
        finally:
            os.kill(site.engine, signal.SIGCONT)
        assert site.until("/health", 200).json() == {"status": "ok"}
        assert site.status("/ready") == 200
        made = site.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 2})
        assert made.status_code == 200


def test_a_server_ends_soon_before_a_frozen_engine(folder: Path) -> None:
    with serving(folder) as site:
        os.kill(site.engine, signal.SIGSTOP)
    assert not psutil.pid_exists(site.engine)


def test_a_hook_that_never_returns_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "stuck-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stuck\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jackfield.v1.schedulers]\nstuck = stuck:Stuck\n")
    (tmp_path / "stuck.py").write_text(STUCK)
    monkeypatch.syspath_prepend(str(tmp_path))
    with serving(folder, **{"scheduler.advisors": ["stuck"]}) as site:
        site.until("/health", 200)
        errors: list[int] = []

        def ask() -> None:
            body = {"prompt": "x"}
            errors.append(site.http.post("/v1/completions", json=body, timeout=30).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        found = site.until("/health", 503)
        assert "a step of the engine has taken" in found.json()["error"]["message"]
        assert site.status("/ready") == 503
        check_live(site)
        os.kill(site.engine, signal.SIGKILL)
        asking.join(10)
        assert errors == [503]
