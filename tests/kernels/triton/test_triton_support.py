"""Whom the plugin serves, what it says to the others, and how it finds its configurations."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.core.api.kernel import OPERATIONS, KvSpec, OpSpec
from jackfield.plugins.kernels.triton import NAMES, TritonKernels, configs, support
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.support import TritonConfig, reasons

CPU = torch.device("cpu")
SPEC = OpSpec(torch.float16, 64, 16, 100)
TABLE = {
    "narrow": {
        "any": {"sm_80": {"BLOCK": 1}, "sm_90": {"BLOCK": 2}},
        "float32": {"sm_90": {"BLOCK": 3}},
    }
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configs:
    monkeypatch.setattr(configs, "FOLDER", tmp_path)
    (tmp_path / "some.json").write_text(json.dumps(TABLE))
    return Configs("some")


def test_operations_are_those_that_are_promised() -> None:
    offered = TritonKernels(TritonConfig()).operations()
    assert set(offered) == set(NAMES) <= set(OPERATIONS)


def test_a_cpu_is_left_to_others() -> None:
    for name, operation in TritonKernels(TritonConfig()).operations().items():
        spec: Any = KvSpec(4, 2, 64, torch.float16, 16) if name == "attention" else SPEC
        assert "NVIDIA" in operation.unsupported(spec, CPU)[0]


def test_a_cpu_needs_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert reasons(CPU, torch.float16, TritonConfig(interpret=True)) == []
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert "TRITON_INTERPRET=1" in reasons(CPU, torch.float16, TritonConfig(interpret=True))[0]


def test_old_gpus_and_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    cuda = torch.device("cuda", 0)
    assert "8.0 or more; cuda:0 has 7.5" in reasons(cuda, torch.float16, TritonConfig())[0]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert reasons(cuda, torch.float16, TritonConfig()) == []
    assert "float64" in reasons(cuda, torch.float64, TritonConfig())[0]
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "NVIDIA" in reasons(cuda, torch.float16, TritonConfig())[0]
    assert "mps" in reasons(torch.device("mps"), torch.float16, TritonConfig())[0]


def test_without_triton_every_operation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    offered = TritonKernels(TritonConfig()).operations()
    assert set(offered) == set(NAMES)
    for operation in offered.values():
        assert "not installed" in operation.unsupported(SPEC, torch.device("cuda"))[0]
        assert not operation.capturable()
    assert "not installed" in reasons(CPU, torch.float16, TritonConfig())[0]


@pytest.mark.parametrize(
    ("dtype", "architecture", "block"),
    [
        ("float16", "sm_80", 1),
        ("float16", "sm_89", 1),
        ("float16", "sm_90", 2),
        ("float16", "sm_100", 2),
        ("float32", "sm_90", 3),
    ],
)
def test_the_newest_that_is_not_newer(
    table: Configs, dtype: str, architecture: str, block: int
) -> None:
    assert table.look_up("narrow", dtype, architecture) == {"BLOCK": block}


@pytest.mark.parametrize("question", [("wide", "float16", "sm_90"), ("narrow", "float16", "sm_75")])
def test_what_is_missing_is_named(table: Configs, question: tuple[str, str, str]) -> None:
    with pytest.raises(LookupError, match=r"some.json has no .*; it has: narrow/any/sm_80"):
        table.look_up(*question)


def test_a_type_of_its_own_need_not_have_every_architecture(table: Configs) -> None:
    assert table.look_up("narrow", "float32", "sm_80") == {"BLOCK": 1}
    assert len(list(table.entries())) == 3


def test_answers_are_kept(table: Configs) -> None:
    first = table.find("narrow", torch.float16, CPU)
    assert first == {"BLOCK": 1}
    assert table.find("narrow", torch.float16, CPU) is first


def test_why_long_prompts_take_no_dense_route_is_told_with_attention() -> None:
    attention = TritonKernels(TritonConfig()).operations()["attention"]
    assert attention.notes == []
    attention._prefill.notes.append("no engine")
    assert attention.notes == ["no engine"]
