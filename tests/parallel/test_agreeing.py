"""What ranks agree on, and transfers that end when they have on all of them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch

from jackfield.core.api import ConfigError, Shard
from jackfield.core.executors.device import device_of_rank, set_threads
from jackfield.core.executors.joint_transfers import JointTransfers
from jackfield.core.executors.place import ALONE, Alone, Place, first_of_host_first, least, same
from jackfield.core.host.config import Config
from jackfield.core.kv.encoding_identity import joined_identity
from jackfield.core.kv.transfers import TransferEnd
from jackfield.core.process.rank_environment import digest_of, values_of
from jackfield.core.process.rank_stack import innermost, main_stack, waits_for_others


class Told:
    """All ranks, told what they say."""

    def __init__(self, *values: object) -> None:
        self._values = values

    def gather(self, name: str, value: object) -> list[object]:
        return list(self._values)


def test_one_rank_agrees_with_itself() -> None:
    assert least(Alone(), "blocks", 7) == 7
    same(Alone(), "anything", b"\x00")
    assert ALONE.ranks is None
    assert joined_identity([b"x" * 16]) == b"x" * 16


def test_the_fewest_blocks_count() -> None:
    assert least(Told(9, 7, 8), "blocks", 9) == 7


def test_a_difference_names_the_rank_and_both_values() -> None:
    with pytest.raises(ConfigError, match=r"rank 2 .*: colour is red there, and 0a on rank 0"):
        same(Told(b"\x0a", b"\x0a", "red"), "colour", 0)


def test_identities_of_ranks_are_one() -> None:
    first, second = b"a" * 16, b"b" * 16
    assert len({joined_identity(ids) for ids in ([first, second], [second, first], [first])}) == 3
    assert len(joined_identity([first, second])) == 16


def test_what_hosts_may_have_otherwise_is_not_compared() -> None:
    def config(**changes: object) -> Config:
        node = {"tensor": 2, "nodes": 2, "master_port": 9, "token": "x" * 16, **changes}
        return Config(model={"name": str(changes)}, parallel=node)  # type: ignore[arg-type]

    assert digest_of(config()) == digest_of(config(node_rank=1, token="y" * 16))
    assert digest_of(config()) != digest_of(config(tensor=4))
    assert "parallel.token" not in values_of(config()) and "model.name" not in values_of(config())


def test_a_transfer_ends_when_it_has_on_all_ranks() -> None:
    joint = JointTransfers(2)
    joint.open([1, 2])
    joint.ended(0, [TransferEnd(1, None, 0.5), TransferEnd(2)])
    assert joint.take() == ()
    joint.ended(1, [TransferEnd(2, "no room"), TransferEnd(1, None, 0.25)])
    assert joint.take() == [TransferEnd(2, "rank 1: no room"), TransferEnd(1, None, 0.5)]
    assert joint.take() == ()


def test_what_all_ranks_gave_up_is_told_no_more() -> None:
    joint = JointTransfers(2)
    joint.open([1, 2, 3])
    joint.ended(1, [TransferEnd(2)])
    assert joint.given_up([1, 2, 3], [{1, 2}, {1, 3}]) == [1]
    assert joint.take() == [TransferEnd(2, "it was given up")]
    joint.ended(0, [TransferEnd(3)])
    assert joint.take() == [TransferEnd(3, "rank 1: it was given up")]


STACKS = """Thread 0x1 (most recent call first):
  File "/x/rank_watch.py", line 3 in _run

Current thread 0x2 (most recent call first):
  File "/x/torch/distributed/distributed_c10d.py", line 9 in all_reduce
  File "/x/model.py", line 5 in forward
  File "/x/rank_process.py", line 7 in main
"""


def test_the_main_thread_is_found_among_stacks() -> None:
    stack = main_stack(STACKS)
    assert stack.startswith("Current thread 0x2") and waits_for_others(stack)
    assert innermost(stack) == '"/x/torch/distributed/distributed_c10d.py", line 9 in all_reduce'
    assert main_stack("Thread 0x1\n  File 'a'") == "" and innermost("") == ""
    assert not waits_for_others(stack.replace("torch/distributed", "mine"))


def test_each_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert device_of_rank("auto", 1, 2) == torch.device("cuda", 1) == chosen[0]
    assert device_of_rank("cuda:1", 0, 1) == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match=r"of the 4 ranks of this host .* torch finds 2"):
        device_of_rank("cuda", 0, 4)
    with pytest.raises(ConfigError, match="'cuda:1', one GPU for 2 ranks"):
        device_of_rank("cuda:1", 0, 2)
    assert device_of_rank("cpu", 5, 8) == torch.device("cpu") and len(chosen) == 1


def test_ranks_of_a_cpu_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(12))
    for wanted, sharers in ((None, 1), (None, 4), (None, 64), (3, 4)):
        set_threads(wanted, sharers)
    assert found == [12, 3, 1, 3]


class Meeting:
    """What threads say, as ranks would."""

    def __init__(self, size: int) -> None:
        self._barrier = Barrier(size, timeout=10.0)

    def gather(self, name: str, value: Any) -> Sequence[Any]:
        self._barrier.wait()
        return ()


@pytest.mark.parametrize(("size", "hosts"), [(1, 1), (3, 1), (4, 2)])
def test_the_first_rank_of_each_host_works_before_the_others(size: int, hosts: int) -> None:
    meeting, done, local = Meeting(size), list[int](), size // hosts

    def start(rank: int) -> None:
        place = Place(Shard(rank, size), meeting, None, local)
        first_of_host_first(place, "kernels", lambda: done.append(rank))

    with ThreadPoolExecutor(size) as pool:
        list(pool.map(start, reversed(range(size))))
    firsts = set(range(0, size, local))
    assert set(done[:hosts]) == firsts and sorted(done) == list(range(size))
