"""The steps that are run before the first request stay within every limit."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield import LLM, SamplingParams
from jackfield.core.api import (
    AttnBatch,
    KernelPlugin,
    SampleBatch,
    SeatState,
    StepNews,
    StepTensors,
)
from jackfield.core.engine import prefix_groups
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.runner import LoadedModel, Runner
from jackfield.core.engine.steps import StepPlan
from jackfield.core.executors.warm_up import MIXED, PROMPTS, rehearse, warm_up_steps
from jackfield.core.testing.tiny_model import write_tiny_model


@pytest.mark.parametrize(
    "limits",
    [Limits(8192, 256, 40_960), Limits(2048, 1, 256), Limits(7, 4, 20), Limits(64, 64, 33)],
)
def test_within_the_limits(limits: Limits) -> None:
    plans = warm_up_steps(limits, 16, 10)
    assert len(plans) <= len(PROMPTS) + len(MIXED)
    shapes = [[(part.start, part.length) for part in plan.slices] for plan in plans]
    assert len({str(shape) for shape in shapes}) == len(plans), "none comes twice"
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


def rehearsed_model(llm: LLM, **operations: Any) -> LoadedModel:
    loaded = llm.assembly.loaded.executor._runner._loaded
    return loaded._replace(operations=replace(loaded.operations, **operations))


def test_a_plugin_sees_steps_of_all_kinds_before_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8)
    plugin, plans = Watching(), []
    original = Runner.rehearse

    def watched(self: Runner, plan: StepPlan, *, grouped: bool) -> None:
        plugin.seen.append("step")
        plans.append((plan, grouped))
        original(self, plan, grouped=grouped)

    monkeypatch.setattr(Runner, "rehearse", watched)
    limits = llm.assembly.loaded.limits
    rehearse([plugin], rehearsed_model(llm), limits, 16, torch.device("cpu"))
    assert plugin.seen[0] == "begin" and plugin.seen[-1] == "end"
    assert plugin.seen.count("step") == len(plugin.seen) - 2
    decodes = [(plan, grouped) for plan, grouped in plans if plan.num_decodes == len(plan.slices)]
    assert {(len(plan.slices), grouped) for plan, grouped in decodes} == {
        (size, grouped) for size in (1, 2, 4, 8) for grouped in (True, False)
    }
    draws = {
        (len(plan.slices), plan.joins[0].params.greedy, plan.joins[0].params.top_p < 1)
        for plan, _ in decodes
    }
    assert {(1, True, False), (1, False, True), (8, False, True)} <= draws
    rest = [plan for plan, _ in plans if plan.num_decodes < len(plan.slices)]
    assert len(rest) == len(warm_up_steps(limits, 16, 10))
    assert any(part.scores for plan in rest for part in plan.slices)


def test_tokens_are_drawn_from_logits_as_they_are_and_as_they_are_edited(tmp_path: Path) -> None:
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8, dtype="bfloat16")
    seen: list[tuple[torch.dtype, bool, bool]] = []

    def sample(logits_RV: Tensor, batch: SampleBatch) -> Tensor:
        seen.append((logits_RV.dtype, batch.all_greedy, batch.filtered))
        return logits_RV.argmax(-1)

    model, limits = rehearsed_model(llm, sample=sample), llm.assembly.loaded.limits
    rehearse([Watching()], model, limits, 16, torch.device("cpu"))
    kinds = [(True, False), (False, False), (False, True)]
    assert set(seen) == {(it, *kind) for it in (torch.bfloat16, torch.float32) for kind in kinds}


def test_inputs_that_nobody_made_are_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_groups, "SHORTEST_PREFIX", 64)
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8)
    limits, made = llm.assembly.loaded.limits, []
    grouped: set[tuple[int, bool]] = set()

    def leave_garbage(news: StepNews, state: SeatState, size: int, into: StepTensors) -> None:
        made.append((news.starts_S + news.lengths_S, into))
        for tensor in into:
            tensor.fill_(1 << 30)

    model = rehearsed_model(llm, step_inputs=leave_garbage)
    attention = model.operations.attention
    prepare = attention.prepare

    def watched(batch: AttnBatch) -> Any:
        grouped.add((batch.num_decodes, batch.shared is not None))
        return prepare(batch)

    monkeypatch.setattr(attention, "prepare", watched)
    rehearse([Watching()], model, limits, 16, torch.device("cpu"))
    assert {(4, True), (4, False), (8, True), (8, False)} <= grouped
    assert len(made) > 20
    for lens_S, into in made:
        assert into.lens_S.tolist() == lens_S.tolist()
        assert not any(tensor.any() for tensor in into if tensor is not into.lens_S)


def test_a_step_that_fails_ends_the_rehearsal_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8)

    def fail(logits_RV: Tensor, batch: SampleBatch) -> Tensor:
        raise ValueError("it needs what was left out")

    plugin, limits = Watching(), llm.assembly.loaded.limits
    with caplog.at_level(logging.WARNING, "jackfield.engine"):
        rehearse([plugin], rehearsed_model(llm, sample=fail), limits, 16, torch.device("cpu"))
    assert plugin.seen == ["begin", "end"]
    assert "since rehearsing failed: it needs what was left out" in caplog.text


def test_nothing_is_run_where_nobody_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(write_tiny_model(tmp_path / "model")), max_num_seqs=8)
    monkeypatch.setattr(Runner, "rehearse", None)
    limits = llm.assembly.loaded.limits
    rehearse([KernelPlugin(None)], rehearsed_model(llm), limits, 16, torch.device("cpu"))
