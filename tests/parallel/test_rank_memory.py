"""Memory of several ranks: pools, tiers, and heads that more than one of them holds."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.testing.ranks import rank_processes, ranked_llm
from jackfield.core.testing.tiny_model import write_tiny_model

PROMPTS = [{"prompt_token_ids": [5 + index, 6, 7, *range(20, 27)]} for index in range(6)]
PARAMS = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
TIER = 0.001


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def tokens(llm: LLM) -> list[list[int]]:
    outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
    assert all(output.outputs[0].finish_reason != "error" for output in outputs)
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_a_small_pool_with_a_tier_below(folder: Path) -> None:
    """Requests are preempted, and what they had comes back from where each rank keeps its part. A
    step is planned and told while the one before runs."""
    small: dict[str, Any] = {
        "num_gpu_blocks_override": 12, "swap_space": TIER, "max_num_seqs": 4, "block_size": 8,
        "engine.overlap": 1,
    }  # fmt: skip
    found = []
    for size in (1, 2):
        with ranked_llm(folder, size, **small) as llm:
            found.append([tokens(llm), tokens(llm)])
            engine = llm.assembly.engine
            assert engine.metrics.preemptions > 0
            assert engine.cache_metrics.hit_tokens > 0
            if size == 2:
                check_tiers(llm, 2)
    assert found[0] == found[1]


def check_tiers(llm: LLM, size: int) -> None:
    """The tier has as many slots as its bytes hold of blocks over all ranks, and was used."""
    loaded, (tier,) = llm.assembly.loaded, llm.assembly.loaded.tiers
    block_bytes = loaded.pool_bytes // loaded.num_blocks
    assert tier.num_slots == int(TIER * 2**30) // block_bytes
    assert block_bytes == loaded.bytes_per_token * 8
    metrics = llm.assembly.engine.cache_metrics
    assert metrics.stored["host"] > 0 and metrics.loaded["host"] > 0
    assert not metrics.failed_transfers and not metrics.late_transfers


def test_four_ranks_with_fewer_heads_of_keys(folder: Path) -> None:
    with ranked_llm(folder, 4) as llm:
        assert len(rank_processes()) == 3
        found = tokens(llm)
    with ranked_llm(folder, 1) as llm:
        assert found == tokens(llm)
    assert rank_processes() == []


def test_blocks_are_the_fewest_that_a_rank_has(folder: Path) -> None:
    settings: dict[str, Any] = {"num_gpu_blocks_override": None, "kv_cache_memory": "100KiB"}
    with ranked_llm(folder, 2, **settings) as llm:
        blocks = llm.assembly.loaded.num_blocks
        per_rank = llm.assembly.loaded.pool_bytes // 2
        assert per_rank <= 100 * 2**10 < per_rank * (blocks + 1) // blocks
        assert len(tokens(llm)) == len(PROMPTS)


def test_experts_on_one_rank_each_and_keys_in_eight_bits(
    divided: ModuleType, tmp_path: Path
) -> None:
    """Scales of keys are found by running the parts of the model together."""
    config = divided.write(tmp_path, "mixtral") / "config.json"
    named = json.loads(config.read_text()) | {"architectures": ["MixtralForCausalLM"]}
    config.write_text(json.dumps(named))
    found = []
    for size in (1, 2):
        with ranked_llm(tmp_path, size, enable_expert_parallel=True, kv_cache_dtype="fp8") as llm:
            found.append((tokens(llm), llm.expert_counts()))
            assert llm.assembly.summary.kv_encoding.startswith("fp8")
    assert found[0] == found[1] and sum(found[0][1][0]) > 0
