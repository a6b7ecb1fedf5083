"""Every shipped configuration compiles for the GPUs it is for, fits, and spills nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

SHARED = {80: 166912, 90: 232448}
"""Bytes of shared memory that a program may have."""
SCRIPT = Path(__file__).with_name("compile_all.py")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if torch.cuda.is_available():
        kept["JACKFIELD_ALL_KERNELS"] = "1"
    return {**kept, "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}


@pytest.mark.parametrize("arch", [80, 90])
def test_shipped_configurations(arch: int, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(arch)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    names = [line["name"] for line in lines]
    assert len(set(names)) == len(names) > 0
    assert [line for line in lines if line["error"]] == []
    assert [line for line in lines if line["spilled"]] == []
    assert [line for line in lines if line["shared"] > SHARED[arch]] == []
    assert [line for line in lines if line["buffers"] < (line["min_buffers"] or 0)] == []
    merging = [line for line in lines if "merge " in line["name"]]
    assert merging and [line for line in merging if line["shared"]] == [], "threads meet there"
