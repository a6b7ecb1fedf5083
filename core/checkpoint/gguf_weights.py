"""The tensors of a GGUF llama under the names and in the order of a Hugging Face checkpoint."""

import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.gguf_file import GgufFile
from jackfield.core.checkpoint.safetensors_writer import PendingTensor

TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
BLOCK_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def llama_tensors(file: GgufFile, num_layers: int) -> Iterator[PendingTensor]:
    """Every tensor that a llama of `num_layers` layers has; CheckpointError when one lacks."""
    yield from (_tensor(file, f"{name}.weight") for name in ("token_embd", "output_norm"))
    if "output.weight" in file.tensors:
        yield _tensor(file, "output.weight")
    for layer in range(num_layers):
        yield from (_tensor(file, f"blk.{layer}.{name}.weight") for name in BLOCK_NAMES)


def reject_unknown_tensors(file: GgufFile, num_layers: int) -> None:
    """Raise CheckpointError for a tensor that the conversion would lose."""
    known = {f"{name}.weight" for name in TOP_NAMES}
    known |= {f"blk.{layer}.{name}.weight" for layer in range(num_layers) for name in BLOCK_NAMES}
    surplus = sorted(file.tensors.keys() - known)
    if surplus:
        raise CheckpointError(
            f"{file.path}: tensor {surplus[0]!r} has no place in a llama of {num_layers} layers."
        )


def _tensor(file: GgufFile, name: str) -> PendingTensor:
    if name not in file.tensors:
        raise CheckpointError(f"{file.path} lacks the tensor {name!r}; fetch it again.")
    return PendingTensor(_checkpoint_name(name), file.shape(name), _reader(file, name))


def _checkpoint_name(name: str) -> str:
    block = BLOCK_TENSOR.fullmatch(name)
    if block is None:
        return f"{TOP_NAMES[name.removesuffix('.weight')]}.weight"
    return f"model.layers.{block[1]}.{BLOCK_NAMES[block[2]]}.weight"


def _reader(file: GgufFile, name: str) -> Callable[[], NDArray[np.float32]]:
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}
    block = BLOCK_TENSOR.fullmatch(name)
    key = heads.get(block[2]) if block else None
    if key is None:
        return lambda: file.read(name)
    num_heads = file.value(f"llama.attention.{key}", int)
    return lambda: split_rotary_halves(file.read(name), num_heads)


def split_rotary_halves(weight: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Undo GGUF's row order, in which the two halves that rotary embedding pairs interleave."""
    rows = weight.shape[0]
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)
