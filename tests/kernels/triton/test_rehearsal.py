"""Kernels that a start needs are noted, launched by nobody, and compiled by other processes."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

HERE = Path(__file__).parent
LAUNCHER = "__triton_launcher"
# Functions of the GPU's driver that launchers call, and nobody here.
LIBRARY = "".join(
    f"int {name}(void) {{ return 1; }}\n"
    for name in (
        "cuCtxGetCurrent", "cuCtxSetCurrent", "cuDeviceGet", "cuDevicePrimaryCtxRetain",
        "cuFuncSetAttribute", "cuGetErrorString", "cuPointerGetAttribute", "cuLaunchKernelEx",
    )
)  # fmt: skip
# Memory that was given back costs more to get again than all else here.
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}


def run(script: str, cache: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    environment = {name: os.environ[name] for name in os.environ if name != "TRITON_INTERPRET"}
    places = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment |= {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments], env=environment | KEPT | variables,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"said": done.stderr}


@pytest.fixture(scope="module")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = which("gcc") or which("clang")
    if compiler is None:
        pytest.skip("launchers take a compiler of C")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "library.c").write_text(LIBRARY)
    command = [compiler, "-shared", "-fPIC", "-o", "libcuda.so.1", "library.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def test_what_others_compiled_is_found_and_nothing_noted_is_launched(
    tmp_path: Path, driver_library: Path
) -> None:
    place = str(driver_library)
    told = run("compile_aside.py", tmp_path, TRITON_LIBCUDA_PATH=place, LD_LIBRARY_PATH=place)
    assert len(told["before"]) == 6, "three kernels for two widths, each noted once"
    assert not any(told["before"])
    assert all(told["after"])
    assert told["found"] == [True] * 6, "launches after it compile nothing"
    assert told["launched"] == 18, "real launches are launched"
    launchers = [path for path in tmp_path.rglob(f"{LAUNCHER}*") if path.suffix == ".so"]
    assert len(launchers) == 3, "widths are no part of a launcher"
    assert told["said"] == ""

    assert told["noted"] == 6, "what was launched before is noted, too"
    assert told["meanwhile"] == [] and told["tuned"] is False
    assert told["foreign"] == ["__main__.foreign_kernel"]
    assert told["others"] == ["foreign_kernel"], "other threads launch"
    assert told["later"] == ["foreign_kernel"]


STARTS: dict[str, dict[str, Any]] = {
    "long": {
        "max_model_len": 40_000, "max_num_seqs": 300, "max_num_batched_tokens": 16_640,
        "num_gpu_blocks_override": 6000,
    },
    "encoded": {
        "max_model_len": 33_000, "max_num_seqs": 100, "max_num_batched_tokens": 8192,
        "num_gpu_blocks_override": 6000, "kv_cache_dtype": "fp8",
    },
    "small": {
        "max_model_len": 4000, "max_num_seqs": 4, "max_num_batched_tokens": 700,
        "num_gpu_blocks_override": 2000, "dtype": "float16",
        "model": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 64,
            "num_attention_heads": 6, "num_key_value_heads": 2,
        },
    },
    "few bits": {
        "max_model_len": 4000, "max_num_seqs": 70, "max_num_batched_tokens": 700,
        "num_gpu_blocks_override": 2000,
        "model": {
            "num_hidden_layers": 1,
            "quantization_config": {
                "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True,
            },
        },
    },
    "experts": {
        "max_model_len": 4000, "max_num_seqs": 40, "max_num_batched_tokens": 2048,
        "num_gpu_blocks_override": 2000,
        "model": {
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 32,
            "num_experts_per_tok": 4, "moe_intermediate_size": 128, "mlp_only_layers": [0],
        },
    },
    "latent": {
        "max_model_len": 33_000, "max_num_seqs": 40, "max_num_batched_tokens": 8192,
        "num_gpu_blocks_override": 6000,
        "model": {
            "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
            "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 64,
            "q_lora_rank": None, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
            "num_hidden_layers": 1, "first_k_dense_replace": 1, "n_routed_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
            "n_group": 1, "topk_group": 1, "topk_method": "greedy", "norm_topk_prob": False,
            "routed_scaling_factor": 1.0,
        },
    },
}  # fmt: skip

EXPERTS = {
    "align_kernel", "down_tile_kernel", "down_vector_kernel", "gate_up_tile_kernel",
    "gate_up_vector_kernel", "route_kernel", "sum_kernel",
}  # fmt: skip
DRAWING = ("summarize_kernel", "cut_kernel", "restrict_kernel", "pick_kernel")
LATENT = ("decode", "gather", "merge", "prefill", "write")
RARE = {(name, "*fp32") for name in DRAWING}
"""Draw from edited logits: nobody waits for them before somebody asks for that."""


@pytest.mark.parametrize("start", STARTS)
def test_steps_want_nothing_that_was_not_rehearsed(tmp_path: Path, start: str) -> None:
    told = run("rehearse_aside.py", tmp_path, json.dumps(STARTS[start]))
    assert told["missing"] == []
    assert told["wanted"] <= told["noted"] < told["wanted"] + 10, "few are compiled for nothing"
    assert told["foreign"] == []
    late = [(name, types[0]) for name, types, *_ in told["late"]]
    assert [one for one in late if one not in RARE] == [], "all else is loaded at start"
    kernels = {
        "add_rms_norm_kernel", "cut_kernel", "join_kernel", "silu_mul_kernel",
        "step_inputs_kernel", "summarize_kernel", "vector_kernel",
    }  # fmt: skip
    plain = {"decode_kernel", "merge_kernel", "prefill_kernel"}
    attention = {
        "small": plain,
        "few bits": plain | {"quant_dense_kernel", "quant_tile_kernel"},
        "experts": plain | EXPERTS,
        "latent": {"combine_kernel", *(f"latent_{name}_kernel" for name in LATENT)},
    }.get(start, plain | {"gather_kernel"})
    assert kernels | attention <= set(told["kernels"]), "the steps are of all kinds"
    modules = [*told["modules"], "jackfield.plugins.kernels.triton.compile_worker"]
    assert heavy_imports(modules) == []


def heavy_imports(modules: list[str]) -> list[str]:
    """What makes a process slow to start, of what these modules import."""
    code = (
        f"import sys, importlib\nfor name in {modules}: importlib.import_module(name)\n"
        "print([n for n in sys.modules if n == 'torch' or n.startswith('jackfield.core')])"
    )
    environment = {name: os.environ[name] for name in os.environ if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    found: list[str] = json.loads(done.stdout.replace("'", '"'))
    return found


def test_a_kernel_that_fails_is_told_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    from jackfield.plugins.kernels.triton.compile_ahead import CompileAhead
    from jackfield.plugins.kernels.triton.compiling import PACKAGE, Wanted

    with caplog.at_level(logging.WARNING, "jackfield.kernels"), CompileAhead() as ahead:
        ahead.tell(Wanted(f"{PACKAGE}not_there", "some_kernel", "{}", 90))
        ahead.finish()
    told = "compiling kernels at start failed: some_kernel: ModuleNotFoundError"
    assert told in caplog.text


def test_a_process_that_takes_too_long_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    from jackfield.plugins.kernels.triton.compile_ahead import CompileAhead
    from jackfield.plugins.kernels.triton.compiling import PACKAGE, Wanted

    with caplog.at_level(logging.WARNING, "jackfield.kernels"), CompileAhead(0.0) as ahead:
        ahead.tell(Wanted(f"{PACKAGE}not_there", "some_kernel", "{}", 90))
        process = ahead._process
        ahead.finish()
    assert process is not None and process.returncode is not None
    assert "was ended" in caplog.text


def test_nothing_is_started_where_nothing_is_wanted() -> None:
    from jackfield.plugins.kernels.triton.compile_ahead import CompileAhead

    with CompileAhead() as ahead:
        ahead.finish()
        assert ahead._process is None
