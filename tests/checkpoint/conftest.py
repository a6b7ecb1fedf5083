"""A tiny GGUF llama with a real byte-level vocabulary, and progress that remembers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

HIDDEN, MIDDLE, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "1 2"]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def vocabulary() -> list[str]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*SPECIAL, *letters, *(merge.replace(" ", "") for merge in MERGES), "<tool>"]


class TinyLlama:
    """Values of a random llama under GGUF's names, and the file made of them."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.values: dict[str, NDArray[np.float32]] = {
            name: random.standard_normal(shape).astype(np.float32)
            for name, shape in self.shapes().items()
        }
        self.kinds: dict[str, gguf.GGMLQuantizationType] = {}
        self.architecture = "llama"
        self.changed: dict[str, Any] = {}

    @staticmethod
    def shapes() -> dict[str, tuple[int, ...]]:
        key_rows = HIDDEN // HEADS * KV_HEADS
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (len(vocabulary()), HIDDEN),
            "output_norm.weight": (HIDDEN,),
        }
        for layer in range(LAYERS):
            block = {
                "attn_norm": (HIDDEN,),
                "attn_q": (HIDDEN, HIDDEN),
                "attn_k": (key_rows, HIDDEN),
                "attn_v": (key_rows, HIDDEN),
                "attn_output": (HIDDEN, HIDDEN),
                "ffn_norm": (HIDDEN,),
                "ffn_gate": (MIDDLE, HIDDEN),
                "ffn_up": (MIDDLE, HIDDEN),
                "ffn_down": (HIDDEN, MIDDLE),
            }
            shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
        return shapes

    def metadata(self) -> dict[str, Any]:
        tokens = vocabulary()
        kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 4)
        return {
            "llama.block_count": LAYERS,
            "llama.context_length": 128,
            "llama.embedding_length": HIDDEN,
            "llama.feed_forward_length": MIDDLE,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": KV_HEADS,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 100000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [*kinds, gguf.TokenType.USER_DEFINED],
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.padding_token_id": 2,
            "tokenizer.chat_template": TEMPLATE,
        } | self.changed

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.metadata().items():
            if value is not None:
                _add(writer, key, value)
        for name, values in self.values.items():
            kind = self.kinds.get(name, gguf.GGMLQuantizationType.F32)
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


class RecordedProgress:
    """Remembers the labels, and how much was done of each total."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.totals: list[int | None] = []
        self.done: list[int] = []
        self.open = 0

    def start(self, label: str, total: int | None) -> None:
        self.labels.append(label)
        self.totals.append(total)
        self.done.append(0)
        self.open += 1

    def advance(self, n: int) -> None:
        self.done[-1] += n

    def finish(self) -> None:
        self.open -= 1


@pytest.fixture
def tiny_llama() -> TinyLlama:
    return TinyLlama()


@pytest.fixture
def progress() -> RecordedProgress:
    return RecordedProgress()


@pytest.fixture
def new_progress() -> Callable[[], RecordedProgress]:
    return RecordedProgress
