"""`jackfield plugins check`: who serves which operation, and why the others do not."""

import json
from typing import Any

import pytest

from jackfield.core.api import OPERATIONS, OPTIONAL_OPERATIONS, RANK_OPERATIONS
from jackfield.server.cli import main


def checked(capsys: pytest.CaptureFixture[str], *settings: str, code: int = 0) -> Any:
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert main(["plugins", "check", "--json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def test_every_operation_has_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(capsys, "kernel.stack=['torch']", "model.dtype=float32", "engine.device=cpu")
    assert found["selection"] == "ok"
    assert (found["kernels"]["device"], found["kernels"]["dtype"]) == ("cpu", "float32")
    owners = {row["operation"]: row["owner"] for row in found["kernels"]["rows"]}
    needed = set(OPERATIONS) - OPTIONAL_OPERATIONS - RANK_OPERATIONS
    served = needed | {"experts", "quant_matmul", "quant_experts"}
    assert owners == dict.fromkeys(served, "torch")


def test_who_was_passed_over_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(capsys, "model.dtype=float16", "engine.device=cpu")
    rows = {row["operation"]: row for row in found["kernels"]["rows"]}
    assert rows["attention"]["owner"] == "torch"
    triton, cpu = rows["attention"]["passed"]
    assert triton == "triton: it is made for cuda, not for cpu"
    assert cpu.startswith("cpu: the kernels are made for float32")


def test_an_operation_that_nobody_serves(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("kernel.stack=['cpu']", "model.dtype=float16", "engine.device=cpu")
    found = checked(capsys, *settings, code=3)
    assert found["kernels"] is None
    assert "serves 'attention'" in found["selection"]
