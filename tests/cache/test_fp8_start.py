"""The plugin `fp8` in a stack: who serves it, who is refused, and what the start tells."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM
from jackfield.core.api import (
    ConfigError,
    KernelPlugin,
    KvEncoding,
    KvSpec,
    OpSpec,
    PluginContractError,
    ScaleSource,
)
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.engine.operations import bind
from jackfield.core.executors.encoder import encode
from jackfield.core.host.manager import Implementation
from jackfield.core.host.sources import load_config
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.plugins.cache.fp8 import Fp8

CPU = torch.device("cpu")
SPEC = KvSpec(4, 2, 16, torch.float32, 16)
OPS = OpSpec(torch.float32, 64, 16, 300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def start(folder: Path, **settings: Any) -> LLM:
    common = {"num_gpu_blocks_override": 32, "engine.threads": 1, "cache.stack": ["paged", "fp8"]}
    return LLM(folder, progress=SilentProgress(), **{**common, **settings})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("e4m3", ("fp8_e4m3", torch.float8_e4m3fn, 448)),
        ("e5m2", ("fp8_e5m2", torch.float8_e5m2, 57344)),
        ("int8", ("int8", torch.int8, 127)),
    ],
)
def test_formats(name: str, expected: tuple[Any, ...]) -> None:
    encoding = Fp8(Fp8.Config(format=name)).encode(SPEC)
    assert encoding[:3] == expected
    limit = torch.finfo if encoding.dtype.is_floating_point else torch.iinfo
    assert limit(encoding.dtype).max == encoding.limit


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        ("auto", (True, ScaleSource.EITHER)),
        ("checkpoint", (True, ScaleSource.CHECKPOINT)),
        ("calibrate", (True, ScaleSource.CALIBRATION)),
        ("one", (False, ScaleSource.CALIBRATION)),
    ],
)
def test_sources_of_scales(scales: str, expected: tuple[bool, ScaleSource]) -> None:
    encoding = Fp8(Fp8.Config(scales=scales, margin=2)).encode(SPEC)
    assert (encoding.scaled, encoding.source, encoding.margin) == (*expected, 2)


def test_the_plugin_loads_without_torch() -> None:
    code = "import sys, jackfield.plugins.cache.fp8; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("key", "value"), [("format", "fp8"), ("scales", "dynamic"), ("margin", 0.5), ("bits", 8)]
)
def test_wrong_settings_are_refused(folder: Path, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"cache\.fp8\.{key}"):
        start(folder, **{f"cache.fp8.{key}": value})


def test_the_start_tells_format_bytes_and_kernel(folder: Path) -> None:
    plain = start(folder, **{"cache.stack": ["paged"]}).assembly
    assembly = start(folder).assembly
    summary = assembly.summary
    assert plain.loaded.bytes_per_token == plain.summary.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert summary.kv_bytes_per_token == 2 * 2 * 2 * 16
    assert summary.operations["attention"] == "torch"
    assert plain.summary.kv_encoding == "float32"
    lines = summary.lines()
    assert any("128 bytes per token (fp8_e4m3, scales calibrated)" in line for line in lines)
    assert summary.as_dict()["kv_bytes_per_token"] == 128


def test_a_pool_of_so_many_bytes_holds_more_tokens(folder: Path) -> None:
    settings: dict[str, Any] = {"cache.memory": 2**20, "num_gpu_blocks_override": None}
    plain = start(folder, **{**settings, "cache.stack": ["paged"]}).assembly
    assembly = start(folder, **settings).assembly
    assert assembly.loaded.num_blocks == 4 * plain.loaded.num_blocks


class Kernels(KernelPlugin):
    """An attention that reads nothing but what models compute, or that never serves."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(self.Config())
        self.reason = reason

    def operations(self) -> dict[str, Any]:
        return {"attention": self}

    def unsupported(self, spec: KvSpec, device: torch.device) -> list[str]:
        lossy = ["it reads plain ones only"] if spec.encoding else []
        return lossy + ([self.reason] if self.reason else [])


def refusal(reason: str | None = None) -> str:
    encoding = Fp8(Fp8.Config()).encode(SPEC)
    with pytest.raises(ConfigError) as raised:
        bind([("fast", Kernels(reason))], OPS, [SPEC._replace(encoding=encoding)], CPU, "fp8")
    return str(raised.value)


def test_a_stack_without_a_reader_names_the_format_and_who_asks() -> None:
    assert refusal() == (
        "fp8 needs a kernel that reads fp8_e4m3; 'torch' does, 'fast' does not. "
        "Add 'torch' to kernel.stack, or take 'fp8' out of cache.stack"
    )


def test_a_kernel_that_would_not_serve_anyway_says_its_own_reasons() -> None:
    told = refusal("it needs a GPU")
    assert "needs a kernel" not in told
    assert "it reads plain ones only; it needs a GPU" in told


def test_the_compiled_kernel_is_passed_over_and_the_start_says_why(folder: Path) -> None:
    told = "it does not read keys and values stored as fp8_e4m3"
    summary = start(folder).assembly.summary
    assert any(told in notice for notice in summary.notices)
    if summary.operations["linear"] != "cpu":
        pytest.skip("no compiler here")
    with pytest.raises(ConfigError, match="fp8 needs a kernel that reads fp8_e4m3; 'torch' does"):
        start(folder, **{"kernel.stack": ["cpu"]})


@pytest.mark.parametrize("answer", ["fp8", KvEncoding("odd", torch.int8, float("inf"))])
def test_an_answer_that_is_no_encoding_is_the_plugins_fault(answer: Any) -> None:
    with pytest.raises(PluginContractError, match="cache plugin mine"):
        encode(SPEC, Implementation("mine", lambda spec: answer))
    assert encode(SPEC, None) == encode(SPEC, Implementation("mine", lambda spec: None)) == SPEC


@pytest.mark.parametrize(
    ("alias", "name"),
    [("fp8", "e4m3"), ("fp8_e4m3", "e4m3"), ("fp8_e5m2", "e5m2"), ("int8", "int8")],
)
def test_the_alias_adds_the_plugin_with_its_format(alias: str, name: str) -> None:
    config = load_config(flags={"kv_cache_dtype": alias}).config
    assert config.cache.stack[-1] == "fp8"
    assert config.cache.plugin_tables == {"fp8": {"format": name}}


def test_aliases_that_say_nothing_or_nonsense() -> None:
    assert "fp8" not in load_config(flags={"kv_cache_dtype": "auto"}).config.cache.stack
    for value in ("int4", 8, ["fp8"]):
        with pytest.raises(ConfigError, match="'fp8_e5m2', 'int8'"):
            load_config(flags={"kv_cache_dtype": value})
    with pytest.raises(ConfigError, match=r"cache\.fp8\.format"):
        load_config(flags={"kv_cache_dtype": "int8", "cache.fp8.format": "e5m2"})


def test_the_alias_serves(folder: Path) -> None:
    llm = start(folder, **{"cache.stack": None, "kv_cache_dtype": "int8"})
    assert llm.assembly.summary.kv_encoding == "int8, scales calibrated"
