"""`jackfield doctor`: what is told of models that are well, and of those that are not."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from jackfield.core.testing.tiny_model import CONFIG, write_tiny_model
from jackfield.server.cli import main

Findings = list[dict[str, str]]
Run = Callable[..., Findings]
FP8 = {"quant_method": "fp8", "weight_block_size": [32, 32]}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("JACKFIELD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(model: Path | str, *options: str, code: int = 0) -> Findings:
        words = ["doctor", str(model), "--json", "--set", "kernel.stack=['torch']", *options]
        assert main(words) == code
        report = json.loads(capsys.readouterr().out)
        findings: Findings = report["findings"]
        assert (code == 1) == any(each["severity"] == "problem" for each in findings)
        return findings

    return run


def told(findings: Findings, subject: str) -> str:
    """What is told of a subject, with how bad it is, all in one."""
    found = [f"{one['severity']}: {one['text']}" for one in findings if one["subject"] == subject]
    return " / ".join(found)


def change(folder: Path, file: str = "config.json", **values: Any) -> None:
    content = json.loads((folder / file).read_text()) | values
    (folder / file).write_text(json.dumps(content))


def spoil(folder: Path, **tensors: Any) -> None:
    """Names of tensors with "__" for "."; None removes one."""
    path = folder / "model.safetensors"
    stored = load_file(path)
    for name, tensor in tensors.items():
        stored.pop(name.replace("__", "."), None)
        if tensor is not None:
            stored[name.replace("__", ".")] = tensor
    save_file(stored, path)


def test_a_model_that_is_well(run: Run, folder: Path) -> None:
    findings = run(folder, "--memory", "8 GiB", "--set", "model.max_model_len=200")
    assert {one["severity"] for one in findings} == {"ok"}
    assert "LlamaForCausalLM is served by jackfield" in told(findings, "architecture")
    assert "256 positions; model.max_model_len sets 200" in told(findings, "context")
    assert "All 21 in 1 files" in told(findings, "tensors")
    assert "divides among 1, 2, 4 tensor-parallel ranks." in told(findings, "ranks")
    assert "512 bytes in float32" in told(findings, "memory")
    assert "7.2 GiB (0.9 of what --memory says)" in told(findings, "memory")
    assert "token ids 2." in told(findings, "ends")
    for one in findings:
        assert one["text"].endswith(".") and ". " not in one["text"].replace("config. ", ""), one


def test_nothing_is_read_but_headers(run: Run, folder: Path) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = 8 + struct.unpack("<Q", content[:8])[0]
    with path.open("r+b") as file:
        file.truncate(length)
        file.truncate(len(content))  # of weights there are zeros only, in a hole
    assert "ok: All 21" in told(run(folder), "tensors")


def test_the_bytes_of_weights_and_what_fits(run: Run, folder: Path) -> None:
    parameters = sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    wish = ("--set", "cache.num_blocks=8", "--set", "engine.max_num_seqs=4")
    memory = told(run(folder, *wish), "memory")
    assert f"Weights take {4 * parameters / 1024:.2f}".rstrip("0") in memory
    assert "note: " in memory and "room for 128 tokens, less than the context of 256" in memory
    memory = told(run(folder, "--set", "cache.memory=256KiB"), "memory")
    assert "by cache.memory" in memory and "room for 512 tokens: 2 sequences" in memory
    memory = told(run(folder, "--memory", "100KiB", code=1), "memory")
    assert "problem: Weights of" in memory and "do not fit into 90 KiB" in memory
    memory = told(run(folder, "--memory", "5MiB", code=1), "memory")
    assert "nothing of 4.5 MiB" in memory
    eight = told(run(folder, "--set", "cache.stack=['paged','fp8']"), "memory")
    assert "128 bytes in fp8_e4m3" in eight


@pytest.mark.parametrize(
    ("values", "subject", "words"),
    [
        ({"architectures": ["LlamaForCausaLM"]}, "architecture", "Did you mean 'LlamaForCausalLM'"),
        ({"architectures": []}, "folder", "architectures is []"),
        ({"hidden_act": "gelu"}, "config", "hidden_act is 'gelu'"),
        ({"quantization_config": {"quant_method": "gguf"}}, "config", "quant_method is 'gguf'"),
        ({"quantization_config": FP8}, "quantization", "no weight is quantized"),
        ({"eos_token_id": 300}, "ends", "of which 300 is none of the model's 300"),
        ({"num_attention_heads": 8}, "tensors", "'model.layers.0.self_attn.q_proj.weight' is "
         "[64, 64] (and 1 more by layer), but config.json makes it [128, 64]"),
        ({"num_hidden_layers": 3}, "tensors",
         "lack 'model.layers.2.input_layernorm.weight' of shape [64]; the nearest name is 'model."),
        ({"num_hidden_layers": 1}, "tensors", "'model.layers.1.input_layernorm.weight' of shape "
         "[64] has no place in the model"),
        ({"vocab_size": 280}, "tokenizer", "It has 298 tokens, but the model only 280 rows"),
    ],
)  # fmt: skip
def test_configs_that_do_not_fit(
    run: Run, folder: Path, values: dict[str, Any], subject: str, words: str
) -> None:
    change(folder, **values)
    assert words in told(run(folder, code=1), subject)


def test_tensors_of_other_names_and_types(run: Run, folder: Path) -> None:
    name = "model__layers__1__mlp__up_proj__weight"
    spoil(folder, **{name: torch.zeros(96, 64).to(torch.float8_e4m3fn), "extra": torch.ones(3)})
    found = told(run(folder, code=1), "tensors")
    assert "'model.layers.1.mlp.up_proj.weight' is F8_E4M3, but" in found
    assert "'extra' of shape [3] has no place" in found
    spoil(folder, **{name: None, "model__layers__1__mlp__up__weight": torch.zeros(96, 64)})
    found = told(run(folder, code=1), "tensors")
    assert "lack 'model.layers.1.mlp.up_proj.weight' of shape [96, 64]" in found
    assert "nearest name is 'model.layers.1.mlp.up.weight'" in found


def test_an_index_that_points_nowhere(run: Run, folder: Path) -> None:
    tensors = list(load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    places = dict.fromkeys(tensors, "one.safetensors") | {tensors[0]: "two.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    found = run(folder, code=1)
    assert "lacks the shard two.safetensors, which model.safetensors.index" in told(found, "files")
    assert "Weights take" in told(found, "memory"), "what is known without files is told"


def test_texts(run: Run, tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "bare", template=None, top_n=3, temperature=0.5)
    findings = run(folder)
    assert "note: There is no chat template" in told(findings, "template")
    assert "keys without effect, top_n" in told(findings, "sampling")
    assert "presets temperature 0.5" in told(findings, "sampling")
    (folder / "tokenizer.json").unlink()
    assert "tokenizer.json is missing" in told(run(folder, code=1), "tokenizer")
    assert told(run(folder, "--set", "model.skip_tokenizer_init=true"), "tokenizer") == ""
    folder = write_tiny_model(tmp_path / "odd", template="{{ raise_exception('no') }}")
    change(folder, eos_token_id=None)
    change(folder, "generation_config.json", eos_token_id=None)
    change(folder, "tokenizer_config.json", eos_token=None)
    findings = run(folder)
    assert "note: A plain chat fails: The chat template refuses" in told(findings, "template")
    assert "note: No token ends an answer" in told(findings, "ends")


def test_long_contexts_and_odd_sizes(run: Run, folder: Path) -> None:
    change(folder, rope_scaling={"type": "yarn", "factor": 4.0})
    found = told(run(folder), "context")
    assert "1,024 positions, by rope scaling 'yarn' of 256." in found
    assert "model.max_model_len" in told(
        run(folder, "--set", "model.max_model_len=2000", code=1), "stack"
    )
    change(folder, num_attention_heads=1, num_key_value_heads=1, head_dim=16)
    spoil(folder, **{
        f"model__layers__{i}__self_attn__{name}_proj__weight": torch.zeros(shape)
        for i in (0, 1)
        for name, shape in {"q": (16, 64), "k": (16, 64), "v": (16, 64), "o": (64, 16)}.items()
    })  # fmt: skip
    assert "note: The model (1 heads" in told(run(folder), "ranks")


def test_dummy_weights_need_no_files(run: Run, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no *.safetensors file" in told(run(folder, code=1), "files")
    dummy = run(folder, "--set", "model.load_format=dummy")
    assert "load_format is dummy" in told(dummy, "tensors")


def test_the_screen(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(folder, num_hidden_layers=1)
    assert main(["doctor", str(folder), "--memory", "1GiB"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 40 and max(map(len, lines)) <= 100
    assert lines[0].startswith("ok       folder")
    assert any(line.startswith("problem  tensors") for line in lines)
    assert main(["doctor", str(folder), "--memory", "much"]) == 2
    assert "--memory is 'much': it should be" in capsys.readouterr().err
    assert main(["doctor", str(folder / "absent")]) == 4


def test_config_and_tensors_of_the_tiny_model_agree() -> None:
    assert CONFIG["num_hidden_layers"] == 2, "the numbers above are of this model"
