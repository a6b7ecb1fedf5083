"""What an engine of several ranks takes of its process, it gives back when it is closed."""

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch.distributed

from jackfield import LLM, AsyncLLM, SamplingParams
from jackfield.core.api import ConfigError
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.testing.ranks import rank_processes, ranked_llm
from jackfield.core.testing.tiny_model import write_tiny_model

SHORT = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
PROMPT = {"prompt_token_ids": [5, 6, 7]}
SETTINGS: dict[str, Any] = {
    "tensor_parallel_size": 2, "num_gpu_blocks_override": 64, "max_num_seqs": 4,
    "kernel.stack": ["torch"], "engine.threads": 1, "progress": SilentProgress(),
    "skip_tokenizer_init": True,
}  # fmt: skip
SOON = 5.0
SHARED = Path("/dev/shm")


class Holdings(NamedTuple):
    """Of this process."""

    doors: set[Any]
    sockets: int
    descriptors: int
    threads: int
    children: int
    shared: set[str]


def holdings() -> Holdings:
    process = psutil.Process()
    found = process.net_connections()
    return Holdings(
        {one.laddr for one in found if one.status == psutil.CONN_LISTEN},
        len(found),
        process.num_fds(),
        process.num_threads(),
        len(process.children(recursive=True)),
        set(os.listdir(SHARED)) if SHARED.is_dir() else set(),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def doors() -> set[Any]:
    """Where this process listens before."""
    gc.collect()
    return holdings().doors


def answer(llm: LLM) -> list[int]:
    (output,) = llm.generate([PROMPT], SHORT, use_tqdm=False)
    assert output.outputs[0].finish_reason == "length"
    return list(output.outputs[0].token_ids)


def test_one_engine_after_the_other_leaves_nothing(folder: Path, doors: set[Any]) -> None:
    kept, found, answers = [], [], []
    children = holdings().children  # of other tests
    gc.disable()  # it is not a collection that frees anything
    try:
        for _ in range(3):
            llm = ranked_llm(folder, 2)
            answers.append(answer(llm))
            assert holdings().doors > doors
            if not kept:
                refuse_another(folder)
                answers.append(answer(llm))
            llm.close()
            assert holdings().doors <= doors
            assert not torch.distributed.is_initialized()
            kept.append(llm)
            found.append(settled(found[0].threads if found else 0))
    finally:
        gc.enable()
    assert answers == answers[:1] * 4
    first, *others = found
    assert first.children == children and rank_processes() == []
    assert [one._replace(threads=0) for one in others] == [first._replace(threads=0)] * 2
    assert all(one.threads <= first.threads for one in others)


def refuse_another(folder: Path) -> None:
    """Which costs the one that is there nothing."""
    before = holdings().doors
    with pytest.raises(ConfigError, match=r"belongs to a group of torch\.distributed already"):
        ranked_llm(folder, 2)
    assert holdings().doors == before and len(rank_processes()) == 1


def settled(threads: int) -> Holdings:
    """A thread that has been joined may be seen a moment longer, by the system alone."""
    until = time.monotonic() + SOON
    while threads and holdings().threads > threads and time.monotonic() < until:
        time.sleep(0.01)
    return holdings()


async def test_an_engine_in_a_thread_leaves_nothing(folder: Path, doors: set[Any]) -> None:
    llm = AsyncLLM(folder, **SETTINGS)
    found = [output async for output in llm.generate(PROMPT, SHORT)]
    assert found[-1].outputs[0].finish_reason == "length"
    assert holdings().doors > doors
    await llm.close()
    assert holdings().doors <= doors and rank_processes() == []


@pytest.mark.parametrize("when", ["join", "engine"])
def test_a_start_that_fails_leaves_nothing(
    folder: Path, doors: set[Any], when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the ranks share a group, and when all have loaded."""
    others = set(threading.enumerate())  # of other tests
    places = {
        "join": "jackfield.core.process.rank_start.check_same",
        "engine": "jackfield.core.assemble.Engine",
    }

    def fail(*_: Any, **__: Any) -> None:
        raise ConfigError("something is wrong")

    with monkeypatch.context() as patch, pytest.raises(ConfigError, match="is wrong") as found:
        patch.setattr(places[when], fail)
        ranked_llm(folder, 2, swap_space=0.001)
    assert found.value.__traceback__ is not None  # whose frames may hold whatever they like
    assert holdings().doors <= doors
    assert rank_processes() == [] and not torch.distributed.is_initialized()
    until = time.monotonic() + SOON
    while working(others) and time.monotonic() < until:
        time.sleep(0.02)
    assert not working(others)


def working(others: set[threading.Thread]) -> list[str]:
    """Threads of ours."""
    found = (one.name for one in threading.enumerate() if one not in others)
    return [name for name in found if name.startswith("jackfield-")]


def test_an_engine_that_is_let_go_and_not_closed_ends(folder: Path, doors: set[Any]) -> None:
    others = set(threading.enumerate())
    llm = ranked_llm(folder, 2, swap_space=0.001)
    answer(llm)
    del llm
    gc.collect()
    until = time.monotonic() + SOON
    while is_left(doors, others) and time.monotonic() < until:
        time.sleep(0.02)
    assert is_left(doors, others) == []


def is_left(doors: set[Any], others: set[threading.Thread]) -> list[Any]:
    """What would keep another engine from starting, or stay for ever."""
    threads = [name for name in working(others) if name.startswith("jackfield-rank")]
    group = ["the group"] if torch.distributed.is_initialized() else []
    return [*(holdings().doors - doors), *rank_processes(), *threads, *group]
