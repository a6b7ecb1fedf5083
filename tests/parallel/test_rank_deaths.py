"""An engine of two ranks in a process of its own, when any of the processes dies."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from jackfield import RequestOutput, SamplingParams
from jackfield.core.api import EngineStoppedError
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.remote_llm import RemoteLLM
from jackfield.core.testing.ranks import rank_processes
from jackfield.core.testing.tiny_model import write_tiny_model

LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
SETTINGS: dict[str, Any] = {
    "tensor_parallel_size": 2, "num_gpu_blocks_override": 64, "max_num_seqs": 4,
    "kernel.stack": ["torch"], "engine.threads": 1, "progress": SilentProgress(),
}  # fmt: skip
SOON = 5.0
PARENT = """
import asyncio
import sys
from jackfield import SamplingParams
from jackfield.core.remote_llm import RemoteLLM

async def main():
    llm = RemoteLLM(
        sys.argv[1], max_num_seqs=4, tensor_parallel_size=2, num_gpu_blocks_override=64,
        **{"kernel.stack": ["torch"], "engine.threads": 1},
    )
    params = SamplingParams(max_tokens=200, ignore_eos=True)
    async for output in llm.generate("one two", params):
        print("begun", flush=True)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


async def last(llm: RemoteLLM) -> RequestOutput:
    return [output async for output in llm.generate("the cat sat", LONG)][-1]


async def test_a_killed_rank_ends_every_stream(folder: Path) -> None:
    others = set(psutil.Process().children(recursive=True))
    llm = RemoteLLM(folder, **SETTINGS)
    (rank,) = rank_processes()
    everybody = set(psutil.Process().children(recursive=True)) - others
    tasks = [asyncio.create_task(last(llm)) for _ in range(40)]
    while llm.metrics().running == 0:
        await asyncio.sleep(0.02)
    rank.kill()
    async with asyncio.timeout(SOON):
        found = await asyncio.gather(*tasks, return_exceptions=True)
    dead = [item for item in found if isinstance(item, EngineStoppedError)]
    assert dead and all(isinstance(one, EngineStoppedError | RequestOutput) for one in found)
    async with asyncio.timeout(SOON):
        while llm.health().alive:
            await asyncio.sleep(0.02)
    assert "rank 1" in str(llm.health().reason) and "SIGKILL" in str(llm.health().reason)
    with pytest.raises(EngineStoppedError, match="rank 1"):
        await last(llm)
    _, left = psutil.wait_procs(everybody, timeout=SOON)
    assert left == []
    await llm.close()


async def test_a_rank_that_is_killed_at_rest_is_missed(folder: Path) -> None:
    llm = RemoteLLM(folder, **SETTINGS)
    (rank,) = rank_processes()
    rank.send_signal(signal.SIGKILL)
    async with asyncio.timeout(SOON):
        while llm.health().alive:
            await asyncio.sleep(0.02)
    assert "rank 1" in str(llm.health().reason)
    await llm.close()
    assert rank_processes() == []


def test_ranks_go_with_the_front_of_the_engine(folder: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begun\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        (rank,) = rank_processes(parent.pid)
        (engine,) = (one for one in children if "engine_process" in " ".join(one.cmdline()))
        parent.kill()
        began = time.monotonic()
        _, left = psutil.wait_procs([rank, engine], timeout=SOON)
        assert left == [] and time.monotonic() - began < SOON
