"""What is run to learn how much memory a step takes, and what plugins say beside it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jackfield import LLM
from jackfield.core.api import (
    BatchLimits,
    CapacityError,
    ConfigError,
    PluginContractError,
    hookimpl,
)
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.engine.planner import Limits
from jackfield.core.executors import loading
from jackfield.core.executors.place import ALONE
from jackfield.core.executors.profile import profile
from jackfield.core.executors.profile_declared import declared_scratch
from jackfield.core.executors.profile_steps import blocks_needed, largest_steps
from jackfield.core.executors.tiers import NO_TIERS, TierHooks
from jackfield.core.host.discover import Found
from jackfield.core.host.manager import Implementation, Manager
from jackfield.core.kv.copier import SCRATCH_BYTES
from jackfield.core.testing.tiny_model import write_tiny_model

LARGEST = BatchLimits(64, 4, 8)
CPU = torch.device("cpu")


class Probe:
    """Notes in which order it is asked."""

    def __init__(self, peak: int = 7) -> None:
        self.calls: list[str] = []
        self._peak = peak

    def begin(self) -> None:
        self.calls.append("begin")

    def peak(self) -> int:
        self.calls.append("peak")
        return self._peak


@pytest.mark.parametrize(
    "limits", [Limits(64, 4, 100), Limits(5, 4, 100), Limits(400, 4, 50), Limits(4, 4, 33)]
)
def test_the_steps_are_as_large_as_limits_allow(limits: Limits) -> None:
    size = 16
    prompts, decodes, longest = largest_steps(limits, size, blocks_needed(limits, size))
    assert prompts.num_tokens == min(limits.max_tokens, limits.max_seqs * limits.max_model_len)
    assert len(prompts.slices) == decodes.num_decodes == decodes.num_tokens == limits.max_seqs
    assert all(part.samples for plan in (prompts, decodes, longest) for part in plan.slices)
    assert {part.start for part in decodes.slices} == {limits.max_model_len - 1}
    [part] = longest.slices
    assert part.length == min(limits.max_tokens, limits.max_model_len)
    assert part.start + part.length == limits.max_model_len and part.scores
    tables = {update.seat: update.blocks for update in prompts.blocks}
    assert {len(table) for table in tables.values()} == {-(-limits.max_model_len // size)}
    assert max(map(max, tables.values())) < blocks_needed(limits, size)
    assert all(join.params.logprobs and join.params.repetition_penalty != 1 for join in
               prompts.joins)  # fmt: skip


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny")


def load(folder: Path, **settings: Any) -> LLM:
    defaults: dict[str, Any] = {
        "num_gpu_blocks_override": 32, "max_model_len": 100, "engine.threads": 1,
        "kernel.stack": ["torch"], "cache.stack": ["paged"], "max_num_seqs": 4,
    }  # fmt: skip
    return LLM(folder, progress=SilentProgress(), **{**defaults, **settings})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pretend that the CPU is measured as a GPU is. Gives what was asked for, in blocks."""
    asked: list[int] = []
    scratch = loading._scratch

    def on_gpu(order: Any, limits: Limits, workspace: Any, load: Callable[[int], Any]) -> int:
        def counted(num_blocks: int) -> Any:
            asked.append(num_blocks)
            return load(num_blocks)

        probe = Probe()
        assert profile(counted, limits, order.block_size, CPU, probe) == 7
        assert probe.calls == ["begin", "peak"]
        return scratch(order, limits, workspace, load)

    monkeypatch.setattr(loading, "_scratch", on_gpu)
    return asked


def test_the_steps_run_on_a_real_model(tiny: Path, measured: list[int]) -> None:
    llm = load(tiny, max_num_batched_tokens=70)
    assert measured == [5]
    expected = load(tiny).generate([[5, 6, 7]], use_tqdm=False)
    assert llm.generate([[5, 6, 7]], use_tqdm=False)[0].outputs[0].text == (
        expected[0].outputs[0].text
    )


def test_a_step_that_never_fits_is_refused_with_numbers() -> None:
    def refuse(num_blocks: int) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.\nMore.")

    with pytest.raises(CapacityError) as refused:
        profile(refuse, Limits(8192, 256, 4096), 16, CPU, Probe())
    for part in ("8192 tokens", "256 sequences", "4096 positions", "Tried to allocate 9.00 GiB.",
                 "engine.max_num_batched_tokens"):  # fmt: skip
        assert part in str(refused.value)
    assert "More" not in str(refused.value)


def test_a_gpu_is_measured_and_what_plugins_declare_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measure(load: Any, limits: Limits, size: int, device: torch.device, probe: Any) -> int:
        assert (limits, size, device.type) == (Limits(64, 4, 100), 16, "cuda")
        return 1000

    monkeypatch.setattr(loading, "profile", measure)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    hooks = [Implementation("a", lambda limits: 20), Implementation("b", lambda limits: 3)]
    order: Any = SimpleNamespace(
        device=torch.device("cuda", 0), block_size=16, scratch_hooks=hooks, tier_hooks=NO_TIERS,
        kernels=[], place=ALONE,
    )  # fmt: skip

    def workspace(limits: BatchLimits) -> int:
        assert limits == BatchLimits(64, 4, 7)
        return 500

    limits = Limits(64, 4, 100)
    assert loading._scratch(order, limits, workspace, lambda blocks: None) == 1523
    order.tier_hooks = TierHooks(tiers=hooks)
    copies = loading._scratch(order, limits, workspace, lambda blocks: None) - 1523
    assert copies == SCRATCH_BYTES > 0


class PerToken:
    """A plugin that holds so many bytes for each token of a step."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes

    @hookimpl
    def scratch(self, limits: BatchLimits) -> int:
        return self._num_bytes * limits.max_tokens


def test_what_plugins_declare_is_summed() -> None:
    assert declared_scratch([], LARGEST) == 0
    manager = Manager()
    for name, plugin in (("a", PerToken(1)), ("b", PerToken(3))):
        manager.register(plugin, Found("caches", name, "some:Plugin", "dist", "1", 1, ""))
    assert declared_scratch(manager.implementations("scratch"), LARGEST) == 4 * 64


@pytest.mark.parametrize("answer", [-1, 1.5, None, True, "64"])
def test_what_is_no_number_of_bytes_is_refused(answer: object) -> None:
    with pytest.raises(PluginContractError, match="the plugin 'a': scratch returned"):
        declared_scratch([Implementation("a", lambda limits: answer)], LARGEST)


def test_what_a_plugin_raises_names_it() -> None:
    def broken(limits: BatchLimits) -> int:
        raise KeyError("k")

    def refuses(limits: BatchLimits) -> int:
        raise ConfigError("cache.swap.size is 0")

    with pytest.raises(PluginContractError, match="the plugin 'a': scratch raised KeyError"):
        declared_scratch([Implementation("a", broken)], LARGEST)
    with pytest.raises(ConfigError, match=r"cache\.swap\.size"):
        declared_scratch([Implementation("a", refuses)], LARGEST)
