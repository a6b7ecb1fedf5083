"""The steps that are run before the first request stay within every limit."""

from pathlib import Path

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.engine.planner import Limits
from jackfield.core.executors.warm_up import MIXED, PROMPTS, warm_up_steps
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
