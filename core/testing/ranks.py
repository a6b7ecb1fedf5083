"""Tiny models over several processes, and a look at these."""

from pathlib import Path
from typing import Any

from jackfield.core.llm import LLM
from jackfield.core.testing.tiny_llm import tiny_llm


def ranked_llm(folder: Path, size: int, **settings: Any) -> LLM:
    """A small one over so many ranks, on torch's kernels alone, unless settings say otherwise."""
    few: dict[str, Any] = {
        "kernel.stack": ["torch"], "max_num_seqs": 4, "num_gpu_blocks_override": 64,
    }  # fmt: skip
    return tiny_llm(folder, tensor_parallel_size=size, **{**few, **settings})


def rank_processes(parent: int | None = None) -> list[Any]:
    """Those of the ranks that a process has started, beside itself, and that run. As psutil's
    processes. parent: None = this one."""
    import psutil

    children = psutil.Process(parent).children(recursive=True)
    return [one for one in children if any("rank_process" in word for word in _words(one))]


def _words(process: Any) -> list[str]:
    import psutil

    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
