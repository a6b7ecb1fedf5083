"""One engine of `duel.py`: `duel_engine.py ENGINE FOLDER MEMORY CONTEXT`. Reads what to run.

Whatever an engine has that the other lacks stays as it is by default. Answers are of fixed lengths,
drawn with temperature 0.6, and are not made text.
"""

import os
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from jackfield.core.bench.workloads import Workload, make_workload

SHORT = 40
"""Requests of a short run."""
Generate = Callable[[list[list[int]], Sequence[int]], None]


class Engine(NamedTuple):
    """generate: answers of these lengths, all sent together. forget: what the cache knows. experts:
    how evenly they were chosen."""

    generate: Generate
    forget: Callable[[], object]
    experts: Callable[[], str]


def jackfield(folder: str, memory: float, context: int) -> Engine:
    from jackfield import LLM, SamplingParams

    llm = LLM(
        folder, skip_tokenizer_init=True, max_model_len=context, gpu_memory_utilization=memory
    )

    def generate(prompts: list[list[int]], lengths: Sequence[int]) -> None:
        llm.generate(prompts, params(SamplingParams, lengths), use_tqdm=False)

    def experts() -> str:
        told = []
        for layer, counts in llm.expert_counts().items():
            mean = sum(counts) / len(counts)
            told.append(f"layer {layer}: {min(counts) / mean:.2f} to {max(counts) / mean:.2f}")
        llm.close()
        return "; ".join(["experts' tokens, 1 = the mean", *told]) if told else "no experts"

    return Engine(generate, llm.reset_prefix_cache, experts)


def vllm(folder: str, memory: float, context: int) -> Engine:
    from vllm import LLM, SamplingParams

    llm = LLM(
        folder, skip_tokenizer_init=True, max_model_len=context, gpu_memory_utilization=memory,
        disable_log_stats=True,
    )  # fmt: skip

    def generate(prompts: list[list[int]], lengths: Sequence[int]) -> None:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        llm.generate(asked, params(SamplingParams, lengths), use_tqdm=False)

    return Engine(generate, llm.reset_prefix_cache, lambda: "it does not tell of experts")


def params(kind: Any, lengths: Sequence[int]) -> list[Any]:
    return [
        kind(temperature=0.6, ignore_eos=True, max_tokens=length, detokenize=False)
        for length in lengths
    ]


ENGINES = {"jackfield": jackfield, "vllm": vllm}


def run(engine: Engine, workload: Workload, requests: int) -> tuple[float, float]:
    """Output tokens per second, and mean seconds of a wave."""
    prompts, lengths = workload.prompts[:requests], workload.lengths[:requests]
    size = workload.concurrency or len(prompts)
    engine.forget()
    began, waves = perf_counter(), []
    for start in range(0, len(prompts), size):
        wave = slice(start, start + size)
        sent = perf_counter()
        engine.generate(prompts[wave], lengths[wave])
        waves.append(perf_counter() - sent)
    return sum(lengths) / (perf_counter() - began), sum(waves) / len(waves)


def main(name: str, folder: str, memory: str, context: str) -> None:
    began = perf_counter()
    engine = ENGINES[name](folder, float(memory), int(context))
    print(f"DUEL {perf_counter() - began:.1f}")
    for line in sys.stdin:
        if line.strip() == "end":
            print("DUEL", engine.experts())
            return
        workload, size = line.split()
        made = make_workload(workload)
        print("DUEL", *run(engine, made, SHORT if size == "short" else len(made.prompts)))


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main(*sys.argv[1:])
