"""`jackfield eval kv`: two configurations of a tiny model on one text."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.evaluation.agreement import Agreement, Memory
from jackfield.core.evaluation.kv import DEFAULT_TEXT
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.server.cli import main

TEXT = "the cat sat on the mat, the dog in the sun. one two three four five. " * 12
ENGINE = 'threads = 1\nmax_num_seqs = 2\n[kernel]\nstack = ["torch"]\n'


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("JACKFIELD_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


class Files:
    """Writes configurations and runs the command on them."""

    def __init__(self, tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.tmp_path, self.folder, self._capsys = tmp_path, folder, capsys
        self.text = self.write("text.txt", TEXT)
        self.plain = self.config("plain", 'stack = ["paged"]\nnum_blocks = 16')
        self.lossy = self.config("lossy", 'stack = ["paged", "fp8"]\nnum_blocks = 16')

    def write(self, name: str, content: str) -> Path:
        (self.tmp_path / name).write_text(content)
        return self.tmp_path / name

    def config(self, name: str, cache: str, model: Path | None = None) -> Path:
        model_table = f'[model]\nname = "{model or self.folder}"\n'
        return self.write(f"{name}.toml", f"{model_table}[engine]\n{ENGINE}[cache]\n{cache}\n")

    def run(self, a: Path, b: Path, *options: str) -> tuple[int, str, str]:
        code = main(["eval", "kv", "--config", str(a), "--config", str(b), *options])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def compared(self, a: Path, b: Path, *options: str) -> dict[str, Any]:
        code, out, err = self.run(a, b, "--text", str(self.text), "--json", *options)
        assert code == 0, out + err
        result: dict[str, Any] = json.loads(out)
        return result


@pytest.fixture
def files(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, folder, capsys)


def test_a_configuration_is_like_itself(files: Files) -> None:
    for config in (files.plain, files.lossy):
        result = files.compared(config, config)
        assert (result["mean_kl"], result["max_logprob_difference"]) == (0.0, 0.0)
        assert result["top1_agreement"] == 1.0
        assert result["divergence"] is None
        assert result["a"] == result["b"]
        assert result["perplexity_a"] == result["perplexity_b"]


def test_one_byte_costs_something_and_saves_three(files: Files) -> None:
    result = files.compared(files.plain, files.lossy)
    assert 0 < result["mean_kl"] < 1
    assert 0.5 < result["top1_agreement"] <= 1
    assert result["max_logprob_difference"] > 0
    assert (result["a"]["bytes_per_token"], result["b"]["bytes_per_token"]) == (512, 128)
    assert result["b"]["encoding"] == "fp8_e4m3, scales calibrated"
    assert result["a"]["encoding"] == "float32"


def test_perplexity_and_greedy_tokens_are_those_of_the_engine(files: Files) -> None:
    result = files.compared(files.plain, files.lossy, "--tokens", "100")
    with LLM(config=files.plain, progress=SilentProgress()) as llm:
        tokenizer = llm.assembly.tokenizer
        assert tokenizer is not None
        ids = tokenizer.encode(TEXT)[:100]
        params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, prompt_logprobs=0)
        output = llm.generate({"prompt_token_ids": ids}, params, use_tqdm=False)[0]
    assert output.prompt_logprobs is not None
    scores = [
        entry[token].logprob
        for token, entry in zip(ids, output.prompt_logprobs, strict=True)
        if entry is not None
    ]
    assert len(scores) == 99
    assert math.isclose(result["perplexity_a"], math.exp(-sum(scores) / len(scores)), rel_tol=1e-4)
    found = result["divergence"]
    if found is not None:
        assert output.outputs[0].token_ids[found["index"]] == found["token_a"]


def test_the_pool_bounds_the_text(files: Files) -> None:
    assert files.compared(files.plain, files.plain, "--tokens", "20")["tokens"] == 20
    fitting = files.compared(files.plain, files.plain)
    assert (fitting["tokens"], fitting["greedy_tokens"], fitting["piece"]) == (192, 64, 64)
    code, _, err = files.run(files.plain, files.plain, "--tokens", "193")
    assert code == 2 and "leave room for 192" in err
    short = files.write("short.txt", "the cat")
    code, _, err = files.run(files.plain, files.plain, "--text", str(short), "--tokens", "50")
    assert code == 2 and "50 of them are compared" in err
    small = files.config("small", 'stack = ["paged"]\nnum_blocks = 4')
    code, _, err = files.run(files.plain, small)
    assert code == 2 and "B holds 64 tokens, but A read and wrote 256" in err


def test_the_screen(files: Files) -> None:
    code, out, err = files.run(files.plain, files.lossy)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) < 200
    assert any(line.split()[:2] == ["stored", "as"] and "fp8_e4m3" in line for line in lines)
    for part in ("KL(A||B)", "perplexity", "bytes per token", "first other greedy token"):
        assert any(line.startswith(part) for line in lines), part
    assert "A reads the text" in err and "B reads the text" in err


def test_notices_of_a_side_are_shown(files: Files) -> None:
    bare = files.config("bare", 'stack = ["paged", "fp8"]\nnum_blocks = 16\nfp8.scales = "one"')
    _, out, _ = files.run(files.plain, bare)
    assert "notice B: ATTENTION" in out


def test_other_models_are_refused_before_anything_is_loaded(files: Files, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other", seed=1)
    config = files.config("other", 'stack = ["paged"]', other)
    code, out, err = files.run(files.plain, config)
    assert (code, out) == (2, "")
    assert "model.name" in err and str(other) in err and "Loading" not in err
    (tmp_path / "tokens").mkdir()
    code, _, err = files.run(
        files.plain,
        files.write(
            "tokens.toml",
            f'[model]\nname = "{files.folder}"\ntokenizer = "{tmp_path / "tokens"}"\n',
        ),
    )
    assert code == 2 and "model.tokenizer" in err


def test_what_is_missing_or_unreadable_is_said(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "kv", "--config", str(files.plain)]) == 2
    assert "--config is given 1 times; give it twice" in capsys.readouterr().err
    code, _, err = files.run(files.plain, files.plain, "--text", str(files.tmp_path / "none"))
    assert code == 2 and "cannot be read" in err
    code, _, err = files.run(files.plain, files.plain, "--set", "model.skip_tokenizer_init=true")
    assert code == 2 and "needs the tokenizer" in err


def test_the_built_in_text_is_a_few_hundred_words() -> None:
    assert 400 < len(DEFAULT_TEXT.read_text("utf-8").split()) < 600


def test_agreement_by_hand() -> None:
    a = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [1.0, 1.0, 1.0]]).log()
    b = torch.tensor([[0.25, 0.5, 0.25], [0.2, 0.4, 0.4], [0.1, 0.2, 0.7]]).log()
    agreement = Agreement([0, 1, 2])
    agreement.add(0, a[:1], b[:1])
    agreement.add(1, a[1:], b[1:])
    kl = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert math.isclose(agreement.mean_divergence, kl / 2, rel_tol=1e-6)
    assert agreement.same_top == 0.5
    assert math.isclose(agreement.largest_difference, math.log(2), rel_tol=1e-6)
    assert math.isclose(agreement.a.perplexity, (1 / (0.25 * 0.4)) ** 0.5, rel_tol=1e-6)


def test_logits_are_kept_as_they_are() -> None:
    memory = Memory(5, 3)
    rows = torch.randn(5, 3)
    memory.put(0, rows[:2])
    memory.put(2, rows[2:])
    assert torch.equal(memory.get(1, 3), rows[1:4])
    memory.close()
