"""What happens when the engine's process, or the one that started it, ends or hangs."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jackfield import RequestOutput, SamplingParams
from jackfield.core.api import CheckpointError, ConfigError, EngineStoppedError, ModelNotFound
from jackfield.core.remote_llm import RemoteLLM
from jackfield.core.testing.tiny_model import write_tiny_model

LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
HANGING = """
import ctypes
import time

from jackfield.core.api import Discipline, PolicyConfig, hookimpl

class Hanging(Discipline[None]):
    class Config(PolicyConfig):
        keep_lock: bool = False

    def __init__(self, config, context):
        self._library = ctypes.PyDLL(None) if config.keep_lock else None

    @hookimpl
    def shape(self, step):
        self._library.sleep(60) if self._library else time.sleep(60)
"""
PARENT = """
import asyncio
import sys

from jackfield import SamplingParams
from jackfield.core.remote_llm import RemoteLLM

async def main():
    llm = RemoteLLM(sys.argv[1], max_num_seqs=4, **{"kernel.stack": ["torch"]})
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    async for output in llm.generate("one two", params):
        pass
    answered = len(output.outputs[0].token_ids)
    print(answered, "torch" in sys.modules, *sys.argv[2:], flush=True)
    if sys.argv[2:] != ["leave"]:
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def last(llm: RemoteLLM, params: SamplingParams = LONG) -> RequestOutput:
    outputs = [output async for output in llm.generate("the cat sat", params)]
    return outputs[-1]


async def test_a_killed_engine_ends_every_stream(
    folder: Path, small: dict[str, Any], processes: Any
) -> None:
    llm = RemoteLLM(folder, **small)
    (engine,) = processes.engines_of(os.getpid())
    tasks = [asyncio.create_task(last(llm)) for _ in range(40)]
    await processes.until(lambda: llm.metrics().running > 0 or any(t.done() for t in tasks))
    assert not all(task.done() for task in tasks)
    os.kill(engine, signal.SIGKILL)
    async with asyncio.timeout(2):
        found = await asyncio.gather(*tasks, return_exceptions=True)
    dead = [item for item in found if isinstance(item, EngineStoppedError)]
    assert dead and "killed by SIGKILL" in str(dead[0])
    assert all(isinstance(item, EngineStoppedError | RequestOutput) for item in found)
    health = llm.health()
    assert not health.alive and "SIGKILL" in str(health.reason)
    for ask in (last(llm), llm.explain("x")):
        with pytest.raises(EngineStoppedError, match="SIGKILL"):
            await ask
    await llm.close()
    assert not processes.runs(engine)
    assert processes.engines_of(os.getpid()) == []


async def test_closing_ends_open_streams_and_the_process(
    folder: Path, small: dict[str, Any], processes: Any
) -> None:
    llm = RemoteLLM(folder, **small)
    stream = llm.generate("the cat", LONG)
    waiting = [asyncio.create_task(last(llm)) for _ in range(40)]
    await anext(stream)
    os.kill(processes.engines_of(os.getpid())[0], signal.SIGINT)  # as Ctrl-C does
    await llm.close()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    closed = [item for item in found if isinstance(item, EngineStoppedError)]
    assert closed and "the engine is closed" in str(closed[0])
    with pytest.raises(EngineStoppedError, match="closed"):
        await last(llm)
    await llm.close()
    assert processes.engines_of(os.getpid()) == []
    await stream.aclose()


async def test_a_frozen_engine_is_seen(
    folder: Path, small: dict[str, Any], processes: Any
) -> None:
    llm = RemoteLLM(folder, **small)
    (engine,) = processes.engines_of(os.getpid())
    await processes.until(lambda: llm.health().heartbeat_age < 0.2)
    os.kill(engine, signal.SIGSTOP)
    await processes.until(lambda: llm.health().heartbeat_age > 0.9)
    assert llm.health().alive
    os.kill(engine, signal.SIGCONT)
    await processes.until(lambda: llm.health().heartbeat_age < 0.2)
    assert (await last(llm)).finished
    await llm.close()


