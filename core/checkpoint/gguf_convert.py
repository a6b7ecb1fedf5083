"""A GGUF file of the llama architecture becomes a Hugging Face folder in bfloat16."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.gguf_file import GgufFile
from jackfield.core.checkpoint.gguf_tokenizer import build_tokenizer, tokenizer_config
from jackfield.core.checkpoint.gguf_weights import llama_tensors, reject_unknown_tensors
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.safetensors_writer import write_bfloat16


def convert_gguf(source: Path, folder: Path, progress: Progress) -> None:
    """Write config, weights and tokenizer of `source` into the existing folder `folder`.

    `progress` counts bytes of weights. Raises CheckpointError when `source` is no GGUF file, is
    not a llama, or holds something that the result could not express.
    """
    file = GgufFile(source)
    config = llama_config(file)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", _generation_config(config))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(file))
    build_tokenizer(file).save(str(folder / "tokenizer.json"))
    _write_weights(file, config, folder / "model.safetensors", progress)


def llama_config(file: GgufFile) -> dict[str, Any]:
    """The content of config.json."""
    _reject_other_models(file)
    num_heads = file.value("llama.attention.head_count", int)
    hidden_size = file.value("llama.embedding_length", int)
    head_dim = file.value("llama.attention.key_length", int, hidden_size // num_heads)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(file.value("tokenizer.ggml.tokens", list)),
        "hidden_size": hidden_size,
        "intermediate_size": file.value("llama.feed_forward_length", int),
        "num_hidden_layers": file.value("llama.block_count", int),
        "num_attention_heads": num_heads,
        "num_key_value_heads": file.value("llama.attention.head_count_kv", int, num_heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "max_position_embeddings": file.value("llama.context_length", int),
        "rms_norm_eps": _decimal(file.value("llama.attention.layer_norm_rms_epsilon", float)),
        "rope_theta": _decimal(file.value("llama.rope.freq_base", float, 10000.0)),
        "rope_scaling": None,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "bos_token_id": file.value("tokenizer.ggml.bos_token_id", int, None),
        "eos_token_id": file.value("tokenizer.ggml.eos_token_id", int, None),
        "pad_token_id": file.value("tokenizer.ggml.padding_token_id", int, None),
    }


def _reject_other_models(file: GgufFile) -> None:
    architecture = file.value("general.architecture", str)
    if architecture != "llama":
        raise CheckpointError(f"{file.path}: architecture {architecture!r} is not 'llama'.")
    scaling = file.value("llama.rope.scaling.type", str, "none")
    if scaling != "none":
        raise CheckpointError(f"{file.path}: rope scaling {scaling!r} cannot be converted.")


def _write_weights(
    file: GgufFile, config: dict[str, Any], path: Path, progress: Progress
) -> None:
    num_layers = config["num_hidden_layers"]
    reject_unknown_tensors(file, num_layers)
    tensors = list(llama_tensors(file, num_layers))
    progress.start(f"Converting {file.path.name}", sum(t.num_bytes for t in tensors))
    try:
        write_bfloat16(path, tensors, progress.advance)
    finally:
        progress.finish()


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}


def _decimal(value: float) -> float:
    """The shortest decimal that is the same float32, so that 9.99999975e-06 reads 1e-05."""
    return float(str(np.float32(value)))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
