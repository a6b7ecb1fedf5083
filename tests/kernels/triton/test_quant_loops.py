"""Weights reach tensor cores as they were loaded, which only compiled code shows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).with_name("quant_loops.py")


def test_nothing_changes_threads_within_the_loop(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env={**kept, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    # Of 16 outputs, 8 rows and a block of 4 bits: 4 values of 2 products each.
    assert [each["mma.sync"] for each in found] == [32, 8, 32, 4]
    assert [each["ld.global.L1"] for each in found] == [4, 2, 4, 2]
    assert [each["shfl.sync"] for each in found] == [0] * 4
    assert [each["shared"] for each in found] == [0] * 4
    # Older GPUs may have one there, for the first round: they have no kernel to wait for.
    assert all(each["bar.sync"] <= (each["arch"] < 90) for each in found)
