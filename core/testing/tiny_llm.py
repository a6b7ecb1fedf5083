"""An `LLM` of a tiny model, as tests of answers want it."""

from pathlib import Path
from typing import Any

from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.llm import LLM


def tiny_llm(folder: Path, **settings: Any) -> LLM:
    """In float32, on one thread, with 256 blocks and without a tokenizer, unless settings say
    otherwise."""
    defaults: dict[str, Any] = {
        "dtype": "float32",
        "num_gpu_blocks_override": 256,
        "engine.threads": 1,
        "skip_tokenizer_init": True,
    }
    return LLM(folder, progress=SilentProgress(), **{**defaults, **settings})
