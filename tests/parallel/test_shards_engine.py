"""Steps of an engine on parts of a model: its own heads in the cache, and how tokens are drawn."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from jackfield.core.api import KvEncoding, KvSpec, Ranks, SamplingParams, ScaleSource, Shard
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.checkpoint.tensor_files import find_tensor_files
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.runner import LoadedModel, Runner
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan, StepResult
from jackfield.core.executors.division import rank_spec
from jackfield.core.executors.kv_scales import Subject, fix_scales
from jackfield.core.kv.storage import allocate
from jackfield.core.testing.thread_ranks import joined, on_threads
from jackfield.plugins.kernels.torch_ops.sample_part import TorchSamplePart

CPU, BLOCK, STEPS = torch.device("cpu"), 4, 6
LIMITS = Limits(max_tokens=64, max_seqs=8, max_model_len=32)
PROMPTS = ([1, 2, 3, 4, 5, 6, 7], [9, 8], [502, 0, 11])
GREEDY, RANDOM = SamplingParams(temperature=0), SamplingParams(temperature=1.3)
SCORED = SamplingParams(temperature=0, logprobs=3, prompt_logprobs=2)
BIASED = SamplingParams(temperature=0, logit_bias={502: 50.0})
FILTERED = SamplingParams(temperature=1.0, top_k=5)


class Noting:
    """Which types of tensors the ranks gathered."""

    def __init__(self, gather: Any) -> None:
        self._gather = gather
        self.types: set[torch.dtype] = set()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.types.add(x.dtype)
        gathered: torch.Tensor = self._gather(x)
        return gathered


def runner(divided: ModuleType, folder: Path, ops: Any, shard: Shard) -> Runner:
    config = json.loads((folder / "config.json").read_text())
    model_class = divided.MODELS[config["kind"]][0]
    files = find_tensor_files(folder)
    with SafetensorsWeights(files, torch.float32, CPU, shard, SilentProgress()) as weights:
        model = model_class(config, ops, shard, weights)
    spec = rank_spec(model_class.describe(config), shard)
    kv = KvSpec(
        spec.num_heads, spec.num_kv_heads, spec.head_dim, torch.float32, BLOCK, latent=spec.latent
    )
    layouts = [ops.attention.layout(kv) for _ in spec.groups]
    scale, none = spec.softmax_scale, [None] * len(spec.groups)
    layers = allocate(spec.groups, layouts, scale, 24, CPU, none, {})
    loaded = LoadedModel(model, ops, layers, spec.groups, spec.vocab_size, spec.uses_prompt_lens)
    return Runner(loaded, LIMITS, BLOCK, CPU)


def answers(made: Runner, params: list[SamplingParams]) -> list[StepResult]:
    """Of prompts, one after the other in each step, then of decodes."""
    count = len(params)
    prompts = [PROMPTS[seat % len(PROMPTS)] for seat in range(count)]
    plan = StepPlan(0)
    for seat, prompt in enumerate(prompts):
        scores = params[seat].prompt_logprobs is not None
        plan.slices.append(Slice(seat, seat, 0, len(prompt), prompt, 1, scores))
        plan.joins.append(Join(seat, seat, params[seat], seat, prompt, (), frozenset(), ()))
        plan.blocks.append(BlockUpdate(seat, 0, range(seat * 6, seat * 6 + 6)))
    plans = [plan]
    for step in range(STEPS):
        slices = [
            Slice(seat, seat, len(prompt) + step, 1, None, 1, False)
            for seat, prompt in enumerate(prompts)
        ]
        plans.append(StepPlan(step + 1, slices, count))
    found = []
    for each in plans:
        ticket = made.forward(each)
        made.sample(ticket, {})
        found.append(made.collect(ticket))
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, divided: ModuleType) -> Callable[..., Path]:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = divided.write(tmp_path_factory.mktemp("model"), kind)
        return made[kind]

    return folder


CASES = {
    "greedy": ([GREEDY] * 3, {torch.int64}),
    "one is scored": ([GREEDY, SCORED, GREEDY], {torch.float32}),
    "one is edited": ([GREEDY, GREEDY, BIASED], {torch.float32}),
    "drawn": ([RANDOM, GREEDY, FILTERED], {torch.float32}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", ["llama tied", "deepseek_v3"])
def test_tokens_equal(
    divided: ModuleType, folders: Callable[..., Path], kind: str, size: int, case: str
) -> None:
    """Logits are gathered only where somebody wants to see all of them."""
    (params, types), folder = CASES[case], folders(kind)
    with torch.inference_mode():
        whole = answers(runner(divided, folder, divided.operations(), Shard()), params)

    def work(ranks: Ranks) -> tuple[list[StepResult], set[torch.dtype]]:
        ops = joined(divided.operations(), ranks)
        gather: Any = Noting(ops.all_gather)
        ops = replace(ops, all_gather=gather, sample_part=TorchSamplePart())
        return answers(runner(divided, folder, ops, Shard(ranks.rank, size)), params), gather.types

    for found, gathered in on_threads(size, work):
        assert gathered == types
        assert [step.tokens for step in found] == [step.tokens for step in whole]
        assert not any(step.failures for step in found)
        for mine, theirs in zip(found, whole, strict=True):
            assert mine.scores.keys() == theirs.scores.keys()
            for row, score in mine.scores.items():
                assert score.logprob == pytest.approx(theirs.scores[row].logprob, abs=1e-4)
                assert score.rank == theirs.scores[row].rank
                assert [i for i, _ in score.top] == [i for i, _ in theirs.scores[row].top]
            assert mine.prompt_scores.keys() == theirs.prompt_scores.keys()


def test_what_is_no_number_is_told(
    divided: ModuleType, folders: Callable[..., Path], tmp_path: Path
) -> None:
    folder = divided.write(tmp_path / "broken", "llama", nan="lm_head.weight")

    def work(ranks: Ranks) -> list[StepResult]:
        ops = joined(divided.operations(), ranks)
        ops = replace(ops, sample_part=TorchSamplePart())
        return answers(runner(divided, folder, ops, Shard(ranks.rank, 2)), [GREEDY] * 2)

    for found in on_threads(2, work):
        assert all("no numbers" in step.failures[seat] for step in found[:1] for seat in (0, 1))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_stored_scales_are_those_of_the_heads(
    divided: ModuleType, tmp_path: Path, size: int
) -> None:
    spec = divided.MODELS["llama"][0].describe(divided.MODELS["llama"][1])
    names = [f"model.layers.{i}.self_attn.{kind}_scale" for i in range(2) for kind in "kv"]
    held = {name: torch.tensor([1.0 + i, 5.0 + i]) for i, name in enumerate(names)}
    save_file(held, tmp_path / "model.safetensors")
    encoding = KvEncoding(
        "fp8", torch.float8_e4m3fn, 448.0, scaled=True, source=ScaleSource.CHECKPOINT
    )
    kv = KvSpec(8, 2, 16, torch.float32, BLOCK, encoding=encoding)
    files, nothing = find_tensor_files(tmp_path), None
    for rank in range(size):
        model: Any = nothing
        subject = Subject(model, model, spec, [kv], files, CPU, Shard(rank, size))
        scales = fix_scales(subject).by_layer
        here = slice(0, 2) if size == 1 else slice(rank * 2 // size, rank * 2 // size + 1)
        found = [scale_K for layer in range(2) for scale_K in scales[layer]]
        assert [one.tolist() for one in found] == [held[name][here].tolist() for name in names]
