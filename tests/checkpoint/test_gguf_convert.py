"""A GGUF llama as a Hugging Face folder, against the reference library's own reading of it."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.gguf_convert import convert_gguf
from jackfield.core.checkpoint.gguf_weights import split_rotary_halves
from jackfield.core.checkpoint.progress import SilentProgress


def convert(tiny_llama: Any, folder: Path) -> Path:
    source = tiny_llama.write(folder / "tiny.gguf")
    result = folder / "result"
    result.mkdir()
    convert_gguf(source, result, SilentProgress())
    return result


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1])
def test_weights_equal_the_reference(tiny_llama: Any, tmp_path: Path, kind: Kind) -> None:
    torch.set_num_threads(1)
    tiny_llama.kinds = {name: kind for name in tiny_llama.values if "norm" not in name}
    folder = convert(tiny_llama, tmp_path)
    ours = AutoModelForCausalLM.from_pretrained(folder)
    reference = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="tiny.gguf",
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    expected = reference.state_dict()
    assert ours.dtype == torch.bfloat16
    assert ours.state_dict().keys() == expected.keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_rotary_rows_are_put_back() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert split_rotary_halves(rows, 2).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_config_has_what_a_loader_needs(tiny_llama: Any, tmp_path: Path) -> None:
    tiny_llama.changed = {"llama.rope.freq_base": None}
    folder = convert(tiny_llama, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "head_dim": 16,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 128,
    }
    assert {name: config[name] for name in expected} == expected
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def test_output_tensor_of_its_own_unties_the_embeddings(tiny_llama: Any, tmp_path: Path) -> None:
    head = tiny_llama.values["token_embd.weight"] + 1
    tiny_llama.values["output.weight"] = head
    folder = convert(tiny_llama, tmp_path)
    weights = load_file(folder / "model.safetensors")
    assert torch.equal(weights["lm_head.weight"], torch.from_numpy(head).to(torch.bfloat16))
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False


def test_tokenizer_splits_digits_and_keeps_special_tokens(tiny_llama: Any, tmp_path: Path) -> None:
    folder = convert(tiny_llama, tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "the the 12 ü<|im_end|><tool>"
    tokens = tokenizer.encode(text).tokens
    assert tokens == ["the", "Ġthe", "Ġ", "1", "2", "Ġ", "Ã", "¼", "<|im_end|>", "<tool>"]
    assert tokenizer.decode(tokenizer.encode(text).ids) == "the the 12 ü<tool>"
    reference = AutoTokenizer.from_pretrained(folder)
    assert reference(text).input_ids == tokenizer.encode(text).ids
    assert (reference.bos_token_id, reference.eos_token_id, reference.pad_token_id) == (1, 2, 2)
    assert reference.chat_template == tiny_llama.metadata()["tokenizer.chat_template"]


def test_digits_stay_together_where_the_model_has_them_so(tiny_llama: Any, tmp_path: Path) -> None:
    tiny_llama.changed = {"tokenizer.ggml.pre": "gpt-2", "tokenizer.chat_template": None}
    folder = convert(tiny_llama, tmp_path)
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode("12").tokens == ["12"]
    assert "chat_template" not in json.loads((folder / "tokenizer_config.json").read_text())


def test_progress_counts_the_bytes_written(
    tiny_llama: Any, tmp_path: Path, progress: Any
) -> None:
    result = tmp_path / "result"
    result.mkdir()
    convert_gguf(tiny_llama.write(tmp_path / "tiny.gguf"), result, progress)
    size = sum(values.size * 2 for values in tiny_llama.values.values())
    assert (progress.totals, progress.done, progress.open) == ([size], [size], 0)
    assert progress.labels == ["Converting tiny.gguf"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"llama.block_count": None}, "lacks the metadata key 'llama.block_count'"),
        ({"llama.block_count": "two"}, "'llama.block_count' holds str, not int"),
        ({"llama.block_count": 3}, "lacks the tensor 'blk.2.attn_norm.weight'"),
        ({"llama.block_count": 1}, "tensor 'blk.1.attn_k.weight' has no place"),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn' cannot be converted"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer kind 'bert'"),
        ({"tokenizer.ggml.pre": "qwen2"}, "unknown pre-tokenizer 'qwen2'; known: smollm"),
        ({"tokenizer.ggml.merges": ["t nosuch"]}, "broken BPE merges"),
    ],
)
def test_what_cannot_be_converted_is_named(
    tiny_llama: Any, tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    tiny_llama.changed = changed
    with pytest.raises(CheckpointError, match=words) as caught:
        convert(tiny_llama, tmp_path)
    assert "tiny.gguf" in str(caught.value)


def test_other_architectures_and_types_are_refused(tiny_llama: Any, tmp_path: Path) -> None:
    tiny_llama.architecture = "falcon"
    with pytest.raises(CheckpointError, match="architecture 'falcon' is not 'llama'"):
        convert(tiny_llama, tmp_path)
    (tmp_path / "result").rmdir()
    tiny_llama.architecture = "llama"
    tiny_llama.kinds = {"blk.0.ffn_up.weight": gguf.GGMLQuantizationType.Q5_0}
    with pytest.raises(CheckpointError, match=r"'blk.0.ffn_up.weight' has type Q5_0; readable"):
        convert(tiny_llama, tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, -1])
def test_truncated_file_is_named(tiny_llama: Any, tmp_path: Path, keep: int) -> None:
    whole = tiny_llama.write(tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:keep])
    with pytest.raises(CheckpointError, match=r"cut\.gguf is not a complete GGUF file"):
        convert_gguf(tmp_path / "cut.gguf", tmp_path, SilentProgress())
