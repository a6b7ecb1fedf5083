"""`jackfield eval model`: a tiny model against itself, another, and itself in 8 bits."""

import json
import math
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from jackfield import LLM, SamplingParams
from jackfield.core.api import ConfigError
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.evaluation.agreement import Agreement
from jackfield.core.evaluation.documents import last_number, read_documents, read_questions
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.server.cli import main

TEXT = "the cat sat on the mat, the dog in the sun. one two three four five. " * 12
SET = [
    "--set", "engine.threads=1", "--set", "cache.num_blocks=6", "--set", "kernel.stack=['torch']",
    "--set", "engine.max_num_seqs=4",
]  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("JACKFIELD_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def eight_bits(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in FP8, one scale a weight."""
    result = write_tiny_model(tmp_path_factory.mktemp("fp8"))
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if "_proj" in name]:
        scale = tensors[name].abs().max() / 448
        tensors[name] = (tensors[name] / scale).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, result / "model.safetensors")
    config = json.loads((result / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (result / "config.json").write_text(json.dumps(config))
    return result


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], text: Path) -> Run:
    def run(*options: str | Path, code: int = 0) -> tuple[int, str, str]:
        words = [str(option) for option in options]
        words += [] if "--text" in words else ["--text", str(text)]
        found = main(["eval", "model", *words, *SET])
        captured = capsys.readouterr()
        assert found == code, captured.out + captured.err
        return found, captured.out, captured.err

    return run


def compared(run: Run, *options: str | Path, code: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(*options, "--json", code=code)[1])
    return result


def test_a_model_is_like_itself(run: Run, folder: Path) -> None:
    result = compared(run, "--model", folder, "--reference", "fp32")
    assert (result["mean_kl"], result["p99_kl"], result["max_logprob_difference"]) == (0, 0, 0)
    assert result["top1_agreement"] == 1
    assert result["model"]["perplexity"] == result["reference"]["perplexity"]
    assert result["windows"] > 1
    assert result["compared"] == result["tokens"] - result["windows"]


def test_eight_bits_cost_something(run: Run, folder: Path, eight_bits: Path) -> None:
    result = compared(run, "--model", eight_bits, "--reference", folder)
    assert 0 < result["mean_kl"] < result["p99_kl"] < 1
    assert 0.5 < result["top1_agreement"] <= 1
    assert (result["model"]["weights"], result["reference"]["weights"]) == ("fp8", "plain")
    again = compared(run, "--model", eight_bits, "--reference", folder)
    assert again == result


def test_the_perplexity_is_that_of_the_engine(run: Run, folder: Path) -> None:
    result = compared(run, "--model", folder, "--reference", "float32", "--tokens", "96")
    with LLM(folder, progress=SilentProgress(), num_gpu_blocks_override=8) as llm:
        tokenizer = llm.assembly.tokenizer
        assert tokenizer is not None
        ids = tokenizer.encode(TEXT)[:96]
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        output = llm.generate({"prompt_token_ids": ids}, params, use_tqdm=False)[0]
    assert output.prompt_logprobs is not None
    scores = [
        row[token].logprob
        for token, row in zip(ids, output.prompt_logprobs, strict=True)
        if row is not None
    ]
    right = math.exp(-sum(scores) / len(scores))
    assert math.isclose(result["model"]["perplexity"], right, rel_tol=1e-4)
    assert result["windows"] == 1 and len(scores) == result["compared"] == 95


def test_questions_and_their_last_numbers(run: Run, folder: Path, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other", seed=1)
    task = tmp_path / "task.jsonl"
    task.write_text('{"question": "one", "answer": "#### 1"}\n\n{"question": "two", "answer": 2}\n')
    options = ("--model", folder, "--reference", other, "--task", task, "--max-tokens", "4")
    _, out, err = run(*options, "--limit", "1")
    assert "right answers" in out and "0 of 1 (0.0%)" in out
    result = compared(run, *options)
    score = {"questions": 2, "right": 0, "cut": 2, "right_alone": 0}
    assert result["model"]["task"] == result["reference"]["task"] == score
    assert "The reference reads" in err and "The model reads" in err


def test_the_screen_and_the_limit(run: Run, folder: Path, eight_bits: Path) -> None:
    options = ("--model", eight_bits, "--reference", folder, "--tokens", "50")
    _, out, err = run(*options, "--max-kl", "0", code=1)
    lines = out.splitlines()
    assert len(lines) < 20 and "mean divergence is above 0" in err
    for part in ("KL(reference||model)", "perplexity", "same most likely token", "weights"):
        assert any(line.startswith(part) for line in lines), part
    run(*options, "--max-kl", "5")


def test_what_cannot_be_compared(
    run: Run, folder: Path, eight_bits: Path, tmp_path: Path
) -> None:
    assert "--reference, a folder or a type" in run("--model", folder, code=2)[2]
    _, _, err = run("--model", eight_bits, "--reference", "bf16", code=2)
    assert "quantized (fp8)" in err and "bfloat16 are not known" in err and "Loading" not in err
    smaller = write_tiny_model(tmp_path / "smaller")
    config = json.loads((smaller / "config.json").read_text())
    (smaller / "config.json").write_text(json.dumps({**config, "vocab_size": 299}))
    _, _, err = run("--model", folder, "--reference", smaller, code=2)
    assert "300 entries" in err and "299" in err
    tokenizer = json.loads((smaller / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = []
    (smaller / "tokenizer.json").write_text(json.dumps(tokenizer))
    (smaller / "config.json").write_text(json.dumps(config))
    assert "other tokens" in run("--model", folder, "--reference", smaller, code=2)[2]
    short = tmp_path / "short.txt"
    short.write_text("")
    _, _, err = run("--model", folder, "--reference", "fp32", "--text", short, code=2)
    assert "fewer than two tokens" in err
    options = ("--model", folder, "--reference", "fp32", "--tokens", str(10**12))
    assert "bytes in" in run(*options, code=2)[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("it is $1,234.50.", "1234.5"), ("-3", "-3"), ("#### 18\n", "18"), ("none", None),
     ("2 and 3", "3"), (".5", "0.5"), ("a b7.", "7")],
)  # fmt: skip
def test_last_numbers(text: str, expected: str | None) -> None:
    assert last_number(text) == (None if expected is None else Decimal(expected))


def test_files_of_texts_and_questions(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b"}\n')
    assert read_documents(file) == ["a", "b"]
    for content, words in (
        ("", "has no line"),
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 is to be a JSON object"),
        ('{"answer": "1"}', "line 1: question is None"),
        ('{"question": "x", "answer": "none"}', "line 1: answer has no number"),
    ):
        file.write_text(content)
        with pytest.raises(ConfigError, match=words):
            read_questions(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_documents(tmp_path / "absent")


def test_the_tail_by_hand() -> None:
    agreement = Agreement()
    for peak in (0.5, 0.9):
        agreement.begin([0, 0, 1])
        agreement.add(0, torch.full((3, 2), 0.5).log(), torch.tensor([[peak, 1 - peak]] * 3).log())
    low, high = (0.5 * math.log(0.25 / p / (1 - p)) for p in (0.5, 0.9))
    assert agreement.count == 4
    assert math.isclose(agreement.mean_divergence, (low + high) / 2, rel_tol=1e-6)
    assert math.isclose(agreement.divergence_at(0.99), high, rel_tol=1e-6)
    assert agreement.divergence_at(0.5) == pytest.approx(low, abs=1e-9)
