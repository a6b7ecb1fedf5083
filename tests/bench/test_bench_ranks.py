"""Workloads on a model that two processes hold together."""

import json
from typing import Any

import pytest

from jackfield.core.bench.roofline import Machine
from jackfield.server.cli import main

MACHINE = Machine(bandwidth=1e9, flops=1e30)
FLAGS = (
    "--device=cpu", '--set=kernel.stack=["torch"]', "--set=engine.threads=1", "--greedy",
    "--num-gpu-blocks-override=64", "--workload=tokens", "--requests=2", "--input-tokens=8",
    "--output-tokens=4", "--repeat=1", "--max-model-len=64",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackfield.core.bench.throughput.measure_machine", lambda *_: MACHINE)


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["bench", "throughput", *FLAGS, *flags, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("shape", ["qwen3-tiny", "deepseek-v2-tiny"])
def test_ranks_share_what_is_read(capsys: pytest.CaptureFixture[str], shape: str) -> None:
    one = run(capsys, f"--shape={shape}")
    two = run(capsys, f"--shape={shape}", "--tensor-parallel-size=2")
    assert (one["ranks"], two["ranks"]) == (1, 2)
    assert two["output_tokens"] == one["output_tokens"] == 8
    assert 0.5 <= two["roofline_seconds"] / one["roofline_seconds"] < 0.6
    assert two["roofline_share"] == pytest.approx(
        two["roofline_seconds"] / two["seconds"], rel=0.02, abs=1e-3
    )
    assert [load["tokens"] for load in two["experts"]] == [
        load["tokens"] for load in one["experts"]
    ]


def test_the_table_tells_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--shape=qwen3-tiny", "--tensor-parallel-size=2")
    assert main(["bench", "throughput", *FLAGS, *flags]) == 0
    assert "device      2 ranks on " in capsys.readouterr().out
