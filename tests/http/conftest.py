"""Servers on a real socket, each with an engine of its own, in threads."""

import importlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from jackfield import AsyncLLM
from jackfield.core.api import RequestContext
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.testing.scripted_folder import write_scripted_model
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.server.http.app import create_app
from jackfield.server.http.server import HttpServer, address, bind
from jackfield.server.http.settings import HttpSettings

SMALL: dict[str, Any] = {
    "block_size": 8,
    "num_gpu_blocks_override": 192,
    "max_num_seqs": 8,
    "kernel.stack": ["torch"],
    "engine.threads": 1,
    "progress": SilentProgress(),
}
METADATA = "Metadata-Version: 2.1\nName: scripted\nVersion: 1.0\n"
ENTRY_POINTS = (
    "[jackfield.v1.models]\nScripted = jackfield.core.testing.scripted_model:ScriptedModel\n"
)
COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
COMPANION: dict[str, Any] = {
    "prompt": "one two", "max_tokens": 40, "ignore_eos": True, "temperature": 0,
}  # fmt: skip
Ends = list[tuple[str, str | None]]


class Site:
    """A running server, and ways to talk to it."""

    def __init__(self, llm: AsyncLLM, bound: socket.socket, server: HttpServer) -> None:
        self.llm = llm
        self.server = server
        self.port: int = bound.getsockname()[1]
        self.url = address(bound)
        self.http = httpx.Client(base_url=self.url, timeout=20)
        self.openai = OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=20)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def events(self, path: str, **body: Any) -> list[Any]:
        """The documents of a stream, which must end as it should."""
        with self.http.stream("POST", path, json={**body, "stream": True}) as found:
            assert found.status_code == 200, found.read()
            lines = [line.removeprefix("data: ") for line in found.iter_lines() if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]

    def streamed(self, path: str, **body: Any) -> Ends:
        """Text and reason of each choice of a stream, in their order."""
        texts: dict[int, str] = {}
        ends: dict[int, list[str]] = {}
        for document in self.events(path, **body):
            for one in document["choices"]:
                piece = one["text"] if "text" in one else one["delta"].get("content") or ""
                texts[one["index"]] = texts.get(one["index"], "") + piece
                if one["finish_reason"]:
                    ends.setdefault(one["index"], []).append(one["finish_reason"])
        assert all(len(own) == 1 for own in ends.values()), ends
        return [(texts[index], *ends[index]) for index in sorted(texts)]

    def whole(self, path: str, **body: Any) -> Ends:
        """The same of an answer that is not streamed."""
        found = self.post(path, **body)
        assert found.status_code == 200, found.text
        return [
            (one["text"] if "text" in one else one["message"]["content"], one["finish_reason"])
            for one in found.json()["choices"]
        ]

    def everywhere(self, prompt: str, **more: Any) -> Ends:
        """One answer on both routes, whole and streamed."""
        talk = [{"role": "user", "content": prompt}]
        bodies = ((COMPLETE, {"prompt": prompt}), (CHAT, {"messages": talk}))
        return [
            end
            for path, ask in bodies
            for found in (self.whole, self.streamed)
            for end in found(path, **{"temperature": 0, "max_tokens": 40, **ask, **more})
        ]

    @contextmanager
    def accompanied(self, **change: Any) -> Iterator[None]:
        """Two streams are open all the time, again and again; all must be what one is alone."""
        body = {**COMPANION, **change}
        [alone] = self.streamed(COMPLETE, **body)
        found: Ends = []
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                found.extend(self.streamed(COMPLETE, **body))

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            yield
        finally:
            over.set()
            for reader in readers:
                reader.join(20)
        assert len(found) >= 2 and set(found) == {alone}

    @contextmanager
    def watched(self) -> Iterator[list[RequestContext]]:
        """The contexts of the requests that the engine's front is given."""
        seen: list[RequestContext] = []
        follow = self.llm.follow

        def watch(*given: Any, **more: Any) -> Any:
            seen.append(more["context"])
            return follow(*given, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.llm, "follow", watch)
            yield seen

    def refusal(self, found: httpx.Response, param: str | None, status: int = 400) -> str:
        """The message of a refusal, which has the one shape that clients know."""
        assert found.status_code == status, found.text
        assert found.headers["content-type"] == "application/json"
        error = json.loads(found.text, parse_constant=_no_constant)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["param"] == param, error
        message = str(error["message"])
        assert message and "\n" not in message and len(message) < 400
        return message

    def raw(self, path: str, body: bytes) -> socket.socket:
        """A connection on which a request was sent."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        made.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return made

    def settled(self) -> None:
        """Wait until the engine has nothing left; all seats and blocks must be free then. Blocks
        that are being copied to a tier are not, though nobody waits for them."""
        engine = self.llm.assembly.engine
        self.until(lambda: not engine.has_work and engine.is_idle)
        planner = engine.lifecycle.planner
        assert (planner.pool.num_free, planner.seats_left) == (planner.pool.num_blocks, 8)
        self.until(lambda: len(self.llm._mailboxes) == 0)

    @staticmethod
    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.005)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@contextmanager
def serving(
    folder: Path, settings: HttpSettings | None = None, *, backend: Any = AsyncLLM, **engine: Any
) -> Iterator[Site]:
    llm = backend(folder, **{**SMALL, **engine})
    bound = bind("127.0.0.1", 0)
    server = HttpServer(create_app(llm, settings), drain_timeout=10)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    Site.until(lambda: server.started)
    site = Site(llm, bound, server)
    try:
        yield site
    finally:
        site.http.close()
        site.openai.close()
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server does not end"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def site(folder: Path) -> Iterator[Site]:
    """The tiny model without keys."""
    with serving(folder) as made:
        yield made


@pytest.fixture(scope="session")
def serve() -> Callable[..., Any]:
    """A context manager: `serve(folder, settings, **engine)`."""
    return serving


@pytest.fixture
def slow(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Each step takes so long that no long answer ends before a test interferes."""
    step = site.llm.assembly.engine.step

    def later() -> Any:
        time.sleep(0.004)
        return step()

    monkeypatch.setattr(site.llm.assembly.engine, "step", later)
    return site


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Takes what `write_scripted_model` takes after the folder, and gives the folder."""
    installed = tmp_path_factory.mktemp("site")
    info = installed / "scripted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        importlib.invalidate_caches()
        yield lambda *arguments, **options: write_scripted_model(
            tmp_path_factory.mktemp("scripted"), *arguments, **options
        )