@pytest.mark.parametrize("drain", [False, True])
async def test_a_frozen_engine_is_not_waited_for(
    folder: Path,
    small: dict[str, Any],
    processes: Any,
    monkeypatch: pytest.MonkeyPatch,
    drain: bool,
) -> None:
    """Closing ends it by its silence, long before the time that a living one has."""
    monkeypatch.setattr("jackfield.core.process.client.STOP_SECONDS", 1.5 if drain else 3600.0)
    llm = RemoteLLM(folder, **small)
    (engine,) = processes.engines_of(os.getpid())
    task = asyncio.create_task(last(llm))
    await processes.until(lambda: llm.metrics().running > 0 or task.done())
    os.kill(engine, signal.SIGSTOP)
    async with asyncio.timeout(8):
        await llm.close(drain=drain)
        found = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(found[0], EngineStoppedError | RequestOutput)
    assert not processes.runs(engine)
    assert llm.health().reason == "the engine is closed"


async def test_a_busy_engine_is_waited_for_while_it_drains(
    folder: Path, small: dict[str, Any], processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackfield.core.process.client.STOP_SECONDS", 3600.0)
    llm = RemoteLLM(folder, **small)
    tasks = [asyncio.create_task(last(llm)) for _ in range(12)]
    await asyncio.sleep(0)
    await llm.close(drain=True)
    lengths = [len(output.outputs[0].token_ids) for output in await asyncio.gather(*tasks)]
    assert lengths == [200] * 12


@pytest.mark.parametrize("keep_lock", [False, True])
async def test_a_hanging_step_ends_the_engine(
    folder: Path,
    small: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    keep_lock: bool,
) -> None:
    info = tmp_path / "hanging-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jackfield.v1.schedulers]\nhang = hanging:Hanging\n")
    (tmp_path / "hanging.py").write_text(HANGING)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = {
        "scheduler.advisors": ["hang"],
        "scheduler.hang.keep_lock": keep_lock,
        "engine.watchdog": 0.5,
    }
    llm = RemoteLLM(folder, **small, **options)
    reason = "ended with exit code 1" if keep_lock else "has not returned within engine.watchdog"
    with pytest.raises(EngineStoppedError, match=reason):
        async with asyncio.timeout(8):
            await last(llm)
    assert not llm.health().alive
    await llm.close()
    assert 'hanging.py", line' in capfd.readouterr().err


async def test_a_failed_start_raises_what_the_engine_met(
    tmp_path: Path, small: dict[str, Any], processes: Any
) -> None:
    broken = write_tiny_model(tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"model\.safetensors") as found:
        RemoteLLM(broken, **small)
    assert type(found.value) is CheckpointError and found.value.exit_code == 4
    with pytest.raises(ModelNotFound, match="does not exist"):
        RemoteLLM(tmp_path / "none", **small)
    with pytest.raises(ConfigError, match="cannot be sent"):
        RemoteLLM(broken, **small, **{"scheduler.fcfs.x": object()})
    assert processes.engines_of(os.getpid()) == []


@pytest.mark.parametrize("end", ["leave", "killed"])
def test_the_engine_ends_with_its_parent(folder: Path, processes: Any, end: str) -> None:
    """Also: the parent needs no torch."""
    command = [sys.executable, "-c", PARENT, str(folder), end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        engines = [] if end == "leave" else None
        assert parent.stdout.readline() == f"3 False {end}\n"
        if engines is None:
            engines = processes.engines_of(parent.pid)
            assert len(engines) == 1
            parent.kill()
        parent.wait(10)
        limit = time.monotonic() + 5
        while any(processes.runs(engine) for engine in engines):
            assert time.monotonic() < limit, "the engine outlived its parent"
            time.sleep(0.02)
    assert parent.returncode == (0 if end == "leave" else -signal.SIGKILL)
