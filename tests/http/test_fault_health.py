"""Health and metrics while the server is full: at once, and right afterwards."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

PATH = "/v1/completions"
CROWD = 256
LONG = {"prompt": "the cat", "max_tokens": 100, "ignore_eos": True, "stream": True}
GAUGES = ("requests_running", "requests_waiting", "requests_parked", "kv_usage")


@pytest.fixture
def standing(site: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The engine runs no step until the test is over."""
    engine, gate = site.llm.assembly.engine, threading.Event()
    step = engine.step

    def later() -> Any:
        gate.wait(20)
        return step()

    monkeypatch.setattr(engine, "step", later)
    yield site
    gate.set()
    site.settled()


def crowd(site: Any, count: int) -> list[socket.socket]:
    return [site.raw(PATH, json.dumps(LONG).encode()) for _ in range(count)]


def gauges(site: Any) -> dict[str, float]:
    lines = site.http.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(values[f"jackfield_{name}"]) for name in GAUGES}


def test_health_never_queues_behind_requests(standing: Any) -> None:
    """Not one of the crowd can be answered, and all that operators ask for is."""
    connections = crowd(standing, CROWD)
    series = "jackfield_http_requests_in_flight "
    standing.until(lambda: f"{series}{CROWD + 1}.0" in standing.http.get("/metrics").text)
    for path in ("/live", "/health", "/ready", "/version", "/metrics", "/v1/models") * 10:
        assert standing.http.get(path).status_code == 200
    for connection in connections:
        connection.close()


def test_gauges_fall_without_another_request(site: Any) -> None:
    connections = crowd(site, 20)
    running = site.llm.assembly.engine.lifecycle.planner.running
    site.until(lambda: len(running) == 8)
    for connection in connections:
        connection.close()
    site.settled()
    site.until(lambda: gauges(site) == dict.fromkeys(GAUGES, 0.0))
