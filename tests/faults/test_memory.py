"""Memory of a whole process: what loading and answering take, and that nothing grows."""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, SamplingParams

MARGIN = 300 * 2**20
MEASURE = """
import json, sys
import tokenizers, torch
from importlib.metadata import entry_points
import jackfield.core.assemble, jackfield.core.llm
from jackfield import LLM, SamplingParams
from jackfield.core.checkpoint.progress import SilentProgress

def resident(key):
    with open("/proc/self/status") as lines:
        found = next(line for line in lines if line.startswith(key))
    return int(found.split()[1]) * 1024

for kind in ("schedulers", "caches", "kernels", "models"):
    for entry in entry_points(group=f"jackfield.v1.{kind}"):
        if entry.value.startswith("jackfield.plugins."):
            entry.load()
bare = resident("VmRSS")
llm = LLM(dtype=sys.argv[1], num_gpu_blocks_override=64, progress=SilentProgress())
[output] = llm.generate("The cat", SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)
summary, spec = llm.assembly.summary, llm.assembly.spec
json.dump({
    "bare": bare, "peak": resident("VmHWM"), "pool": summary.kv_bytes,
    "linear": summary.operations["linear"], "parameters": spec.num_parameters,
    "table": spec.vocab_size * spec.hidden_size, "answer": output.outputs[0].text,
}, sys.stdout)
"""


@pytest.mark.default_model
@pytest.mark.parametrize(("dtype", "bytes_each"), [("float32", 4), ("bfloat16", 2)])
def test_peak_is_weights_and_pool(dtype: str, bytes_each: int) -> None:
    """The products' weights are packed, to two bytes where bfloat16 is exact; the table is not."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, dtype], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    packed = 2 if found["linear"] == "cpu" else bytes_each
    weights = found["parameters"] * packed + found["table"] * bytes_each
    assert found["answer"]
    assert found["peak"] - found["bare"] <= weights + found["pool"] + MARGIN


def test_requests_leave_nothing_behind(tiny: Path, load: Callable[..., LLM]) -> None:
    """What is kept per request would show in every window; caches fill up only in some."""
    llm = load(tiny, **{"engine.decision_log": 100})
    params = SamplingParams(temperature=0.7, seed=1, max_tokens=2, stop="zz", logprobs=1, n=2)

    def allocated_after(requests: int) -> int:
        for _ in range(requests // 10):
            llm.generate([[5, 6]] * 5 + [[7] * 20] * 5, params, use_tqdm=False)
        gc.collect()
        return sys.getallocatedblocks()

    counts = [allocated_after(100) for _ in range(6)]
    assert min(after - before for before, after in pairwise(counts)) < 50
    engine: Any = llm.assembly.engine
    assert not engine._requests and not engine.has_work
    planner = engine.lifecycle.planner
    assert planner.pool.num_free == planner.pool.num_blocks


def test_the_largest_step_that_limits_allow(tiny: Path, load: Callable[..., LLM]) -> None:
    """Right after the start: every seat, every token of the step, every block."""
    llm = load(tiny, max_num_batched_tokens=256, num_gpu_blocks_override=64, max_model_len=64)
    prompts = [[5 + place] * 32 for place in range(8)]
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=32, ignore_eos=True, logprobs=20)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [32] * 8
    assert llm.assembly.engine.metrics.failed_steps == 0
