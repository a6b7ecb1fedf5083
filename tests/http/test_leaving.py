"""Clients that go away: in the queue, while the prompt is read, and while an answer is written."""

import json
import socket
import time
from typing import Any

import pytest

LONG: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True}
PATH = "/v1/completions"


def sent(site: Any, **body: Any) -> socket.socket:
    return site.raw(PATH, json.dumps({**LONG, **body}).encode())


def steps_after(site: Any) -> int:
    """Steps from now until the engine has nothing left."""
    before = site.llm.assembly.engine.metrics.steps
    site.settled()
    return int(site.llm.assembly.engine.metrics.steps - before)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_while_an_answer_is_written(slow: Any, stream: bool, n: int) -> None:
    engine = slow.llm.assembly.engine
    before = engine.metrics.output_tokens
    connection = sent(slow, prompt="the cat", stream=stream, n=n)
    slow.until(lambda: engine.metrics.output_tokens > before + 5 * n)
    connection.close()
    assert steps_after(slow) < 60
    assert engine.metrics.output_tokens - before < 100 * n


@pytest.mark.parametrize("stream", [False, True])
def test_in_the_queue(slow: Any, stream: bool) -> None:
    engine = slow.llm.assembly.engine
    tree = engine.lifecycle.tree
    crowd = sent(slow, prompt=[f"{place} cats" for place in range(8)])
    slow.until(lambda: len(engine.lifecycle.planner.running) == 8)
    waiting = sent(slow, prompt="one two", stream=stream)
    slow.until(lambda: len(tree) == 1)
    waiting.close()
    slow.until(lambda: len(tree) == 0)
    assert len(engine.lifecycle.planner.running) == 8
    crowd.close()
    slow.settled()


def test_while_a_prompt_is_read(folder: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(folder, max_num_batched_tokens=8) as site:
        engine = site.llm.assembly.engine
        step = engine.step

        def later() -> Any:
            time.sleep(0.01)
            return step()

        monkeypatch.setattr(engine, "step", later)
        connection = sent(site, prompt=[70] * 200)
        site.until(lambda: engine.metrics.prompt_tokens > 16)
        connection.close()
        site.settled()
        assert engine.metrics.output_tokens == 0
        assert engine.metrics.prompt_tokens < 200


def test_one_of_several_prompts_is_left_with_the_others(slow: Any) -> None:
    engine = slow.llm.assembly.engine
    connection = sent(slow, prompt=["the cat", "one two", "seven"], stream=True)
    slow.until(lambda: len(engine.lifecycle.planner.running) == 3)
    connection.close()
    assert steps_after(slow) < 60


def test_gauges_are_zero_when_everybody_has_gone(slow: Any) -> None:
    engine = slow.llm.assembly.engine
    crowd = [sent(slow, prompt="the cat", stream=True) for _ in range(12)]
    slow.until(lambda: len(engine.lifecycle.planner.running) == 8)
    for connection in crowd:
        connection.close()
    slow.settled()
    lines = slow.http.get("/metrics").text.splitlines()
    for name in ("requests_running", "requests_waiting", "kv_usage"):
        assert f"jackfield_{name} 0.0" in lines
