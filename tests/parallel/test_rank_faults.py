"""Ranks that fail, hang, differ or die: steps fail alike, or all end together, and soon."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.api import (
    ConfigError,
    EngineStoppedError,
    JackfieldError,
)
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.remote_llm import RemoteLLM
from jackfield.core.testing.ranks import rank_processes, ranked_llm
from jackfield.core.testing.tiny_model import write_tiny_model

LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
PROMPT = {"prompt_token_ids": [5, 6, 7]}
SOON = 5.0
FAULTY = """
import ctypes
import os
import sys
import time
from pathlib import Path

from torch.nn.functional import rms_norm

from jackfield.core.api import KernelPlugin, PolicyConfig

class Faulty(KernelPlugin):
    class Config(PolicyConfig):
        file: str = ""

    def __init__(self, config):
        self._file = Path(config.file)

    def operations(self):
        return {"rms_norm": FaultyNorm(self._file)}

class FaultyNorm:
    def __init__(self, file):
        self._file = file
        self._rank = 0

    def unsupported(self, spec, device):
        self._rank = spec.ranks.rank
        self._do("bind")
        return []

    def capturable(self):
        return True

    def __call__(self, x, weight, eps):
        self._do("step")
        return rms_norm(x, weight.shape, weight, eps)

    def _do(self, where):
        if not self._file.exists():
            return
        when, what, who = self._file.read_text().split()
        if when != where or who not in ("all", str(self._rank)):
            return
        if what == "raise":
            raise RuntimeError(f"a fault on rank {self._rank}")
        if what == "memory":
            raise RuntimeError("not enough memory: you tried to allocate 5 bytes")
        if what == "sleep":
            time.sleep(60)
        if what == "keep":
            ctypes.PyDLL(None).sleep(60)
        if what == "crash":
            ctypes.string_at(0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


class Faults:
    """A kernel that does what a file says."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.settings = {"kernel.stack": ["faulty", "torch"], "kernel.faulty.file": str(file)}

    def say(self, what: str) -> None:
        """When, what, and on which rank."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(what)
        fresh.replace(self._file)

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faults:
    info = tmp_path / "faulty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jackfield.v1.kernels]\nfaulty = faulty:Faulty\n")
    (tmp_path / "faulty.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Faults(tmp_path / "fault")


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("jackfield.core.process.rank_group.ALIKE_SECONDS", 1.0)
    yield
    assert rank_processes() == []


def reason(llm: LLM) -> str:
    """What a call says that cannot be answered any more; it says so soon, and again."""
    began = time.monotonic()
    with pytest.raises(EngineStoppedError) as found:
        llm.generate([PROMPT] * 8, LONG, use_tqdm=False)
    assert time.monotonic() - began < SOON + 5
    with pytest.raises(EngineStoppedError) as again:
        llm.generate([PROMPT], SHORT, use_tqdm=False)
    assert str(found.value) in str(again.value)
    return str(found.value)


def answers(llm: LLM) -> list[tuple[str | None, int]]:
    outputs = llm.generate([PROMPT] * 2, SHORT, use_tqdm=False)
    return [(one.outputs[0].finish_reason, len(one.outputs[0].token_ids)) for one in outputs]


def test_a_step_that_fails_on_all_costs_its_requests(folder: Path, faults: Faults) -> None:
    """Then one that fails on one of them costs everything."""
    with ranked_llm(folder, 2, **faults.settings) as llm:
        assert answers(llm) == [("length", 4)] * 2
        for what in ("raise", "memory"):
            faults.say(f"step {what} all")
            assert answers(llm) == [("error", 0)] * 2
            faults.clear()
            assert answers(llm) == [("length", 4)] * 2
        assert llm.assembly.engine.metrics.out_of_memory_steps == 1
        faults.say("step raise 1")
        told = reason(llm)
        assert re.search(r"step \d+ failed on rank 1 and not on rank 0: .*a fault on rank 1", told)
        assert rank_processes() == []


def test_a_step_that_fails_on_the_first_alone(folder: Path, faults: Faults) -> None:
    with ranked_llm(folder, 2, **faults.settings) as llm:
        faults.say("step raise 0")
        assert "failed on rank 0 and not on rank 1" in reason(llm)


@pytest.mark.parametrize("what", ["sleep", "keep"])
def test_a_rank_that_hangs_is_named(
    folder: Path, faults: Faults, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ranked_llm(folder, 2, **faults.settings, **{"engine.watchdog": 1.0}) as llm:
        assert answers(llm) == [("length", 4)] * 2
        faults.say(f"step {what} 1")
        told = reason(llm)
        assert "rank 1 has not finished step" in told and "engine.watchdog = 1 seconds" in told
        assert 'faulty.py", line' in told
        assert "in __call__" in caplog.text and "rank 0 is here" in caplog.text


async def test_a_rank_that_hangs_is_named_by_the_process_of_the_engine(
    folder: Path, faults: Faults
) -> None:
    llm = RemoteLLM(
        folder, tensor_parallel_size=2, num_gpu_blocks_override=64, max_num_seqs=4,
        progress=SilentProgress(), **faults.settings,
        **{"engine.watchdog": 1.0, "engine.threads": 1},
    )  # fmt: skip
    faults.say("step sleep 1")
    with pytest.raises(EngineStoppedError, match=r"rank 1 has not finished step 0 .*faulty\.py"):
        async for _ in llm.generate("the cat", SHORT):
            pass
    await llm.close()


def test_a_rank_that_crashes_leaves_its_stack(
    folder: Path, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    with ranked_llm(folder, 2, **faults.settings) as llm:
        faults.say("step crash 1")
        told = reason(llm)
        assert "was killed by SIGSEGV" in told and "its last stacks are in the log" in told
        assert "faulty.py" in caplog.text


def test_a_rank_that_is_killed_under_load(folder: Path) -> None:
    with ranked_llm(folder, 2) as llm:
        (rank,) = rank_processes()
        killer = threading.Timer(0.3, lambda: os.kill(rank.pid, signal.SIGKILL))
        began = time.monotonic()
        killer.start()
        with pytest.raises(EngineStoppedError, match=r"step \d+ rank 1 .*killed by SIGKILL"):
            llm.generate([PROMPT] * 300, LONG, use_tqdm=False)
        assert time.monotonic() - began < SOON


def test_a_rank_that_is_killed_while_nothing_runs(folder: Path) -> None:
    with ranked_llm(folder, 2) as llm:
        (rank,) = rank_processes()
        rank.kill()
        psutil.wait_procs([rank], timeout=SOON)
        assert "rank 1" in reason(llm)


def test_a_rank_that_is_killed_at_the_start(folder: Path, faults: Faults) -> None:
    def kill() -> None:
        while not rank_processes():
            time.sleep(0.01)
        time.sleep(0.2)
        rank_processes()[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(EngineStoppedError, match=r"while it started rank 1 .*SIGKILL"):
        ranked_llm(folder, 2)
    killer.join()


def test_a_rank_that_cannot_start_says_why(folder: Path, faults: Faults) -> None:
    faults.say("bind raise 1")
    with pytest.raises(JackfieldError, match=r"on rank 1: .*a fault on rank 1"):
        ranked_llm(folder, 2, **faults.settings)


def test_a_rendezvous_that_never_completes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jackfield.core.process.rank_member.MODULE", "jackfield.core.testing.silent_rank"
    )
    told = r"1 of 2 ranks have come to .* within parallel.timeout = 1 seconds; not there: rank 1"
    with pytest.raises(ConfigError, match=told):
        ranked_llm(folder, 2, **{"parallel.timeout": 1.0})
