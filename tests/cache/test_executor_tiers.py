"""A real model goes on from blocks that were stored, loaded and copied."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jackfield.core.api import CapacityError, SamplingParams
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan
from jackfield.core.executors.limits import limits_for
from jackfield.core.executors.loading import Loaded, Order, load
from jackfield.core.executors.tiers import TierHooks
from jackfield.core.host.config import CacheConfig, Config, EngineConfig
from jackfield.core.host.manager import Implementation
from jackfield.core.kv.transfers import BlockCopy, Transfer, TransferKind
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.plugins.cache.swap import Swap, SwapConfig
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.models.llama import Llama

PROMPT = [(17 * position) % 290 for position in range(20)]
GREEDY = SamplingParams(temperature=0.0)
PATIENCE = 30.0
STORE, LOAD, SPILL, _ = TransferKind


def order(folder: Path, swap: Swap) -> Order:
    model = ModelFolder(write_tiny_model(folder))
    kernels = [("torch", TorchKernels(TorchKernels.Config()))]
    hooks = TierHooks([Implementation("swap", swap.tiers)], [Implementation("swap", swap.store)])
    spec = Llama.describe(model.config)
    cpu = torch.device("cpu")
    limits = limits_for(CONFIG, spec, cpu, streamed=True)
    return Order(model, Llama, spec, kernels, 16, cpu, torch.float32, limits, tier_hooks=hooks)


CONFIG = Config(
    engine=EngineConfig(max_num_seqs=4, max_num_batched_tokens=64), cache=CacheConfig(num_blocks=8)
)


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Loaded]:
    swap = Swap(SwapConfig(memory="256KiB", disk="64KiB", folder=str(tmp_path / "disk")))
    found = load(order(tmp_path / "model", swap), CONFIG, SilentProgress())
    yield found
    found.executor.close()
    assert not (tmp_path / "disk").exists()


def step(loaded: Loaded, plan: StepPlan) -> list[int]:
    ticket = loaded.executor.forward(plan)
    loaded.executor.sample(ticket, {})
    return loaded.executor.collect(ticket).tokens


def join(seat: int) -> Join:
    return Join(seat, seat, GREEDY, 0, PROMPT, [], frozenset(), [])


def move(loaded: Loaded, *orders: Transfer) -> None:
    loaded.executor.transfer(orders)
    ended = 0
    while ended < len(orders):
        loaded.executor.await_transfer(PATIENCE)
        told = loaded.executor.transferred()
        assert told and all(end.error is None for end in told)
        ended += len(told)


def test_the_tiers_are_told(loaded: Loaded) -> None:
    block_bytes = loaded.pool_bytes // loaded.num_blocks
    assert [(spec.name, spec.num_slots) for spec in loaded.tiers] == [
        ("host", 2**18 // block_bytes),
        ("disk", 2**16 // block_bytes),
    ]


def test_a_sequence_goes_on_from_blocks_that_were_away(loaded: Loaded) -> None:
    whole = Slice(0, 0, 0, 20, PROMPT, 1, False)
    first = StepPlan(0, [whole], joins=[join(0)], blocks=[BlockUpdate(0, 0, [0, 1])])
    (token,) = step(loaded, first)
    move(loaded, Transfer(1, STORE, "host", 0, 0), Transfer(2, STORE, "host", 1, 1))
    move(loaded, Transfer(3, SPILL, "disk", 0, 0, above="host", checked=False))
    move(loaded, Transfer(4, LOAD, "disk", 0, 4, checked=False), Transfer(5, LOAD, "host", 1, 5))
    again = StepPlan(1, [Slice(1, 1, 19, 1, PROMPT[19:], 1, False)], joins=[join(1)])
    again.blocks = [BlockUpdate(1, 0, [6, 5])]
    again.copies = [BlockCopy(4, 6)]
    assert step(loaded, again) == [token]
    wrong = StepPlan(2, [Slice(2, 2, 19, 1, PROMPT[19:], 1, False)], joins=[join(2)])
    wrong.blocks = [BlockUpdate(2, 0, [7, 5])]
    wrong.copies = [BlockCopy(1, 7)]
    assert step(loaded, wrong) != [token], "the answer does not depend on the block"


def test_a_tier_that_does_not_fit_stops_the_start(tmp_path: Path) -> None:
    swap = Swap(SwapConfig(memory="100TiB"))
    with pytest.raises(CapacityError, match=r"cache.swap.memory takes 100 TiB, but only"):
        load(order(tmp_path, swap), CONFIG, SilentProgress())


def test_without_tiers_there_is_nothing_to_transfer(tmp_path: Path) -> None:
    plain = order(tmp_path, Swap(SwapConfig()))._replace(tier_hooks=TierHooks())
    found = load(plain, CONFIG, SilentProgress())
    assert found.tiers == () and found.executor.transferred() == ()
    assert isinstance(found.executor.cancel_transfers([1]), tuple)
    found.executor.close()
