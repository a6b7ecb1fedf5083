"""The steps that are run before the first request stay within every limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.api import KernelPlugin
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.runner import Runner
from jackfield.core.engine.steps import StepPlan
from jackfield.core.executors.warm_up import MIXED, PROMPTS, rehearse, warm_up_steps
from jackfield.core.testing.tiny_model import write_tiny_model


@pytest.mark.parametrize(
    "limits",
    [Limits(8192, 256, 40_960), Limits(2048, 1, 256), Limits(7, 4, 20), Limits(64, 64, 33)],
)
def test_within_the_limits(limits: Limits) -> None:
    plans = warm_up_steps(limits, 16, 10)
    assert len(plans) == len(PROMPTS) + len(MIXED)
    for plan in plans:
        assert 0 < plan.num_tokens <= limits.max_tokens
        assert 0 < len(plan.slices) <= limits.max_seqs
        assert len({part.seat for part in plan.slices}) == len(plan.slices)
        for part in plan.slices:
            assert part.start + part.length <= limits.max_model_len
            assert part.length == (1 if part.tokens is None else len(part.tokens))
        for update in plan.blocks:
            assert len(update.blocks) * 16 >= limits.max_model_len
            assert set(update.blocks) <= set(range(10))


def test_a_model_runs_them_and_answers_as_before(tmp_path: Path) -> None:
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8)
    prompt = {"prompt_token_ids": [5, 6, 7]}
    greedy = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    before = llm.generate(prompt, greedy, use_tqdm=False)[0].outputs[0].token_ids
    llm.reset_prefix_cache()
    loaded = llm.assembly.loaded
    with torch.inference_mode():
        for plan in warm_up_steps(loaded.limits, 16, loaded.num_blocks):
            ticket = loaded.executor.forward(plan)
            loaded.executor.sample(ticket, {})
            assert len(loaded.executor.collect(ticket).tokens) == len(plan.slices)
    assert llm.generate(prompt, greedy, use_tqdm=False)[0].outputs[0].token_ids == before


class Watching(KernelPlugin):
    """Sees whether steps are run while it watches, and when."""

    def __init__(self) -> None:
        super().__init__(self.Config())
        self.seen: list[str] = []

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        self.seen.append("begin")
        yield
        self.seen.append("end")


def test_a_plugin_sees_steps_of_all_kinds_before_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8)
    plugin, plans = Watching(), []
    original = Runner.rehearse

    def watched(self: Runner, plan: StepPlan, *shared: Any) -> None:
        plugin.seen.append("step")
        plans.append(plan)
        original(self, plan, *shared)

    monkeypatch.setattr(Runner, "rehearse", watched)
    loaded = llm.assembly.loaded
    model = loaded.executor._runner._loaded
    rehearse([plugin], model, loaded.limits, 16, torch.device("cpu"))
    assert plugin.seen[0] == "begin" and plugin.seen[-1] == "end"
    assert plugin.seen.count("step") == len(plugin.seen) - 2
    decodes = {len(plan.slices) for plan in plans if plan.num_decodes == len(plan.slices)}
    assert decodes == {1, 2, 4, 8}
    assert sum(plan.num_decodes < len(plan.slices) for plan in plans) == len(PROMPTS) + len(MIXED)


def test_nothing_is_run_where_nobody_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8)
    monkeypatch.setattr(Runner, "rehearse", None)
    loaded = llm.assembly.loaded
    model = loaded.executor._runner._loaded
    rehearse([KernelPlugin(None)], model, loaded.limits, 16, torch.device("cpu"))
