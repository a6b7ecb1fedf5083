"""Kernels that a start needs are compiled by processes side by side."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_what_others_compiled_is_in_the_cache(tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in os.environ if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(HERE)}
    run = subprocess.run(
        [sys.executable, str(HERE / "compile_aside.py")], env=environment, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    told = json.loads(run.stdout)
    assert told["wanted"] == 6, "three kernels for two widths, each noted once"
    assert not any(told["before"])
    assert all(told["after"])
    assert told["found"] == [True], "a launch after it compiles nothing"


def test_a_process_that_fails_is_told_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    from jackfield.plugins.kernels.triton.compiling import PACKAGE, Wanted
    from jackfield.plugins.kernels.triton.rehearsal import FEW, compile_all

    with caplog.at_level(logging.WARNING, "jackfield.kernels"):
        compile_all([Wanted(f"{PACKAGE}not_there", "kernel", "{}", 90)] * FEW)
    assert "a process that compiles kernels failed: ModuleNotFoundError" in caplog.text
